package faults

import (
	"context"
	"errors"
	"hash/fnv"
	"math/rand/v2"
	"sync"
	"time"

	"multiedge/bench/kit"
	"multiedge/bench/pattern"
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

// correspond makes the mailbox take the messages of a connection. It ends by kit.Check if it cannot, as what it calls.
func (s *server) correspond(ctx context.Context, t *target, g *greeting) {
	a := t.on
	t.letters = &correspondence{script: newScript(g.Seed, g.ID)}
	m := a.box
	if g.Shared && m != nil && kit.Try(func() { m.serve(ctx, a.queue, t) }) != nil {
		m = nil // the queue went with its daemon
	}
	if m == nil || !g.Shared {
		m = s.newMailbox(ctx, a, g)
		m.post = t.conn.Post
		err := kit.Try(func() {
			if g.Shared {
				s.share(ctx, m, t)
			} else {
				m.by[t.conn], t.region, t.memory = t, m.region, m.region.Bytes()
			}
		})
		if err != nil {
			kit.Check(errors.Join(err, m.region.Close()))
		}
	}
	wanted := s.keep(t)
	m.open(ctx, t)
	if !wanted {
		go t.conn.Abort()
	}
}

// share makes a queue that connections share. The connection of t is its first.
func (s *server) share(ctx context.Context, m *mailbox, t *target) {
	q := kit.Get(m.dev.NewReceiveQueue(ctx))
	m.post, t.on.box, t.on.queue = q.Post, m, q
	m.serve(ctx, q, t)
}

// serve makes a connection take its buffers from the queue of the mailbox.
func (m *mailbox) serve(ctx context.Context, q *edge.ReceiveQueue, t *target) {
	m.mu.Lock()
	m.by[t.conn] = t // messages of the connection may come before the answer
	m.mu.Unlock()
	if err := q.Serve(ctx, t.conn); err != nil {
		m.mu.Lock()
		delete(m.by, t.conn)
		m.mu.Unlock()
		kit.Check(err)
	}
}

func (s *server) newMailbox(ctx context.Context, a *attachment, g *greeting) *mailbox {
	m := &mailbox{s: s, dev: a.dev, shared: g.Shared, by: map[*edge.Conn]*target{},
		clean: newOracle(g.Seed, g.Size).bytes}
	m.slots, _ = kit.Get2(divide(MixMessages, g.Buffers))
	m.cq = kit.Get(a.dev.NewCompletionQueue(len(m.slots)))
	m.region = kit.Get(a.dev.RegisterContext(ctx, g.Size))
	copy(m.region.Bytes(), m.clean)
	return m
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

// An oracle cannot keep messages as it keeps memory. The connection's name and a message's number determine its length
// and bytes, which both ends can make. A claim says how many messages there were.

// longestMessage is several frames.
const longestMessage = 20000

// script is the messages of one connection.
type script struct {
	seed uint64
	src  *pattern.Source
}

func newScript(seed uint64, connection string) script {
	h := fnv.New64a()
	h.Write([]byte(connection))
	seed ^= h.Sum64()
	return script{seed, pattern.New(seed)}
}

// length returns the length of message n: zero, a few bytes that fit an entry of the ring, or up to several frames.
func (s *script) length(n uint32) int {
	r := rand.New(rand.NewPCG(s.seed, uint64(n)))
	switch p := r.IntN(10); {
	case p == 0:
		return 0
	case p < 4:
		return 1 + r.IntN(edge.MaxInline)
	case p < 7:
		return 1 + r.IntN(1000)
	}
	return 1 + r.IntN(longestMessage)
}

// id names the bytes of message n.
func (s *script) id(n uint32) uint64 { return 1 + uint64(n) }

// talker sends the messages of a lane. It keeps at least twice as many in flight as there are buffers; the others wait.
type talker struct {
	l      *lane
	script script
	rng    *rand.Rand
	flying []flying // ring, by the number of the message
	oldest uint32
	next   uint32
}

// flying is a send whose end has not been seen.
type flying struct {
	op     edge.Op
	start  time.Time
	bytes  int
	number uint64 // in the tally
}

func (l *lane) talk(ctx context.Context) {
	seed := l.c.w.job.Seed
	t := &talker{l: l, script: newScript(seed, l.claim.ID), rng: rand.New(rand.NewPCG(seed, 4)),
		flying: make([]flying, 2*l.c.w.job.Depth)}
	for ctx.Err() == nil && !l.broken.Load() {
		if int(t.next-t.oldest) == len(t.flying) {
			t.end()
		} else if t.send(ctx) != nil {
			break
		}
	}
	for t.oldest != t.next {
		t.end()
	}
}

// send posts the next message: from one place, from two, or inline.
func (t *talker) send(ctx context.Context) error {
	n, local := t.script.length(t.next), t.l.local
	at := int(t.next) % len(t.flying)
	off := at * longestMessage
	text := local.Bytes()[off : off+n]
	t.script.src.Fill(text, t.script.id(t.next))
	w := edge.Work{Kind: edge.Send, Flags: edge.Notify, Imm: t.next}
	switch {
	case n == 0:
	case n <= edge.MaxInline && t.rng.IntN(2) == 0:
		w.Inline = text
	case n > 2 && t.rng.IntN(3) == 0:
		first := 1 + t.rng.IntN(n-1)
		w.Pieces = []edge.Piece{{Region: local, Off: off, Len: first},
			{Region: local, Off: off + first, Len: n - first}}
	default:
		w.Local, w.LocalOff, w.Len = local, off, n
	}
	switch t.rng.IntN(30) {
	case 0:
		w.Flags |= edge.BackwardFence
	case 1:
		w.Flags |= edge.ForwardFence
	}
	start := time.Now()
	op, err := t.l.conn.Post(ctx, &w)
	if err != nil {
		return err // nothing was started
	}
	t.flying[at] = flying{op, start, n, t.l.c.tally.begins(start)}
	t.next++
	t.l.claim.Sent = t.next
	return nil
}

// end waits for the end of the oldest send.
func (t *talker) end() {
	f := &t.flying[int(t.oldest)%len(t.flying)]
	err, late := t.l.await(f.op, f.start)
	t.l.c.tally.ends(f.number, f.bytes, err, late)
	t.oldest++
	if err == nil {
		t.l.claim.Arrived = t.oldest
	} else {
		t.l.broken.Store(true)
	}
}
