package faults

import (
	"bytes"
	"context"
	"errors"
	"time"

	"multiedge/bench/kit"
	"multiedge/edge"
	"multiedge/edge/atomics"
)

// A stalled receiver has posted a few buffers and posts no more. Both ends are in this process.
const (
	standSends = 24
	standFew   = 3 // buffers posted at first
	standOps   = 100
)

// joined is a connection from host 0 to host 1 with both ends in this process.
type joined struct {
	near, far *edge.Device // of host 0 and of host 1
	from, to  *edge.Conn
}

// join makes such a connection, of a service.
func (t *Trial) join(service string) (j joined) {
	j.near = t.open(0)
	j.far = t.open(1)
	l := kit.Get(j.far.Listen(t.ctx, service))
	kit.Together(t.ctx, func(ctx context.Context) { j.from = kit.Get(j.near.Dial(ctx, "host1", service)) },
		func(ctx context.Context) { j.to = kit.Get(l.Accept(ctx)) })
	return j
}

func (j *joined) close() {
	for _, d := range []*edge.Device{j.near, j.far} {
		if d != nil {
			d.Close()
		}
	}
}

// standing is a connection with more sends than buffers.
type standing struct {
	joined
	script       script
	out, in      *edge.Region // what is sent and read; buffers, the word and the memory
	remote       *edge.RemoteRegion
	cq           *edge.CompletionQueue
	ops          []edge.Op
	posted, next int // buffers
	compared     uint64
}

// standArea is the size of the exported memory beside the buffers.
const standArea = 4096

// standUp connects host 0 to host 1.
func (t *Trial) standUp() *standing {
	s := &standing{script: newScript(t.seed, "standing")}
	s.joined = t.join("standing")
	size := standSends * longestMessage
	s.out = kit.Get(s.near.RegisterContext(t.ctx, size+2*standArea))
	s.in = kit.Get(s.far.RegisterContext(t.ctx, standArea+size))
	s.cq = kit.Get(s.far.NewCompletionQueue(standSends))
	const all = edge.RemoteRead | edge.RemoteWrite | edge.RemoteAtomic
	kit.Get(s.in.Export(s.to, exportName, all, 0, standArea))
	s.remote = kit.Get(s.from.Import(t.ctx, exportName))
	return s
}

// buffers posts n more buffers.
func (s *standing) buffers(ctx context.Context, n int) {
	for range n {
		kit.Get(s.to.Post(ctx, &edge.Work{Kind: edge.Receive, Local: s.in,
			LocalOff: standArea + s.posted*longestMessage, Len: longestMessage, Queue: s.cq}))
		s.posted++
	}
}

// send posts all sends.
func (s *standing) send(ctx context.Context) {
	for i := range uint32(standSends) {
		n, off := s.script.length(i), int(i)*longestMessage
		s.script.src.Fill(s.out.Bytes()[off:off+n], s.script.id(i))
		w := edge.Work{Kind: edge.Send, Flags: edge.Notify, Imm: i, Local: s.out, LocalOff: off, Len: n}
		s.ops = append(s.ops, kit.Get(s.from.Post(ctx, &w)))
	}
}

// take waits until upTo messages have come in all, and compares each with the script.
func (s *standing) take(ctx context.Context, upTo int) {
	var done [standSends]edge.Completion
	for s.next < upTo {
		n := kit.Get(s.cq.Wait(ctx, done[:]))
		for _, c := range done[:n] {
			due := uint32(s.next)
			at := standArea + s.next*longestMessage
			got := s.in.Bytes()[at : at+c.Len]
			wrong, _ := s.script.src.Mismatch(got, s.script.id(due))
			if c.Err != nil || c.Imm != due || c.Len != s.script.length(due) || wrong > 0 {
				kit.Fail("message %d is due, %d came, of %d bytes, %d of them wrong: %w", due, c.Imm, c.Len, wrong,
					errors.Join(c.Err, errWrong))
			}
			s.next++
			s.compared += uint64(c.Len)
		}
	}
}

var errWrong = errors.New("not what must come")

// sent returns how many sends have ended.
func (s *standing) sent() (n int) {
	for _, op := range s.ops {
		if op.Done() {
			n++
		}
	}
	return n
}

// waiting returns how many operations of the connection have no number yet, as its daemon counts.
func (s *standing) waiting(t *Trial) (n int) {
	for _, c := range t.conns(0) {
		if c.Service == "standing" {
			n += c.Waiting
		}
	}
	return n
}

// passBy completes writes, reads and atomics on the same connection.
func (s *standing) passBy(ctx context.Context) {
	mem := s.out.Bytes()[standSends*longestMessage:]
	area := standArea - 8 // atomics count in the last word
	for i := range uint64(standOps) {
		s.script.src.Fill(mem[:area], 1<<32+i)
		for _, w := range []edge.Work{
			{Kind: edge.Write, Local: s.out, LocalOff: standSends * longestMessage, Len: area, Remote: s.remote},
			{Kind: edge.Read, Local: s.out, LocalOff: standSends*longestMessage + standArea, Len: area,
				Remote: s.remote},
		} {
			kit.Doing(func() { kit.Do(ctx, s.from, &w) }, "operation %d", w.Kind)
		}
		was, err := atomics.Add(ctx, s.remote, area, 1)
		if err != nil || was != i {
			kit.Fail("addition %d found %d: %w", i, was, errors.Join(err, errWrong))
		}
		if !bytes.Equal(mem[:area], mem[standArea:standArea+area]) || !bytes.Equal(mem[:area], s.in.Bytes()[:area]) {
			kit.Fail("write %d: the read, or the memory, has other bytes: %w", i, errWrong)
		}
		s.compared += uint64(area)
	}
}

// receiverStands sends more messages than there are buffers, and posts the missing buffers later.
func receiverStands(t *Trial) {
	other := t.pair(MixMessages, talkConns, talkDepth)
	s := t.standUp()
	within, stop := context.WithTimeout(t.ctx, deadline(t.dead))
	defer stop()
	s.buffers(within, standFew)
	s.send(within)
	t.succeeds("messages that have buffers arrive", func() { s.take(within, standFew) })
	t.injected("sends without a buffer", standSends-standFew)
	t.succeeds("reads, writes and atomics pass waiting sends", func() { s.passBy(within) })
	t.goesOn(other)
	waiting := s.waiting(t)
	t.check("sends without a buffer take no place in a window", waiting == standSends-standFew,
		"%d of %d wait for buffers", waiting, standSends-standFew)
	err := kit.Try(func() {
		kit.Do(within, s.from, &edge.Work{Kind: edge.Send, Inline: []byte{1}, Patience: time.Millisecond})
	})
	t.check("a send without patience fails with no-buffer", errors.Is(err, edge.ErrNoBuffer), "%v", err)
	ended := s.sent()
	t.check("sends without a buffer wait", ended == standFew, "%d of %d have ended", ended, standSends)
	t.succeeds("once buffers are posted, all messages arrive", func() {
		s.buffers(within, standSends-standFew)
		s.take(within, standSends)
		kit.Check(edge.WaitAll(within, s.ops))
	})
	t.counted("messages", uint64(s.next))
	t.row.Counted[bytesCompared] += s.compared
}
