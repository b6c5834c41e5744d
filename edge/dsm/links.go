package dsm

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"multiedge/edge"
	"multiedge/edge/atomics"
)

// links is the transport over package edge: a connection to each other rank, by which each exports both its regions to
// the other. One goroutine uses it; a further one for each connection waits for its end.
type links struct {
	ctx   context.Context // ends, with the cause, when a rank is lost
	end   context.CancelCauseFunc
	rank  int
	dev   *edge.Device
	mine  bool // dev was opened here
	lay   layout
	areas [2]*edge.Region // by area
	conns []*edge.Conn    // by rank; nil: this one
	there [][2]*edge.RemoteRegion
	queue *edge.CompletionQueue // of the notifications of all connections
	ops   []posted
	last  posted // atomic
	work  edge.Work
	note  [1]edge.Completion
}

// posted is an operation in flight.
type posted struct {
	op   edge.Op
	rank int
}

// mostPosted bounds the operations that are waited for at once.
const mostPosted = 1024

func (l *links) memory() (data_, control_ []byte) {
	return l.areas[data].Bytes(), l.areas[control].Bytes()
}

func (l *links) post(rank int, o order) {
	if rank == l.rank {
		perform(l.areas[o.area].Bytes(), &o)
		return
	}
	if len(l.ops) == mostPosted {
		l.wait()
	}
	w := &l.work
	*w = edge.Work{Local: l.areas[o.area], LocalOff: o.here, Len: o.n, Remote: l.there[rank][o.area],
		RemoteOff: o.there}
	switch o.verb {
	case read:
		w.Kind = edge.Read
	case write:
		w.Kind = edge.Write
	default:
		w.Kind, w.Len, w.Local, w.LocalOff = edge.Atomic, 8, nil, 0
		w.Func, w.Operand, w.Compare, w.Result = atomics.Swap, o.operand, 0, o.was
		if o.verb == compareSwap {
			w.Func, w.Compare = atomics.CompareSwap, o.compare
		}
	}
	if o.fenced {
		w.Flags |= edge.BackwardFence
	}
	if o.note != 0 {
		w.Flags |= edge.Notify
		w.Imm = o.note
	}
	op, err := l.conns[rank].Post(l.ctx, w)
	l.check(rank, err)
	l.ops = append(l.ops, posted{op, rank})
	if w.Kind == edge.Atomic {
		l.last = posted{op, rank}
	}
}

func (l *links) wait() {
	for i := range l.ops {
		p := &l.ops[i]
		l.check(p.rank, p.op.Wait(l.ctx))
	}
	l.ops = l.ops[:0]
}

func (l *links) answer() { l.check(l.last.rank, l.last.op.Wait(l.ctx)) }

func (l *links) next(wait bool) (rank int, note uint32, ok bool) {
	n := l.queue.Poll(l.note[:])
	if n == 0 {
		if !wait {
			return 0, 0, false
		}
		_, err := l.queue.Wait(l.ctx, l.note[:])
		l.check(-1, err)
	}
	c := &l.note[0]
	for rank := range l.conns {
		if l.conns[rank] == c.Conn {
			return rank, c.Imm, true
		}
	}
	panic("BUG: dsm: a notification of no connection")
}

// check fails if an operation on the memory of a rank, or waiting for any (-1), did. What a rank that failed said
// about it is the best cause, then what was seen to end.
func (l *links) check(rank int, err error) {
	if err == nil {
		return
	}
	l.heedEnding()
	if cause := context.Cause(l.ctx); cause != nil {
		fail(cause)
	}
	fail(l.cause(rank, err))
}

// cause is why an operation on the memory of a rank failed, or waiting for any (-1), or why its connection ended.
func (l *links) cause(rank int, err error) error {
	if rank < 0 || errors.Is(err, edge.ErrDaemonDown) || errors.Is(err, net.ErrClosed) { // it is not the other rank's
		return fmt.Errorf("dsm: rank %d: %w", l.rank, err)
	}
	return &lost{rank, l.conns[rank].Peer(), err}
}

