package edge

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"syscall"

	"multiedge/edge/internal/inner"
	"multiedge/internal/abi"
	"multiedge/regmem"
)

// fault is one of the package's error values.
type fault struct {
	text string
	also error // errors.Is holds for it as well; may be nil
}

func (e *fault) Error() string { return "edge: " + e.text }
func (e *fault) Unwrap() error { return e.also }

// failure makes an error value.
func failure(text string, also error) error { return &fault{text, also} }

// What can go wrong, and what to do next. An error that the package returns may say a more particular cause than the
// one here, which it still is: compare by errors.Is.
var (
	ErrNoDaemon = failure("no daemon answers; start edged, name its socket in EDGE_SOCKET or Config.Socket, or "+
		"use Config.Embedded", nil)
	// ErrDaemonDown ends everything on a Device whose daemon went away. Whether operations then in flight took effect
	// is unknown. The Device attaches again by itself when edged is back.
	ErrDaemonDown = failure("the daemon went away; dial anew and renew registered memory (Region.Renew) once "+
		"edged runs again", nil)
	// ErrDraining means that somebody prepares the daemon's end (edgectl drain), or that it is stopping: it finishes
	// what exists and takes nothing new. errors.Is(err, ErrDaemonDown) holds too.
	ErrDraining = registered(abi.CodeDraining, ErrDaemonDown)
	// ErrDaemonSilent comes with the error of a context that ended a wait while the daemon had not run for seconds. It
	// also ends a request that the daemon did not take for as long. Operations stay in flight.
	ErrDaemonSilent = failure("the daemon is there but does not run: it is stopped, hung or starved of "+
		"processor time; let edged go on, or restart it", nil)
	// ErrStale is the error of memory whose daemon went away. errors.Is(err, ErrDaemonDown) holds too.
	ErrStale = failure("the memory was registered with a daemon that has gone; register it anew by Region.Renew",
		ErrDaemonDown)

	ErrPeerUnknown = registered(abi.StatusPeerUnknown.Code(), nil)
	ErrPeerDown    = registered(abi.StatusPeerDown.Code(), nil)
	// ErrPeerClosed means that the other side closed the connection by Close, with all its operations complete.
	// errors.Is(err, io.EOF) holds too, and for no other end.
	ErrPeerClosed = registered(abi.StatusClosed.Code(), io.EOF)
	// ErrReset means that the other side went away without closing: its process died or aborted, or closed a stream
	// while we were writing. It may have wanted to send more. errors.Is(err, syscall.ECONNRESET) holds too.
	ErrReset = registered(abi.StatusReset.Code(), syscall.ECONNRESET)
	// ErrStranger means that one of the two nodes does not authorise the other's key, or that this node authorises no
	// peer of that name.
	ErrStranger  = registered(abi.StatusStranger.Code(), nil)
	ErrNoService = registered(abi.StatusNoService.Code(), nil)
	ErrRefused   = registered(abi.StatusRefused.Code(), nil)
	ErrTimeout   = registered(abi.StatusTimeout.Code(), os.ErrDeadlineExceeded)
	ErrMTU       = registered(abi.StatusMTU.Code(), nil)
	ErrVersion   = registered(abi.CodeVersion, nil)

	ErrKey        = registered(abi.StatusKey.Code(), nil)
	ErrRevoked    = failure("the peer revoked the remote memory; import it again once it is exported anew", ErrKey)
	ErrPermission = registered(abi.StatusPermission.Code(), nil)
	ErrBounds     = registered(abi.StatusBounds.Code(), nil)

	// ErrMemory ends an operation that uses memory of a space, here or at the peer, which did not become resident
	// within a second. Other operations are not touched; the same one may be posted again. space.Options.Pin is how
	// much a space pins.
	ErrMemory  = registered(abi.StatusMemory.Code(), nil)
	ErrTooLong = registered(abi.StatusTooLong.Code(), nil)
	// ErrNoBuffer ends a Send whose Patience was over before the peer had posted a buffer for it.
	ErrNoBuffer = registered(abi.StatusNoBuffer.Code(), nil)
	// ErrQueueFull means that a CompletionQueue has no place for the end of one more piece of work. Nothing was posted.
	ErrQueueFull = failure("the completion queue has no room for more work; take completions from it, or make a "+
		"longer one", nil)

	ErrAborted = registered(abi.StatusAborted.Code(), net.ErrClosed)
	ErrAgain   = failure("the queue is full; wait for an operation in flight", nil)
	ErrBusy    = registered(abi.CodeBusy, nil)
	ErrLimit   = registered(abi.StatusLimit.Code(), nil)
	// ErrQuota ends an operation when all clients of the user together have too many in flight. errors.Is(err,
	// ErrLimit) holds too.
	ErrQuota   = registered(abi.StatusQuota.Code(), ErrLimit)
	ErrDenied  = registered(abi.CodeDenied, nil)
	ErrExists  = registered(abi.CodeExists, nil)
	ErrInvalid = registered(abi.CodeInvalid, nil)
)

