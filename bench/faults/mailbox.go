package faults

import (
	"context"
	"errors"
	"sync"
	"time"

	"multiedge/edge"
)

// mailbox is buffers for messages: of one connection, or of all that share a queue. Its goroutine holds what comes
// against what the sender must have sent next, and posts the buffer again.
type mailbox struct {
	s      *server
	dev    *edge.Device
	region *edge.Region
	slots  []slot
	clean  []byte // what the region holds where no message is
	cq     *edge.CompletionQueue
	post   func(*edge.Work) (edge.Op, error)
	shared bool

	mu    sync.Mutex // guards the rest
	by    map[*edge.Conn]*target
	ended []*target          // connections that have ended, whose last messages may wait to be taken
	look  context.CancelFunc // ends the wait for messages
	out   int                // buffers that are posted
}

// correspondence is what a target is where messages are sent to it and nothing is written.
type correspondence struct {
	script script
	next   uint32 // number of the message that must come next; guarded by the mailbox until over is closed
	bytes  int
}

// correspond has messages of a connection taken.
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

// share makes a queue for connections to share, of which that of t is the first.
func (s *server) share(ctx context.Context, m *mailbox, t *target) error {
	q, err := m.dev.NewReceiveQueue(ctx)
	if err != nil {
		return err
	}
	m.post, t.on.box, t.on.queue = q.Post, m, q
	return m.serve(ctx, q, t)
}

// serve has a connection take its buffers from the queue of the mailbox.
func (m *mailbox) serve(ctx context.Context, q *edge.ReceiveQueue, t *target) error {
	m.mu.Lock()
	m.by[t.conn] = t // its messages may come before the answer
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

// open has messages of a connection taken from now on.
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

// repost posts a buffer, as long as there is somebody who may fill it. The caller holds mu.
func (m *mailbox) repost(i uint64) {
	b := m.slots[i]
	for {
		_, err := m.post(&edge.Work{Kind: edge.Receive, Local: m.region, LocalOff: b.off, Len: b.size, Queue: m.cq,
			Context: i})
		if err == nil {
			m.out++
			return
		}
		if !errors.Is(err, edge.ErrAgain) {
			return // the connection has ended, or the daemon went away
		}
		time.Sleep(100 * time.Microsecond) // the daemon is about to take entries
	}
}

// follow notices the end of a connection.
func (m *mailbox) follow(ctx context.Context, t *target) {
	for t.why == nil {
		if _, t.why = t.conn.WaitNotify(ctx); t.why == nil {
			m.s.wrong(t, "a message is told as a notification")
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ended = append(m.ended, t)
	m.look()
}

// run takes messages until the connections that there can be have ended.
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

// take judges what came.
func (m *mailbox) take(done []edge.Completion) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range done {
		m.out--
		m.judge(&done[i])
	}
}

// judge holds a buffer that came back against the message that is due, and posts it again. Of one that came back
// without a message any byte may have been written.
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
		m.s.wrong(t, "a message came for no connection that there is")
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

// judge holds a message against what must come next.
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

// finish lets go of connections that have ended, when all that came on them is taken. It reports whether the mailbox is
// over.
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

// end is the end of one connection. What was posted when it had ended comes back, too.
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

// counts holds how many messages came against a claim. Where this side's daemon was killed it may have taken messages
// with it that were not handed over.
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
