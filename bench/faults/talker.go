package faults

import (
	"context"
	"hash/fnv"
	"math/rand/v2"
	"time"

	"multiedge/bench/pattern"
	"multiedge/edge"
)

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
	op    edge.Op
	start time.Time
	bytes int
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
	t.l.c.tally.begins()
	t.flying[at] = flying{op, start, n}
	t.next++
	t.l.claim.Sent = t.next
	return nil
}

// end waits for the end of the oldest send.
func (t *talker) end() {
	f := &t.flying[int(t.oldest)%len(t.flying)]
	err, late := t.l.await(f.op, f.start)
	t.l.c.tally.ends(time.Since(f.start), f.bytes, err, late)
	t.oldest++
	if err == nil {
		t.l.claim.Arrived = t.oldest
	} else {
		t.l.broken.Store(true)
	}
}
