package sim

import (
	"testing"

	"multiedge/internal/engine"
	"multiedge/internal/mono"
)

// The oracle of shared queues: what a broken engine might say of buffers is noticed.
func TestOracleOfSharedBuffers(t *testing.T) {
	back := engine.Event{Kind: engine.EvReceived, Token: 1, Status: engine.StatusClosed}
	for _, c := range []struct {
		name   string
		tamper func(w *swarm, p *pool)
		wrong  bool
	}{
		{"nothing", func(*swarm, *pool) {}, false},
		{"a buffer comes back without its queue", func(w *swarm, p *pool) { w.returned(p.node, &back) }, true},
		{"the queue is dropped", func(w *swarm, p *pool) { w.drop(p) }, false},
		{"the same, and a buffer comes back twice", func(w *swarm, p *pool) {
			w.drop(p)
			w.world.pump()
			w.returned(p.node, &back)
		}, true},
		{"the same, and one does not come back", func(w *swarm, p *pool) {
			w.drop(p)
			p.lent[3] = p.lent[2]
		}, true},
		{"the queue is dropped while a connection uses it", func(w *swarm, p *pool) {
			p.ends = append(p.ends, &end{})
			w.drop(p)
		}, true},
		{"the queue has fewer than were posted", func(w *swarm, p *pool) { p.lent[3] = p.lent[2] }, true},
		{"somebody wrote into a buffer", func(w *swarm, p *pool) { p.lent[1].bytes()[5] = 1 }, true},
		{"somebody wrote into one that came back", func(w *swarm, p *pool) {
			b := p.lent[1]
			w.drop(p)
			w.world.pump()
			b.bytes()[5] = untouched
		}, true},
	} {
		w := &swarm{world: New(Options{}), full: true}
		w.mix.pools.nodes = 1
		w.makePools()
		w.areas = make([][]*area, len(w.world.Nodes))
		p := w.pools[0]
		p.node.Handle = func(ev *engine.Event) { w.event(p.node, ev) }
		w.ends = append(w.ends, nil, nil)
		p.queue = p.node.E.NewReceiveQueue()
		for range 2 {
			p.grow(w)
			w.postOne(p)
		}
		c.tamper(w, p)
		w.world.pump()
		err := w.world.flaw
		if err == nil {
			err = w.invariants()
		}
		if (err != nil) != c.wrong {
			t.Errorf("%s: %v", c.name, err)
		}
		w.world.Stop()
	}
}

// A strict message is refused where the queue may have been empty, and nowhere else.
func TestOracleOfShortage(t *testing.T) {
	for _, c := range []struct {
		name               string
		joined, free, sent mono.Time
		wrong              bool
	}{
		{"free since before", 1, 2, 3, true},
		{"free since after", 1, 3, 2, false},
		{"joined after", 3, 1, 2, false},
		{"never joined", 0, 1, 2, false},
		{"none free", 1, mono.Never, 2, false},
	} {
		w := &swarm{world: New(Options{})}
		w.mailed = make([]mailed, 2)
		e := &end{pairing: &pairing{w: w}, node: w.world.Nodes[0], boot: 1}
		e.shares, e.joined = &pool{freeSince: c.free}, c.joined
		o := &operation{}
		o.op.Kind, o.op.Patience, o.msg.at = engine.OpSend, engine.NoWait, c.sent
		if err := e.judgeShortage(o); (err != nil) != c.wrong || w.mailed[0].refused != 1 {
			t.Errorf("%s: %v, refused %d", c.name, err, w.mailed[0].refused)
		}
		w.world.Stop()
	}
}

// The engine's counters of messages agree with the buffers that came back.
func TestOracleOfMailed(t *testing.T) {
	for _, c := range []struct {
		name               string
		got, long, unheard uint64 // as the engine counts
		m                  mailed
		wrong              bool
	}{
		{"as many", 3, 1, 2, mailed{3, 1, 0, 2}, false},
		{"one ended behind another", 3, 1, 2, mailed{2, 1, 1, 1}, false},
		{"one too few", 2, 1, 2, mailed{3, 1, 0, 2}, true},
		{"one too many", 4, 1, 2, mailed{3, 1, 0, 2}, true},
		{"a long one not counted", 3, 0, 2, mailed{3, 1, 0, 2}, true},
		{"a refusal not counted", 3, 1, 1, mailed{3, 1, 0, 2}, true},
	} {
		n := engine.Counters{}
		n.Op.MessagesReceived, n.Op.MessagesTooLong, n.Op.MessagesUnbuffered = c.got, c.long, c.unheard
		if err := c.m.check(&n); (err != nil) != c.wrong {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}
