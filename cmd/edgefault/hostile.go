package main

import (
	"context"
	"encoding/json"
	"os"
	"time"

	"multiedge/bench/cli"
	"multiedge/bench/hostile"
	"multiedge/internal/config"
	"multiedge/internal/ipc"
)

// hostileCmd misbehaves at a daemon, for fault scenarios: what it costs others at that daemon is
// measured beside it.
type hostileCmd struct {
	Mode    string      `arg:"" help:"Way to misbehave: ${hostile}."`
	Socket  string      `help:"Control socket of the daemon (default: $$EDGE_SOCKET or /run/edged/edged.sock)." placeholder:"PATH"`
	For     cli.Seconds `default:"3" help:"Duration."`
	Again   bool        `default:"true" negatable:"" help:"Attach anew after each eviction."`
	Peer    string      `help:"A node to connect to, so that operations are in flight." placeholder:"NAME"`
	Service string      `default:"hostile" help:"The service there; it must export memory."`
	Seed    uint64      `default:"1" help:"Seed of random choices."`
}

// Run prints a hostile.Report as one line of JSON.
func (c *hostileCmd) Run(ctx context.Context) error {
	socket := c.Socket
	if socket == "" {
		socket = config.SocketPath()
	}
	ctx, cancel := context.WithTimeout(ctx, time.Duration(c.For))
	defer cancel()
	rep, err := hostile.Run(ctx, hostile.Options{
		Mode: c.Mode, Seed: c.Seed, Again: c.Again, Peer: c.Peer, Service: c.Service,
		Dial: func(ctx context.Context) (*ipc.Conn, error) { return ipc.Dial(ctx, socket) },
	})
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(rep)
}
