package faults

import (
	"context"
	"errors"
	"net"

	"multiedge/edge"
)

// types names the errors of package edge that a program can tell apart.
var types = []struct {
	err  error
	name string
}{
	{edge.ErrDaemonDown, "daemon-down"}, {edge.ErrNoDaemon, "no-daemon"}, {edge.ErrPeerDown, "peer-down"},
	{edge.ErrPeerClosed, "peer-closed"}, {edge.ErrReset, "reset"},
	{edge.ErrPeerUnknown, "peer-unknown"}, {edge.ErrStranger, "stranger"}, {edge.ErrNoService, "no-service"},
	{edge.ErrRefused, "refused"}, {edge.ErrTimeout, "timeout"},
	{edge.ErrMTU, "mtu"}, {edge.ErrVersion, "version"}, {edge.ErrRevoked, "key"}, {edge.ErrKey, "key"},
	{edge.ErrPermission, "permission"},
	{edge.ErrBounds, "bounds"}, {edge.ErrAborted, "aborted"}, {edge.ErrLimit, "limit"}, {edge.ErrMemlock, "memlock"},
	{edge.ErrDenied, "denied"}, {edge.ErrMemory, "memory"}, {edge.ErrTooLong, "too-long"},
	{edge.ErrNoBuffer, "no-buffer"},
	{edge.ErrBusy, "busy"}, {edge.ErrExists, "exists"}, {net.ErrClosed, "closed"}, {context.DeadlineExceeded,
		"deadline"},
	{context.Canceled, "cancelled"},
}

// typeOf names an error's type: "" for success, ok false for an error that a program cannot tell from others.
func typeOf(err error) (name string, ok bool) {
	if err == nil {
		return "", true
	}
	for _, t := range types {
		if errors.Is(err, t.err) {
			return t.name, true
		}
	}
	return "untyped", false
}
