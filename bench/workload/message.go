package workload

import (
	"context"

	"multiedge/bench/pattern"
	"multiedge/bench/report"
	"multiedge/edge"
	"multiedge/internal/mono"
)

// Messages: the ping-pong and the rate of small operations by send and receive instead of by writes. Receivers keep
// buffers posted. A run ends with as many empty messages, marked as the end, as the peer has buffers posted, so that
// none is left for the next run.

// messenger is one end of such a run.
type messenger struct {
	*sender
	conn    *edge.Conn
	cq      *edge.CompletionQueue
	buffers int
	posted  int // receives that have not come back
	taken   []edge.Completion
	again   []edge.Work
	ops     []edge.Op
	bufs    *edge.Region
	layout  pattern.Layout
}

// messageBuffers is how many buffers the ends of a ping-pong post.
const messageBuffers = 16

func (s *side) messenger(p *setup) (*messenger, error) {
	spec := p.spec
	buffers := messageBuffers
	if spec.Test == report.SendLatency {
		spec.Depth, spec.Batch = pingPongOps, 1
	} else {
		buffers = spec.Depth
	}
	m := &messenger{conn: s.ch.conn, buffers: buffers, taken: make([]edge.Completion, 64), bufs: s.mem.target,
		layout: p.to, again: make([]edge.Work, buffers), ops: make([]edge.Op, buffers)}
	if s.mem.source != nil {
		m.sender = newSender(s.lanes[:1], edge.Work{Kind: edge.Send, Local: s.mem.source}, p.from, p.to, &spec)
	}
	if m.bufs == nil {
		return m, nil
	}
	var err error
	if m.cq, err = m.conn.Device().NewCompletionQueue(buffers); err != nil {
		return nil, err
	}
	for i := range m.again {
		m.again[i] = edge.Work{Kind: edge.Receive, Local: m.bufs, LocalOff: p.to.Off(i % p.to.Slots), Len: p.to.Message,
			Queue: m.cq, Context: uint64(i)}
	}
	return m, m.post(m.again)
}

// post posts buffers.
func (m *messenger) post(ws []edge.Work) error {
	n, err := m.conn.PostBatch(ws, m.ops)
	m.posted += n
	return err
}

// receive takes what has come, and posts the buffers of messages again. It returns how many messages there were.
func (m *messenger) receive(ctx context.Context) (n int, ended bool, err error) {
	k, err := m.cq.Wait(ctx, m.taken)
	if err != nil {
		return 0, false, err
	}
	m.posted -= k
	var again [64]edge.Work
	for i := range m.taken[:k] {
		c := &m.taken[i]
		if c.Err != nil {
			return n, ended, c.Err
		}
		if c.HasImm {
			ended = true
			continue
		}
		again[n] = m.again[c.Context]
		n++
	}
	return n, ended, m.post(again[:n]) // the peer that ends uses up all buffers, also those taken with its first end
}

// drain waits until the peer has used up the buffers.
func (m *messenger) drain(ctx context.Context) error {
	for m.posted > 0 {
		k, err := m.cq.Wait(ctx, m.taken)
		if err != nil {
			return err
		}
		m.posted -= k
	}
	return nil
}

// end sends the messages that use up the peer's buffers.
func (m *messenger) end(ctx context.Context) error {
	if err := m.reapAll(ctx); err != nil {
		return err
	}
	var op edge.Op
	for range m.buffers {
		var err error
		if op, err = m.conn.PostWait(ctx, &edge.Work{Kind: edge.Send, Flags: edge.Notify, Imm: immEnd}); err != nil {
			return err
		}
	}
	return op.Wait(ctx)
}

// sendPing is the client's side of a ping-pong by messages. Its latencies are round trips.
func (s *side) sendPing(ctx context.Context, p *setup) (*outcome, error) {
	out := &outcome{lat: report.NewRecorder(), post: report.NewRecorder(), scale: 0.5}
	m, err := s.messenger(p)
	if err != nil {
		return out, err
	}
	m.every = 1 << 62
	start := mono.Now()
	stop, total := deadline(&p.spec, start), count(&p.spec)
	now := start
	for out.sent < total && now < stop {
		if err := m.hit(ctx); err != nil {
			return out, err
		}
		if _, _, err := m.receive(ctx); err != nil {
			return out, err
		}
		t := mono.Now()
		out.lat.Record(t.Sub(now))
		now = t
		out.sent++
	}
	out.elapsed = now.Sub(start)
	if err := m.end(ctx); err != nil {
		return out, err
	}
	if err := m.drain(ctx); err != nil {
		return out, err
	}
	return out, s.confirm(ctx, out.sent)
}

// confirm tells the peer how much was sent, and waits until it has everything.
func (s *side) confirm(ctx context.Context, sent uint64) error {
	if err := s.ch.end(ctx, sent); err != nil {
		return err
	}
	return (&receiver{ch: s.ch, wantAck: true}).run(ctx)
}

// sendPong is the server's side.
func (s *side) sendPong(ctx context.Context, p *setup) (*outcome, error) {
	out := &outcome{scale: 0.5}
	m, err := s.messenger(p)
	if err != nil {
		return out, err
	}
	start := mono.Now()
	for {
		_, ended, err := m.receive(ctx)
		if err != nil {
			return out, err
		}
		if ended {
			break
		}
		if err := m.hit(ctx); err != nil {
			return out, err
		}
		out.sent++
	}
	out.elapsed = mono.Now().Sub(start)
	if err := m.drain(ctx); err != nil {
		return out, err
	}
	if err := m.end(ctx); err != nil {
		return out, err
	}
	return out, (&receiver{ch: s.ch, wantEnd: true}).run(ctx)
}

// sendRate sends messages back to back; the server receives them.
func (s *side) sendRate(ctx context.Context, p *setup, client bool) (*outcome, error) {
	out := &outcome{scale: 1}
	m, err := s.messenger(p)
	if err != nil {
		return out, err
	}
	start := mono.Now()
	if !client {
		for ended := false; !ended; {
			if _, ended, err = m.receive(ctx); err != nil {
				return out, err
			}
		}
		if err := m.drain(ctx); err != nil {
			return out, err
		}
		err := (&receiver{ch: s.ch, wantEnd: true}).run(ctx)
		out.elapsed = mono.Now().Sub(start)
		return out, err
	}
	m.progress = s.show
	out.lat, out.post = m.lat, m.sender.post
	if out.sent, err = m.run(ctx, count(&p.spec), deadline(&p.spec, start)); err != nil {
		return out, err
	}
	out.elapsed, out.peak = mono.Now().Sub(start), m.peak.best
	if err := m.end(ctx); err != nil {
		return out, err
	}
	return out, s.confirm(ctx, out.sent)
}
