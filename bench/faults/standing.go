package faults

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"multiedge/edge"
	"multiedge/internal/inspect"
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

// join makes such a connection, of a service. After an error, too, it is to be closed.
func (t *Trial) join(ctx context.Context, service string) (j joined, err error) {
	if j.near, err = edge.Open(ctx, edge.Config{Socket: t.cluster.Socket(0)}); err != nil {
		return j, err
	}
	if j.far, err = edge.Open(ctx, edge.Config{Socket: t.cluster.Socket(1)}); err != nil {
		return j, err
	}
	l, err := j.far.Listen(ctx, service)
	if err != nil {
		return j, err
	}
	dialled := make(chan error, 1)
	go func() {
		var err error
		j.from, err = j.near.Dial(ctx, "host1", service)
		dialled <- err
	}()
	j.to, err = l.Accept(ctx)
	return j, errors.Join(err, <-dialled)
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
func (t *Trial) standUp(ctx context.Context) (s *standing, err error) {
	s = &standing{script: newScript(t.seed, "standing")}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	if s.joined, err = t.join(ctx, "standing"); err != nil {
		return s, err
	}
	size := standSends * longestMessage
	if s.out, err = s.near.RegisterContext(ctx, size+2*standArea); err != nil {
		return s, err
	}
	if s.in, err = s.far.RegisterContext(ctx, standArea+size); err != nil {
		return s, err
	}
	if s.cq, err = s.far.NewCompletionQueue(standSends); err != nil {
		return s, err
	}
	const all = edge.RemoteRead | edge.RemoteWrite | edge.RemoteAtomic
	if _, err = s.in.Export(s.to, exportName, all, 0, standArea); err != nil {
		return s, err
	}
	s.remote, err = s.from.Import(ctx, exportName)
	return s, err
}

// buffers posts n more buffers.
func (s *standing) buffers(n int) error {
	for range n {
		_, err := s.to.Post(&edge.Work{Kind: edge.Receive, Local: s.in, LocalOff: standArea + s.posted*longestMessage,
			Len: longestMessage, Queue: s.cq})
		if err != nil {
			return err
		}
		s.posted++
	}
	return nil
}

// send posts all sends.
func (s *standing) send(ctx context.Context) error {
	for i := range uint32(standSends) {
		n, off := s.script.length(i), int(i)*longestMessage
		s.script.src.Fill(s.out.Bytes()[off:off+n], s.script.id(i))
		w := edge.Work{Kind: edge.Send, Flags: edge.Notify, Imm: i, Local: s.out, LocalOff: off, Len: n}
		op, err := s.from.PostWait(ctx, &w)
		if err != nil {
			return err
		}
		s.ops = append(s.ops, op)
	}
	return nil
}

// take waits until upTo messages have come in all, and compares each with the script.
func (s *standing) take(ctx context.Context, upTo int) error {
	var done [standSends]edge.Completion
	for s.next < upTo {
		n, err := s.cq.Wait(ctx, done[:])
		if err != nil {
			return err
		}
		for _, c := range done[:n] {
			due := uint32(s.next)
			at := standArea + s.next*longestMessage
			got := s.in.Bytes()[at : at+c.Len]
			wrong, _ := s.script.src.Mismatch(got, s.script.id(due))
			if c.Err != nil || c.Imm != due || c.Len != s.script.length(due) || wrong > 0 {
				return fmt.Errorf("message %d is due, %d came, of %d bytes, %d of them wrong: %w", due, c.Imm, c.Len,
					wrong, errors.Join(c.Err, errWrong))
			}
			s.next++
			s.compared += uint64(c.Len)
		}
	}
	return nil
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
func (s *standing) waiting(ctx context.Context, t *Trial) (n int, err error) {
	all, err := fetch[[]inspect.ConnStatus](ctx, t.cluster.Socket(0), "conn")
	for _, c := range all {
		if c.Service == "standing" {
			n += c.Waiting
		}
	}
	return n, err
}

// passBy completes writes, reads and atomics on the same connection.
func (s *standing) passBy(ctx context.Context) error {
	mem := s.out.Bytes()[standSends*longestMessage:]
	area := standArea - 8 // atomics count in the last word
	for i := range uint64(standOps) {
		s.script.src.Fill(mem[:area], 1<<32+i)
		for _, w := range []edge.Work{
			{Kind: edge.Write, Local: s.out, LocalOff: standSends * longestMessage, Len: area, Remote: s.remote},
			{Kind: edge.Read, Local: s.out, LocalOff: standSends*longestMessage + standArea, Len: area,
				Remote: s.remote},
		} {
			op, err := s.from.PostWait(ctx, &w)
			if err == nil {
				err = op.Wait(ctx)
			}
			if err != nil {
				return fmt.Errorf("operation %d: %w", w.Kind, err)
			}
		}
		was, err := s.remote.FetchAdd(ctx, area, 1)
		if err != nil || was != i {
			return fmt.Errorf("addition %d found %d: %w", i, was, errors.Join(err, errWrong))
		}
		if !bytes.Equal(mem[:area], mem[standArea:standArea+area]) || !bytes.Equal(mem[:area], s.in.Bytes()[:area]) {
			return fmt.Errorf("write %d: the read, or the memory, has other bytes: %w", i, errWrong)
		}
		s.compared += uint64(area)
	}
	return nil
}

// receiverStands sends more messages than there are buffers, and posts the missing buffers later.
func receiverStands(ctx context.Context, t *Trial) error {
	other, err := t.pair(ctx, MixMessages, talkConns, talkDepth)
	if err != nil {
		return err
	}
	s, err := t.standUp(ctx)
	if err != nil {
		return err
	}
	defer s.close()
	within, stop := context.WithTimeout(ctx, deadline(t.dead))
	defer stop()
	if err := errors.Join(s.buffers(standFew), s.send(within)); err != nil {
		return err
	}
	err = s.take(within, standFew)
	t.check("messages that have buffers arrive", err == nil, "%v", err)
	t.injected("sends without a buffer", standSends-standFew)
	err = s.passBy(within)
	t.check("reads, writes and atomics pass waiting sends", err == nil, "%v", err)
	if err := t.goesOn(ctx, other); err != nil {
		return err
	}
	waiting, err := s.waiting(ctx, t)
	if err != nil {
		return err
	}
	t.check("sends without a buffer take no place in a window", waiting == standSends-standFew,
		"%d of %d wait for buffers", waiting, standSends-standFew)
	impatient, err := s.from.Post(&edge.Work{Kind: edge.Send, Inline: []byte{1}, Patience: time.Millisecond})
	if err == nil {
		err = impatient.Wait(within)
	}
	t.check("a send without patience fails with no-buffer", errors.Is(err, edge.ErrNoBuffer), "%v", err)
	ended := s.sent()
	t.check("sends without a buffer wait", ended == standFew, "%d of %d have ended", ended, standSends)
	err = s.buffers(standSends - standFew)
	if err == nil {
		err = errors.Join(s.take(within, standSends), edge.WaitAll(within, s.ops))
	}
	t.check("once buffers are posted, all messages arrive", err == nil, "%v", err)
	t.counted("messages", uint64(s.next))
	t.row.Counted[bytesCompared] += s.compared
	return nil
}
