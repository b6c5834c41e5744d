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

// A receiver that stands still has posted a few buffers and posts no more. Both ends are in this process.
const (
	standSends = 24
	standFew   = 3 // buffers that there are
	standOps   = 100
)

// standing is a connection over which more is sent than there are buffers for.
type standing struct {
	script         script
	from, to       *edge.Conn
	out, in        *edge.Region // what is sent and read; buffers, the word and the memory
	remote         *edge.RemoteRegion
	cq             *edge.CompletionQueue
	ops            []edge.Op
	posted, next   int // buffers
	compared       uint64
	listener       *edge.Listener
	sender, taking *edge.Device
}

// standArea is exported besides the buffers.
const standArea = 4096

// standUp connects host 0 to host 1.
func (t *Trial) standUp(ctx context.Context) (s *standing, err error) {
	s = &standing{script: newScript(t.seed, "standing")}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	if s.sender, err = edge.Open(ctx, edge.Config{Socket: t.cluster.Socket(0)}); err != nil {
		return s, err
	}
	if s.taking, err = edge.Open(ctx, edge.Config{Socket: t.cluster.Socket(1)}); err != nil {
		return s, err
	}
	if s.listener, err = s.taking.Listen(ctx, "standing"); err != nil {
		return s, err
	}
	dialled := make(chan error, 1)
	go func() {
		var err error
		s.from, err = s.sender.Dial(ctx, "host1", "standing")
		dialled <- err
	}()
	s.to, err = s.listener.Accept(ctx)
	if err = errors.Join(err, <-dialled); err != nil {
		return s, err
	}
	size := standSends * longestMessage
	if s.out, err = s.sender.RegisterContext(ctx, size+2*standArea); err != nil {
		return s, err
	}
	if s.in, err = s.taking.RegisterContext(ctx, standArea+size); err != nil {
		return s, err
	}
	if s.cq, err = s.taking.NewCompletionQueue(standSends); err != nil {
		return s, err
	}
	const all = edge.RemoteRead | edge.RemoteWrite | edge.RemoteAtomic
	if _, err = s.in.Export(s.to, exportName, all, 0, standArea); err != nil {
		return s, err
	}
	s.remote, err = s.from.Import(ctx, exportName)
	return s, err
}

func (s *standing) close() {
	for _, d := range []*edge.Device{s.sender, s.taking} {
		if d != nil {
			d.Close()
		}
	}
}

// buffers posts so many more.
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

// take waits for messages until so many have come in all, and holds them against the script.
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

// sent is how many sends have ended.
func (s *standing) sent() (n int) {
	for _, op := range s.ops {
		if op.Done() {
			n++
		}
	}
	return n
}

// waiting is how many operations of the connection have no number yet, by its daemon's account.
func (s *standing) waiting(ctx context.Context, t *Trial) (n int, err error) {
	all, err := fetch[[]inspect.ConnStatus](ctx, t.cluster.Socket(0), "conn")
	for _, c := range all {
		if c.Service == "standing" {
			n += c.Waiting
		}
	}
	return n, err
}

// passBy has writes, reads and atomics of the same connection done.
func (s *standing) passBy(ctx context.Context) error {
	mem := s.out.Bytes()[standSends*longestMessage:]
	area := standArea - 8 // the last word is counted in
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

// receiverStands sends more than there are buffers for, and posts the others later.
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
	t.check("messages for which there are buffers come", err == nil, "%v", err)
	t.injected("sends without a buffer", standSends-standFew)
	err = s.passBy(within)
	t.check("reads, writes and atomics pass by", err == nil, "%v", err)
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
	t.check("who is impatient is told", errors.Is(err, edge.ErrNoBuffer), "%v", err)
	ended := s.sent()
	t.check("sends without a buffer wait", ended == standFew, "%d of %d have ended", ended, standSends)
	err = s.buffers(standSends - standFew)
	if err == nil {
		err = errors.Join(s.take(within, standSends), edge.WaitAll(within, s.ops))
	}
	t.check("with buffers all come", err == nil, "%v", err)
	t.counted("messages", uint64(s.next))
	t.row.Counted[bytesCompared] += s.compared
	return nil
}