// ErrMemlock is wrapped by errors of Register when the memory cannot be pinned; their text has the remedy.
var ErrMemlock = regmem.ErrMemlock

var errNoConn = registered(abi.StatusNoConn.Code(), net.ErrClosed)

// errStopped ends operations on connections of a domain, which this library dials none of.
var errStopped = registered(abi.StatusStopped.Code(), nil)

// registered makes the error that programs get for a code, with the register's text.
func registered(c abi.Code, also error) error { return failure(c.Info().Help, also) }

// codeError has the error of each code that has one of its own (abi.StatusInfo). CodeInternal has none: its text says
// what happened.
var codeError = map[abi.Code]error{
	abi.StatusOK.Code(): nil, abi.StatusKey.Code(): ErrKey, abi.StatusPermission.Code(): ErrPermission,
	abi.StatusBounds.Code(): ErrBounds, abi.StatusClosed.Code(): ErrPeerClosed, abi.StatusPeerDown.Code(): ErrPeerDown,
	abi.StatusPeerUnknown.Code(): ErrPeerUnknown, abi.StatusNoService.Code(): ErrNoService,
	abi.StatusRefused.Code(): ErrRefused, abi.StatusLimit.Code(): ErrLimit, abi.StatusAborted.Code(): ErrAborted,
	abi.StatusTimeout.Code(): ErrTimeout, abi.StatusMTU.Code(): ErrMTU, abi.StatusStranger.Code(): ErrStranger,
	abi.StatusReset.Code(): ErrReset, abi.StatusMemory.Code(): ErrMemory, abi.StatusTooLong.Code(): ErrTooLong,
	abi.StatusNoBuffer.Code(): ErrNoBuffer, abi.StatusNoConn.Code(): errNoConn, abi.StatusQuota.Code(): ErrQuota,
	abi.StatusMisaligned.Code(): ErrMisaligned, abi.StatusStopped.Code(): errStopped,

	abi.CodeInvalid: ErrInvalid, abi.CodeMemlock: ErrMemlock, abi.CodeBusy: ErrBusy, abi.CodeExists: ErrExists,
	abi.CodeDraining: ErrDraining, abi.CodeDenied: ErrDenied, abi.CodeVersion: ErrVersion, abi.CodeInternal: nil,
}

// statusError maps how an operation ended to its error, without allocation; nil is success.
var statusError = func() (t [256]error) {
	for i := range t {
		err, ok := codeError[abi.Code(i).Error()]
		if !ok {
			err = fmt.Errorf("edge: operation failed with unknown status %d; upgrade the library", i)
		}
		t[i] = err
	}
	return t
}()

// errorFor turns a code and text of the daemon into an error that wraps one of the package's values where there is one.
func errorFor(code abi.Code, text string) error {
	err := codeError[code.Error()]
	switch {
	case err == nil && text == "":
		return fmt.Errorf("edge: the daemon answered %q", code.String())
	case err == nil:
		return fmt.Errorf("edge: %s", text)
	case text == "":
		return err
	}
	return inner.Because(err, "%s", text)
}

// closedError says why the daemon ended a connection.
func closedError(code abi.Code, text string) error {
	switch code {
	case abi.StatusOK.Code(), abi.StatusClosed.Code():
		return ErrPeerClosed
	}
	return errorFor(code, text)
}

// dialDaemonError says why the control socket at path cannot be used.
func dialDaemonError(path string, err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("%w (tried %s)", ErrNoDaemon, path)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%w (socket %s)", ErrDenied, path)
	}
	return fmt.Errorf("edge: connecting to the daemon: %w", err)
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrInvalid}, args...)...)
}
