package workload

import (
	"context"

	"multiedge/bench/kit"
	"multiedge/bench/report"
	"multiedge/edge"
	"multiedge/internal/mono"
)

// Messages: the ping-pong and the rate of small operations by send and receive instead of by writes. Receivers keep
// buffers posted. A run ends with as many empty messages, marked as the end, as the peer has buffers posted, so that
// none is left for the next run.

// messenger is one end of such a run.
type messenger struct {
	out     *sender // nil: this end sends nothing
	conn    *edge.Conn
	cq      *edge.CompletionQueue
	buffers int
	posted  int // receives that have not come back
	taken   []edge.Completion
	again   []*edge.Work
	bufs    *edge.Region
}

// messageBuffers is how many buffers the ends of a ping-pong post.
const messageBuffers = 16

func (s *side) messenger(ctx context.Context, p *setup) *messenger {
	spec := p.spec
	buffers := messageBuffers
	if spec.Test == report.SendLatency {
		spec.Depth, spec.Batch = pingPongOps, 1
	} else {
		buffers = spec.Depth
	}
	m := &messenger{conn: s.ch.conn, buffers: buffers, taken: make([]edge.Completion, 64), bufs: s.mem.target,
		again: make([]*edge.Work, buffers)}
	if s.mem.source != nil {
		m.out = newSender(s.lanes[:1], edge.Work{Kind: edge.Send, Local: s.mem.source}, p.from, p.to, &spec)
	}
	if m.bufs == nil {
		return m
	}
	m.cq = kit.Get(m.conn.Device().NewCompletionQueue(buffers))
	for i := range m.again {
		m.again[i] = &edge.Work{Kind: edge.Receive, Local: m.bufs, LocalOff: p.to.Off(i % p.to.Slots),
			Len: p.to.Message, Queue: m.cq, Context: uint64(i)}
	}
	m.post(ctx, m.again)
	return m
}

// post posts buffers.
func (m *messenger) post(ctx context.Context, ws []*edge.Work) {
	kit.Get(m.conn.Post(ctx, ws...))
	m.posted += len(ws)
}

// receive takes what has come, and posts the buffers of messages again. It returns how many messages there were.
func (m *messenger) receive(ctx context.Context) (n int, ended bool) {
	k := kit.Get(m.cq.Wait(ctx, m.taken))
	m.posted -= k
	var again [64]*edge.Work
	for i := range m.taken[:k] {
		c := &m.taken[i]
		kit.Check(c.Err)
		if c.HasImm {
			ended = true
			continue
		}
		again[n] = m.again[c.Context]
		n++
	}
	m.post(ctx, again[:n]) // the peer that ends uses up all buffers, also those taken with its first end
	return n, ended
}

// drain waits until the peer has used up the buffers.
func (m *messenger) drain(ctx context.Context) {
	for m.posted > 0 {
		m.posted -= kit.Get(m.cq.Wait(ctx, m.taken))
	}
}

// end sends the messages that use up the peer's buffers.
func (m *messenger) end(ctx context.Context) {
	m.out.reapAll(ctx)
	var op edge.Op
	for range m.buffers {
		op = kit.Get(m.conn.Post(ctx, &edge.Work{Kind: edge.Send, Flags: edge.Notify, Imm: immEnd}))
	}
	kit.Check(op.Wait(ctx))
}

// sendPing is the client's side of a ping-pong by messages. Its latencies are round trips.
func (s *side) sendPing(ctx context.Context, p *setup) *outcome {
	out := &outcome{lat: report.NewRecorder(), post: report.NewRecorder(), scale: 0.5}
	m := s.messenger(ctx, p)
	m.out.every = 1 << 62
	start := mono.Now()
	stop, total := deadline(&p.spec, start), count(&p.spec)
	now := start
	for out.sent < total && now < stop {
		m.out.hit(ctx)
		m.receive(ctx)
		t := mono.Now()
		out.lat.Record(t.Sub(now))
		now = t
		out.sent++
	}
	out.elapsed = now.Sub(start)
	m.end(ctx)
	m.drain(ctx)
	s.confirm(ctx, out.sent)
	return out
}

// confirm tells the peer how much was sent, and waits until it has everything.
func (s *side) confirm(ctx context.Context, sent uint64) {
	s.ch.end(ctx, sent)
	(&receiver{ch: s.ch, wantAck: true}).run(ctx)
}

// sendPong is the server's side.
func (s *side) sendPong(ctx context.Context, p *setup) *outcome {
	out := &outcome{scale: 0.5}
	m := s.messenger(ctx, p)
	start := mono.Now()
	for {
		_, ended := m.receive(ctx)
		if ended {
			break
		}
		m.out.hit(ctx)
		out.sent++
	}
	out.elapsed = mono.Now().Sub(start)
	m.drain(ctx)
	m.end(ctx)
	(&receiver{ch: s.ch, wantEnd: true}).run(ctx)
	return out
}

// sendRate sends messages back to back; the server receives them.
func (s *side) sendRate(ctx context.Context, p *setup, client bool) *outcome {
	out := &outcome{scale: 1}
	m := s.messenger(ctx, p)
	start := mono.Now()
	if !client {
		for ended := false; !ended; {
			_, ended = m.receive(ctx)
		}
		m.drain(ctx)
		(&receiver{ch: s.ch, wantEnd: true}).run(ctx)
		out.elapsed = mono.Now().Sub(start)
		return out
	}
	m.out.progress = s.show
	out.lat, out.post = m.out.lat, m.out.post
	out.sent = m.out.run(ctx, count(&p.spec), deadline(&p.spec, start))
	out.elapsed, out.peak = mono.Now().Sub(start), m.out.peak.best
	m.end(ctx)
	s.confirm(ctx, out.sent)
	return out
}