// heedEnding fails with the last words of another rank if there are any.
func (l *links) heedEnding() {
	for l.queue.Poll(l.note[:]) > 0 {
		c := &l.note[0]
		for rank := range l.conns {
			if l.conns[rank] == c.Conn && c.Imm&^noteNumber == noteEnding {
				fail(&told{lastWords(l.areas[control].Bytes(), l.lay.ending, rank)})
			}
		}
	}
}

// watch ends the run when a connection ends otherwise than in good order: a rank closes its connections once all
// ranks are at the end of their functions.
func (l *links) watch(rank int) {
	c := l.conns[rank]
	_, err := c.Import(l.ctx, "dsm: never exported") // returns when the connection ends
	if l.ctx.Err() == nil && !errors.Is(err, edge.ErrPeerClosed) {
		l.end(l.cause(rank, err))
	}
}

// farewell bounds how long a rank that fails tries to say why, parting how long one that ends waits for the others.
const (
	farewell = 2 * time.Second
	parting  = 20 * time.Second
)

// leave ends all connections: in good order if err is nil, otherwise after telling the others why. A daemon that is
// stopped takes nothing, so leave does not wait for ever: what is left goes on by itself.
func (l *links) leave(err error) {
	within := parting
	if err != nil {
		within = farewell
	}
	ctx, cancel := context.WithTimeout(context.Background(), within)
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		defer cancel()
		l.disconnect(ctx, err)
		l.end(nil)
		l.release()
	}()
	select {
	case <-gone:
	case <-time.After(within + farewell): // room for what follows when ctx ends
		l.end(nil)
	}
}

// disconnect ends the connections, by closing them all at once while ctx lasts, or by telling why and aborting them.
func (l *links) disconnect(ctx context.Context, err error) {
	if err != nil {
		l.tell(ctx, err)
	}
	var ends sync.WaitGroup
	for _, c := range l.conns {
		switch {
		case c == nil:
		case err != nil:
			ends.Go(func() { _ = c.Abort() }) // it may have ended
		default:
			ends.Go(func() { _ = c.CloseContext(ctx) }) // likewise: nobody needs it any more
		}
	}
	ends.Wait()
}

// release gives back what join took besides connections, which are ended.
func (l *links) release() {
	if l.mine {
		_ = l.dev.Close()
		return
	}
	for _, r := range l.areas {
		if r != nil {
			_ = r.Close() // nothing is in flight
		}
	}
}

// tell writes the last words of this rank to all others that can be reached, unless it has them from another.
func (l *links) tell(ctx context.Context, err error) {
	var from *told
	if l.areas[control] == nil || errors.As(err, &from) {
		return
	}
	text := err.Error()
	if !errors.Is(err, ErrRank) {
		text = fmt.Sprintf("dsm: rank %d on %s failed: %s", l.rank, l.dev.Name(), text)
	}
	var words [16 + maxText]byte
	n := copy(words[16:], text)
	binary.NativeEndian.PutUint64(words[:], uint64(n))
	at := l.lay.ending + (16+maxText)*l.rank // the same here and at the others
	if _, err := l.areas[control].WriteAt(words[:], int64(at)); err != nil {
		return // the program has closed the Device
	}
	var ops []edge.Op
	for rank, c := range l.conns {
		if c == nil || c.Err() != nil || l.there[rank][control] == nil {
			continue
		}
		op, err := c.Post(edge.NoWait, &edge.Work{Kind: edge.Write, Flags: edge.Notify, Imm: noteEnding,
			Len: 16 + maxText, Local: l.areas[control], LocalOff: at, Remote: l.there[rank][control], RemoteOff: at})
		if err == nil {
			ops = append(ops, op)
		}
	}
	_ = edge.WaitAll(ctx, ops) // whoever does not hear it sees the connection end
}
