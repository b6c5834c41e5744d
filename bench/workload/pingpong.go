package workload

import (
	"context"

	"multiedge/bench/kit"
	"multiedge/bench/pattern"
	"multiedge/bench/report"
	"multiedge/edge"
	"multiedge/internal/mono"
)

// pingPong is what both sides of the request-reply test share: writes that notify, from one's source into the other's
// target.
type pingPong struct {
	*sender
	ch      *channel
	checker *pattern.Checker
}

func (s *side) pingPong(p *setup) *pingPong {
	spec := p.spec
	spec.Depth, spec.Batch = pingPongOps, 1
	w := edge.Work{Kind: edge.Write, Flags: edge.Notify, Local: s.mem.source}
	d := newSender(s.lanes[:1], w, p.from, p.to, &spec)
	d.every = 1 << 62 // the round trip is timed, not the operation
	return &pingPong{sender: d, ch: s.ch, checker: p.checker}
}

// pingPongOps is how many operations of the past are remembered: each is looked at when its turn comes again.
// Completion is not waited for in the loop, since the answer says more.
const pingPongOps = 16

// hit posts the next message of a ping-pong.
func (d *sender) hit(ctx context.Context) {
	if d.posted-d.done == pingPongOps {
		d.reap(ctx)
	}
	d.putOne(ctx)
}

// verify checks message seq, if data is checked.
func (g *pingPong) verify(seq uint64) {
	if g.checker != nil {
		g.checker.Message(seq)
	}
}

// ping is the client's side: write, wait until the answer is complete, and so on. Its latencies are round trips.
func (s *side) ping(ctx context.Context, p *setup) *outcome {
	g := s.pingPong(p)
	out := &outcome{lat: report.NewRecorder(), post: report.NewRecorder(), scale: 0.5}
	r := &receiver{ch: s.ch, wantAck: true}
	start := mono.Now()
	stop, total := deadline(&p.spec, start), count(&p.spec)
	show := start.Add(showEvery)
	now := start
	for out.sent < total && now < stop {
		g.hit(ctx)
		n := kit.Get(s.ch.conn.WaitNotify(ctx))
		if kind, low := split(n.Imm); kind != immMessage || low != out.sent&immMask {
			unexpected(n.Imm, "the answer to the last message")
		}
		t := mono.Now()
		out.lat.Record(t.Sub(now))
		g.verify(out.sent)
		if g.checker != nil { // checking is not part of the next round trip
			t = mono.Now()
		}
		now = t
		out.sent++
		if s.show != nil && now >= show {
			s.show(out.sent)
			show = now.Add(showEvery)
		}
	}
	out.elapsed = now.Sub(start)
	g.reapAll(ctx)
	s.ch.end(ctx, out.sent)
	r.run(ctx)
	out.integrity = checked(g.checker, out.sent)
	return out
}

// pong is the server's side: it answers each message as soon as it is complete, with one of the same size. It checks
// after it answered; with a single slot before, since the next message may come at once.
func (s *side) pong(ctx context.Context, p *setup) *outcome {
	g := s.pingPong(p)
	out := &outcome{scale: 0.5}
	start := mono.Now()
	r := &receiver{ch: s.ch, wantEnd: true}
	for {
		n := kit.Get(s.ch.conn.WaitNotify(ctx))
		kind, low := split(n.Imm)
		if kind == immEnd {
			r.handle(ctx, n)
			break
		}
		if kind != immMessage || low != out.sent&immMask {
			unexpected(n.Imm, "the next message")
		}
		if p.to.Slots == 1 {
			g.verify(out.sent)
		}
		g.hit(ctx)
		if p.to.Slots > 1 {
			g.verify(out.sent)
		}
		out.sent++
	}
	out.elapsed = r.endAt.Sub(start)
	g.reapAll(ctx)
	out.integrity = checked(g.checker, r.peerSent)
	return out
}

// checked ends the check of so many messages, if there is one.
func checked(c *pattern.Checker, total uint64) Integrity {
	if c == nil {
		return Integrity{}
	}
	c.Finish(total)
	return Integrity{c.Errors, c.Details}
}
