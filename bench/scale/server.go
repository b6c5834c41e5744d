package scale

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"multiedge/edge"
)

const (
	service   = "edgebench-scale"         // connections that are counted
	control   = "edgebench-scale-control" // one that asks the server for its usage
	memory    = "m"                       // what each connection exports
	slot      = 8                         // bytes of it
	answers   = "answers"                 // where the server writes its usage
	maxAnswer = 4096
)

// Serve accepts connections and exports memory on each, until ctx ends. started is called when clients may come.
func Serve(ctx context.Context, d *edge.Device, started func()) error {
	mem, err := d.Register(slot)
	if err != nil {
		return err
	}
	l, err := d.Listen(ctx, service)
	if err != nil {
		return err
	}
	asked, err := d.Listen(ctx, control)
	if err != nil {
		return err
	}
	failed := make(chan error, 2)
	go func() { failed <- acceptAll(ctx, l, mem) }()
	go func() { failed <- answerAll(ctx, asked) }()
	started()
	if err := <-failed; ctx.Err() == nil {
		return err
	}
	return nil
}

// acceptAll takes every connection. Nothing is kept of them: what a connection costs is the library's and the daemon's.
func acceptAll(ctx context.Context, l *edge.Listener, mem *edge.Region) error {
	const workers = 16
	failed := make(chan error, workers)
	for range workers {
		go func() {
			for {
				c, err := l.Accept(ctx)
				if err != nil {
					failed <- err
					return
				}
				if wanted := c.Data(); len(wanted) > 0 { // a cycle: nothing is exported
					continue
				}
				if _, err := mem.Export(c, memory, edge.RemoteWrite, 0, slot); err != nil && c.Err() == nil {
					failed <- fmt.Errorf("scale: export: %w", err)
					return
				}
			}
		}()
	}
	return <-failed
}

// answerAll serves those who ask for the usage of this host, one after the other.
func answerAll(ctx context.Context, l *edge.Listener) error {
	for {
		c, err := l.Accept(ctx)
		if err != nil {
			return err
		}
		err = answer(ctx, c)
		c.Abort()
		if err != nil && !errors.Is(err, edge.ErrPeerClosed) && !errors.Is(err, edge.ErrPeerDown) {
			return err
		}
	}
}

func answer(ctx context.Context, c *edge.Conn) error {
	mem, err := c.Device().Register(8)
	if err != nil {
		return err
	}
	defer mem.Close()
	if _, err := mem.Export(c, "ask", edge.RemoteWrite, 0, 8); err != nil {
		return err
	}
	to, err := c.Import(ctx, answers)
	if err != nil {
		return err
	}
	local, err := c.Device().Register(maxAnswer)
	if err != nil {
		return err
	}
	defer local.Close()
	for {
		if _, err := c.WaitNotify(ctx); err != nil {
			return err
		}
		h, err := look(ctx, c.Device())
		if err != nil {
			return err
		}
		text, err := json.Marshal(h)
		if err != nil {
			return err
		}
		op, err := c.Post(&edge.Work{Kind: edge.Write, Flags: edge.Notify, Imm: uint32(len(text)), Local: local,
			Len: copy(local.Bytes(), text), Remote: to})
		if err == nil {
			err = op.Wait(ctx)
		}
		if err != nil {
			return err
		}
	}
}

// settleTime bounds how long what was closed may take to be gone everywhere.
const settleTime = 30 * time.Second
