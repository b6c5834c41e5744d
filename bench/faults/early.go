package faults

import (
	"context"
	"errors"
	"sync/atomic"

	"multiedge/bench/kit"
	"multiedge/edge"
	"multiedge/internal/lab"
)

// A connection is given a buffer before it is accepted, its own or one of a queue (clause 14.2). So the first message,
// which does not wait (clause 14.6), is taken; the buffer of its own that a refused request has comes back;
// buffers of a queue on a refused request are not tried. Both ends are in this process.
func earlyScenarios() []Scenario {
	return []Scenario{{Name: "buffers before accept over bad wires and path cuts", Group: Network, Short: true,
		Set: twoLinks, Run: earlyBuffers, Criteria: "each connection's first message, which does not wait, is taken, " +
			"whole; buffers of refused requests come back, each once; no buffer is lost"}}
}

// earlySize is the length of a buffer, and that of the longest message.
const earlySize = 3000

// early are two hosts, between which connections are made one after the other.
type early struct {
	near, far *edge.Device // of host 0 and of host 1
	l         *edge.Listener
	queue     *edge.ReceiveQueue
	cq        *edge.CompletionQueue
	script    script
	out, in   *edge.Region
	taken     atomic.Uint64
	refused   uint64
	compared  uint64
}

// connect dials connection n. The other end posts one buffer for it, and then accepts or refuses it.
func (e *early) connect(ctx context.Context, n uint64, refuse bool) (from, to *edge.Conn) {
	w := edge.Work{Kind: edge.Receive, Local: e.in, Len: earlySize, Queue: e.cq, Context: n}
	kit.Together(ctx, func(ctx context.Context) {
		var err error
		if from, err = e.near.Dial(ctx, "host1", "early"); !refuse || !errors.Is(err, edge.ErrRefused) {
			kit.Check(err)
			if refuse {
				kit.Fail("request %d was not refused", n)
			}
		}
	}, func(ctx context.Context) {
		r := kit.Get(e.l.Next(ctx))
		switch {
		case refuse:
			kit.Get(r.Post(ctx, &w))
			kit.Check(r.Refuse("no"))
			return
		case n%2 == 0:
			kit.Get(r.Post(ctx, &w))
		default:
			kit.Check(r.Serve(ctx, e.queue))
			kit.Get(e.queue.Post(ctx, &w))
		}
		to = kit.Get(r.Accept(ctx, nil))
	})
	return from, to
}

// try makes connection n, sends its first message, and judges the buffer.
func (e *early) try(ctx context.Context, n uint64) {
	refuse := n%4 == 2
	from, to := e.connect(ctx, n, refuse)
	size := int(1 + n*997%earlySize)
	if !refuse {
		e.script.src.Fill(e.out.Bytes()[:size], e.script.id(uint32(n)))
		kit.Doing(func() {
			kit.Do(ctx, from, &edge.Work{Kind: edge.Send, Local: e.out, Len: size, Patience: -1})
		}, "message %d", n)
	}
	var done [2]edge.Completion
	many := kit.Get(e.cq.Wait(ctx, done[:]))
	switch c := done[0]; {
	case many != 1 || c.Context != n:
		kit.Fail("buffer %d came back, and %d in all, when %d was due", c.Context, many, n)
	case refuse:
		if c.Err == nil {
			kit.Fail("the buffer of request %d, which was refused, has a message of %d bytes", n, c.Len)
		}
		e.refused++
		return
	default:
		kit.Check(c.Err)
		wrong, first := e.script.src.Mismatch(e.in.Bytes()[:c.Len], e.script.id(uint32(n)))
		if wrong > 0 || c.Len != size {
			kit.Fail("message %d of %d bytes: %d came, %d of them wrong, the first at %d", n, size, c.Len, wrong, first)
		}
	}
	e.compared += uint64(size)
	kit.Together(ctx, func(context.Context) { kit.Check(from.Close()) },
		func(context.Context) { kit.Check(to.Close()) })
	e.taken.Add(1)
}

// earlyBuffers makes connections over two links that lose, repeat and hold back frames while they are cut.
func earlyBuffers(t *Trial) {
	e := &early{near: t.open(0), far: t.open(1), script: newScript(t.seed, "early")}
	e.l = kit.Get(e.far.Listen(t.ctx, "early"))
	e.queue = kit.Get(e.far.NewReceiveQueue(t.ctx))
	e.cq = kit.Get(e.far.NewCompletionQueue(8))
	e.out = kit.Get(e.near.RegisterContext(t.ctx, earlySize))
	e.in = kit.Get(e.far.RegisterContext(t.ctx, earlySize))
	t.setFaults(badWires)
	b := t.count()
	var over atomic.Bool
	t.succeeds("each first message is taken, and each buffer of a refused request comes back", func() {
		kit.Together(t.ctx, func(ctx context.Context) {
			for n := uint64(0); ctx.Err() == nil && !over.Load(); n++ {
				e.try(ctx, n)
			}
		}, func(ctx context.Context) {
			defer over.Store(true)
			t.cuts(func() {
				was := e.taken.Load()
				goesOn := func() bool { return ctx.Err() != nil || e.taken.Load() > was+4 }
				if took, ok := t.event(5*goesOnTime, goesOn); !ok {
					kit.Fail("%d connections take their first message within %v", e.taken.Load()-was, took)
				}
				kit.Check(ctx.Err())
			})
		})
	})
	_, l := t.since(b)
	t.injected("lost", l.Lost)
	t.wasCut(l.Cut)
	t.check("no buffer is lost", t.buffers() == 0, "%d are posted", t.buffers())
	t.tried("first messages", e.taken.Load())
	t.tried("requests that were refused", e.refused)
	t.row.Counted[bytesCompared] += e.compared
	t.setFaults(lab.Faults{})
}
