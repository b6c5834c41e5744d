package scale

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"multiedge/bench/kit"
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
func Serve(ctx context.Context, d *edge.Device, started func()) {
	mem := kit.Get(d.Register(slot))
	l := kit.Get(d.Listen(ctx, service))
	asked := kit.Get(d.Listen(ctx, control))
	started()
	err := kit.Try(func() {
		kit.Together(ctx, func(ctx context.Context) { answerAll(ctx, asked) }, func(ctx context.Context) {
			kit.Each(ctx, acceptors, acceptors, func(ctx context.Context, _ int) { acceptAll(ctx, l, mem) })
		})
	})
	if ctx.Err() == nil {
		kit.Check(err)
	}
}

// acceptors is how many connections are accepted at once.
const acceptors = 16

// acceptAll takes connections. Nothing is kept of them: what a connection costs is the library's and the daemon's.
func acceptAll(ctx context.Context, l *edge.Listener, mem *edge.Region) {
	for {
		c := kit.Get(l.Accept(ctx))
		if wanted := c.Data(); len(wanted) > 0 { // a cycle: nothing is exported
			continue
		}
		if _, err := mem.Export(c, memory, edge.RemoteWrite, 0, slot); err != nil && c.Err() == nil {
			kit.Fail("scale: export: %w", err)
		}
	}
}

// answerAll serves those who ask for the usage of this host, one after the other.
func answerAll(ctx context.Context, l *edge.Listener) {
	for {
		c := kit.Get(l.Accept(ctx))
		err := kit.Try(func() { answer(ctx, c) })
		c.Abort()
		if err != nil && !errors.Is(err, edge.ErrPeerClosed) && !errors.Is(err, edge.ErrPeerDown) {
			kit.Check(err)
		}
	}
}

func answer(ctx context.Context, c *edge.Conn) {
	mem := kit.Get(c.Device().Register(8))
	defer mem.Close()
	kit.Get(mem.Export(c, "ask", edge.RemoteWrite, 0, 8))
	to := kit.Get(c.Import(ctx, answers))
	local := kit.Get(c.Device().Register(maxAnswer))
	defer local.Close()
	for {
		kit.Get(c.WaitNotify(ctx))
		text := kit.Get(json.Marshal(look(ctx, c.Device())))
		kit.Do(ctx, c, &edge.Work{Kind: edge.Write, Flags: edge.Notify, Imm: uint32(len(text)), Local: local,
			Len: copy(local.Bytes(), text), Remote: to})
	}
}

// settleTime bounds how long what was closed may take to be gone everywhere.
const settleTime = 30 * time.Second
