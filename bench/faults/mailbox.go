package faults

import (
	"context"
	"errors"
	"sync"
	"time"

	"multiedge/edge"
)

// mailbox is the buffers for messages of one connection, or of all connections that share a queue. Its goroutine
// compares each message with what the sender must have sent next, and posts the buffer again.
type mailbox struct {
	s      *server
	dev    *edge.Device
	region *edge.Region
	slots  []slot
	clean  []byte // what the region holds where no message is
	cq     *edge.CompletionQueue
	post   func(context.Context, ...*edge.Work) (edge.Op, error)
	shared bool

	mu    sync.Mutex // guards the rest
	by    map[*edge.Conn]*target
	ended []*target          // connections that have ended; their last messages may still wait
	look  context.CancelFunc // ends the wait for messages
	out   int                // buffers that are posted
}

// correspondence is the state of a target that receives messages instead of writes.
type correspondence struct {
	script script
	next   uint32 // number of the message that must come next; guarded by the mailbox until over is closed
	bytes  int
}

// correspond makes the mailbox take the messages of a connection.
func (s *server) correspond(ctx context.Context, t *target, g *greeting) error {
	a := t.on
	t.letters = &correspondence{script: newScript(g.Seed, g.ID)}
	m, err := a.box, error(nil)
	if g.Shared && m != nil && m.serve(ctx, a.queue, t) != nil {
		m = nil // the queue went with its daemon
	}
	if m == nil || !g.Shared {
		if m, err = s.newMailbox(ctx, a, g); err != nil {
			return err
		}
		m.post = t.conn.Post
		if g.Shared {
			err = s.share(ctx, m, t)
		} else {
			m.by[t.conn], t.region, t.memory = t, m.region, m.region.Bytes()
		}
		if err != nil {
			return errors.Join(err, m.region.Close())
		}
	}
	wanted := s.keep(t)
	m.open(ctx, t)
	if !wanted {
		go t.conn.Abort()
	}
	return nil
}

// share makes a queue that connections share. The connection of t is its first.
func (s *server) share(ctx context.Context, m *mailbox, t *target) error {
	q, err := m.dev.NewReceiveQueue(ctx)
	if err != nil {
		return err
	}
	m.post, t.on.box, t.on.queue = q.Post, m, q
	return m.serve(ctx, q, t)
}

// serve makes a connection take its buffers from the queue of the mailbox.
func (m *mailbox) serve(ctx context.Context, q *edge.ReceiveQueue, t *target) error {
	m.mu.Lock()
	m.by[t.conn] = t // messages of the connection may come before the answer
	m.mu.Unlock()
	err := q.Serve(ctx, t.conn)
	if err != nil {
		m.mu.Lock()
		delete(m.by, t.conn)
		m.mu.Unlock()
	}
	return err
}

func (s *server) newMailbox(ctx context.Context, a *attachment, g *greeting) (*mailbox, error) {
	m := &mailbox{s: s, dev: a.dev, shared: g.Shared, by: map[*edge.Conn]*target{},
		clean: newOracle(g.Seed, g.Size).bytes}
	var err error
	if m.slots, _, err = divide(MixMessages, g.Buffers); err != nil {
		return nil, err
	}
	if m.cq, err = a.dev.NewCompletionQueue(len(m.slots)); err != nil {
		return nil, err
	}
	if m.region, err = a.dev.RegisterContext(ctx, g.Size); err == nil {
		copy(m.region.Bytes(), m.clean)
	}
	return m, err
}

// open lets messages of a connection be taken from now on.
func (m *mailbox) open(ctx context.Context, t *target) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.look == nil { // its first
		m.look = func() {}
		for i := range m.slots {
			m.repost(uint64(i))
		}
		go m.run(ctx)
	}
	go m.follow(ctx, t)
}

// repost posts a buffer, as long as somebody may fill it. The caller holds mu.
func (m *mailbox) repost(i uint64) {
	b := m.slots[i]
	_, err := m.post(context.Background(), &edge.Work{Kind: edge.Receive, Local: m.region, LocalOff: b.off, Len: b.size,
		Queue: m.cq, Context: i})
	if err == nil { // else the connection has ended, or the daemon went away
		m.out++
	}
}

// follow notices the end of a connection.
func (m *mailbox) follow(ctx context.Context, t *target) {
	for t.why == nil {
		if _, t.why = t.conn.WaitNotify(ctx); t.why == nil {
			m.s.wrong(t, "a message was reported as a notification")
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ended = append(m.ended, t)
	m.look()
}

// run takes messages until no connection is left and none can come.
func (m *mailbox) run(ctx context.Context) {
	done := make([]edge.Completion, len(m.slots))
	for over := false; !over; {
		round, stop := context.WithCancel(ctx)
		m.mu.Lock()
		m.look = stop
		news := len(m.ended) > 0
		m.mu.Unlock()
		n := 0
		if !news {
			n, _ = m.cq.Wait(round, done)
		}
		stop()
		m.take(done[:n])
		if n == 0 {
			over = m.finish(ctx, done)
		}
		if n == 0 && !over && (ctx.Err() != nil || m.dev.Err() != nil) {
			time.Sleep(time.Millisecond) // the ends of the connections follow
		}
	}
}

// take judges the completions.
func (m *mailbox) take(done []edge.Completion) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range done {
		m.out--
		m.judge(&done[i])
	}
}

// judge compares a buffer that came back with the message that is due, and posts it again. If it came back without a
// message, each of its bytes may have been written.
func (m *mailbox) judge(c *edge.Completion) {
	b, t := m.slots[c.Context], m.by[c.Conn]
	got := m.region.Bytes()
	used := b.size
	switch {
	case c.Err != nil:
		if _, ok := typeOf(c.Err); !ok {
			m.s.wrong(t, "a buffer came back with an untyped error: %v", c.Err)
		}
	case t == nil:
		m.s.wrong(t, "a message arrived on an unknown connection")
	default:
		used = c.Len
		t.letters.judge(m.s, t, c, got[b.off:b.off+used])
	}
	for _, r := range []slot{{b.off - gap, gap}, {b.off + used, b.size - used + gap}} {
		if string(got[r.off:r.off+r.size]) != string(m.clean[r.off:r.off+r.size]) {
			m.s.wrong(t, "bytes beside a message of %d were written", c.Len)
		}
	}
	copy(got[b.off:b.off+b.size], m.clean[b.off:])
	if c.Err == nil || m.shared {
		m.repost(c.Context)
	}
}

// judge compares a message with the one that must come next.
func (l *correspondence) judge(s *server, t *target, c *edge.Completion, got []byte) {
	due := l.next
	l.next++
	l.bytes += len(got)
	if n := l.script.length(due); !c.HasImm || c.Imm != due || len(got) != n {
		s.wrong(t, "message %d of %d bytes is due, %d of %d came", due, n, c.Imm, len(got))
	} else if wrong, first := l.script.src.Mismatch(got, l.script.id(due)); wrong > 0 {
		s.wrong(t, "message %d has %d wrong bytes, the first at %d", due, wrong, first)
	}
}

// finish releases connections that have ended, once all their messages are taken. It reports whether the mailbox is
// done.
func (m *mailbox) finish(ctx context.Context, done []edge.Completion) bool {
	m.mu.Lock()
	ended := m.ended
	m.ended = nil
	m.mu.Unlock()
	for n := m.cq.Poll(done); n > 0; n = m.cq.Poll(done) {
		m.take(done[:n])
	}
	for _, t := range ended {
		m.end(ctx, t, done)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.by) == 0 && (ctx.Err() != nil || m.dev.Err() != nil || len(ended) > 0 && !m.shared)
}

// end ends one connection. Buffers that were still posted come back, too.
func (m *mailbox) end(ctx context.Context, t *target, done []edge.Completion) {
	within, stop := context.WithTimeout(ctx, deadTime)
	defer stop()
	for !m.shared && m.posted() > 0 && within.Err() == nil {
		n, _ := m.cq.Wait(within, done)
		m.take(done[:n])
	}
	if n := m.posted(); !m.shared && n > 0 && ctx.Err() == nil {
		m.s.wrong(t, "%d buffers did not come back when their connection had ended", n)
	}
	m.mu.Lock()
	delete(m.by, t.conn)
	m.mu.Unlock()
	m.s.ended(t)
}

func (m *mailbox) posted() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.out
}

// counts compares the number of messages that arrived with a claim. If this side's daemon was killed, messages that it
// had not handed over are lost with it.
func (l *correspondence) counts(out *Checked, c *Claim, crashed bool) {
	out.Bytes += l.bytes
	switch {
	case l.next > c.Sent:
		out.Notes++
		out.say("%d messages came, %d were sent", l.next, c.Sent)
	case l.next < c.Arrived && crashed:
		out.Crashed += int(c.Arrived - l.next)
	case l.next < c.Arrived:
		out.Notes++
		out.say("%d messages came, %d have arrived, the sender was told", l.next, c.Arrived)
	}
}
