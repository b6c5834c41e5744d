package edge

import (
	"context"
	"sync/atomic"

	"multiedge/internal/ipc"
)

// Messages: a Send goes into the oldest buffer that the peer posted with Receive. Buffers have slots of their own, as
// many as operations, so that posting them holds up no operation.

// receives are the slots of posted buffers, numbered behind those of operations.
type receives struct {
	free  []uint32 // ring: posting takes at head, the leader adds at tail
	head  uint32   // guarded by attachment.out.post
	tail  atomic.Uint32
	freed uint32 // tail, of the leader
}

func (r *receives) init(depth int) {
	r.free = make([]uint32, depth)
	for i := range r.free {
		r.free[i] = uint32(depth + i)
	}
	r.freed = uint32(depth)
	r.tail.Store(r.freed)
}

// ReceiveQueue holds buffers for the messages of any number of connections, for servers that have many.
type ReceiveQueue struct {
	d  *attachment
	id uint32
}

// NewReceiveQueue makes a receive queue without buffers and connections. It ends with Close, or with the daemon.
func (d *Device) NewReceiveQueue(ctx context.Context) (*ReceiveQueue, error) {
	a, err := d.current(ctx)
	if err != nil {
		return nil, err
	}
	if a.features&ipc.FeatureMessages == 0 {
		return nil, errNoMessages
	}
	m, err := a.call(ctx, &ipc.Message{Kind: ipc.KindQueue}, &call{})
	if err != nil {
		return nil, err
	}
	return &ReceiveQueue{a, m.Queue}, nil
}

// Serve makes c take buffers from the queue from now on. c must be open and have no buffers of its own.
func (q *ReceiveQueue) Serve(ctx context.Context, c *Conn) error {
	if c.d != q.d {
		return invalid("ReceiveQueue.Serve: the connection must be of the queue's Device")
	}
	if err := c.usable(); err != nil {
		return err
	}
	_, err := q.d.call(ctx, &ipc.Message{Kind: ipc.KindJoin, Conn: c.id, Queue: q.id}, &call{})
	return err
}

// Post posts buffers, each a Work of Kind Receive, as Conn.Post does.
func (q *ReceiveQueue) Post(ctx context.Context, works ...*Work) (Op, error) {
	return q.d.postAll(ctx, poster{nil, q, noBounce}, works)
}

// put writes a buffer to the submission ring. The caller holds d.post and publishes.
func (q *ReceiveQueue) put(w *Work) (Op, error) {
	if err := q.d.Err(); err != nil {
		return Op{}, err
	}
	return q.d.putReceive(nil, q, w)
}

// bufferRoom reports whether a buffer of so many entries can be posted. The caller holds d.post.
func (d *attachment) bufferRoom(need int) bool {
	r := &d.slots.receives
	if r.head == r.tail.Load() {
		return false
	}
	n, err := d.out.sq.RoomFor(need)
	if err != nil {
		go d.fail(ErrDaemonDown)
	}
	return n >= need && err == nil
}

// Close ends the queue; its buffers come back with ErrPeerClosed. ErrBusy: connections still take buffers from it.
func (q *ReceiveQueue) Close(ctx context.Context) error {
	_, err := q.d.call(ctx, &ipc.Message{Kind: ipc.KindUnqueue, Queue: q.id}, &call{})
	return err
}

// encodeSend checks a send and fills e, all but the token. The caller holds d.post.
func (c *Conn) encodeSend(w *Work, e *ipc.SQE) error {
	n := w.Len
	if len(w.Pieces) > 0 {
		if n = c.d.sumPieces(w); n < 0 || len(w.Inline) > 0 {
			return errPieces
		}
	}
	switch {
	case c.d.features&ipc.FeatureMessages == 0:
		return errNoMessages
	case w.Remote != nil, w.Flags&^(BackwardFence|ForwardFence|Notify) != 0:
		return errSend
	case n > ipc.MaxSend:
		return ErrTooLong
	}
	e.Op, e.Flags, e.Conn, e.Imm = ipc.OpSend, ipc.Flags(w.Flags), c.id, w.Imm
	e.Key, e.RemoteOff = 0, uint64(w.Patience)
	if w.Patience < 0 {
		e.RemoteOff = ^uint64(0)
	}
	if w.Local == nil && n == 0 && len(w.Inline)+len(w.Pieces) == 0 { // the immediate is all there is
		e.InlineLen, e.Region, e.LocalOff, e.Len = 0, 0, 0, 0
		return nil
	}
	if inSpace(w) {
		return errMessageSpace
	}
	return c.d.encodeLocal(w, e)
}

// inSpace reports whether local memory of w is of a space, or a heap grant.
func inSpace(w *Work) bool {
	for i := range w.Pieces {
		if r := w.Pieces[i].Region; r != nil && (r.space != nil || r.heap != nil) {
			return true
		}
	}
	return w.Local != nil && (w.Local.space != nil || w.Local.heap != nil)
}

// putReceive writes a buffer for a connection or a shared queue to the submission ring. The caller holds d.post and
// publishes.
func (d *attachment) putReceive(c *Conn, q *ReceiveQueue, w *Work) (Op, error) {
	switch {
	case d.features&ipc.FeatureMessages == 0:
		return Op{}, errNoMessages
	case w.Kind != Receive || w.Queue == nil || (w.Local == nil) == (len(w.Pieces) == 0) || w.Remote != nil ||
		w.Flags != 0 || len(w.Inline) > 0:
		return Op{}, errReceive
	case len(w.Pieces) > 1 && d.features&ipc.FeatureScatter == 0:
		return Op{}, errNoScatter
	case len(w.Pieces) > 0 && d.sumPieces(w) < 0:
		return Op{}, errPieces
	}
	if inSpace(w) {
		return Op{}, errMessageSpace
	}
	e := &d.out.sqe
	*e = ipc.SQE{Op: ipc.OpReceive}
	if q != nil {
		e.Key = uint64(q.id)
	} else {
		e.Conn = c.id
	}
	if err := d.encodeLocal(w, e); err != nil {
		return Op{}, err
	}
	if d.out.detached || !d.bufferRoom(entries(w)) {
		return Op{}, ErrAgain
	}
	if err := w.Queue.take(d, 1); err != nil {
		return Op{}, err
	}
	r := &d.slots.receives
	i := r.free[r.head&uint32(len(r.free)-1)]
	r.head++
	s := &d.slots.list[i]
	gen := (s.gen.Load() + 1) | 1
	s.conn, s.region, s.bounce, s.extra = c, w.Local, noBounce, true
	if c != nil {
		c.buffers.Add(1)
	}
	d.slots.extras[i].ticket = ticket{w.Queue, w.Context, Receive}
	if len(w.Pieces) > 0 {
		s.region = w.Pieces[len(w.Pieces)-1].Region
		d.putPieces(e.Conn, w.Pieces[:len(w.Pieces)-1], i)
	}
	s.region.inflight.Add(1)
	s.gen.Store(gen)
	e.Token = opKey(i, gen)
	d.out.sq.Put(e)
	return Op{d: d, slot: i, gen: gen}, nil
}

// received takes a buffer that came back. It reports false for an entry that cannot be right. The caller leads.
func (d *attachment) received(e *ipc.CQE) bool {
	i, gen := uint32(e.Token), uint32(e.Token>>32)
	if i < uint32(len(d.slots.free)) || i >= uint32(len(d.slots.list)) {
		return false
	}
	s := &d.slots.list[i]
	if gen&1 == 0 || s.gen.Load() != gen || s.conn != nil && s.conn.id != e.Conn {
		return false
	}
	c, t := s.conn, d.takeExtra(s, i).ticket
	s.region.inflight.Add(-1) // before c counts it off: whoever waits for that may close the region
	last := c != nil && c.buffers.Add(-1) == 0
	if c == nil {
		d.conns.mu.Lock()
		c = d.conns.byNumber[e.Conn]
		d.conns.mu.Unlock()
	}
	s.conn, s.region = nil, nil
	if e.Status != ipc.StatusOK {
		d.slots.failed.add(i, gen, e.Status)
	}
	r := &d.slots.receives
	r.free[r.freed&uint32(len(r.free)-1)] = i
	r.freed++
	r.tail.Store(r.freed)
	s.gen.CompareAndSwap(gen, gen+1)
	t.queue.put(d, Completion{Kind: Receive, Conn: c, Context: t.context, Err: statusError[e.Status], Len: int(e.Len),
		Imm: e.Imm, HasImm: e.HasImm})
	if d.lead.followers.Load() > 0 {
		d.lead.wake(&s.waiters)
		if last {
			d.lead.wake(&c.waiters)
		}
	}
	return true
}

var (
	errNoMessages = failure("the daemon is older and knows no messages; upgrade it", ErrVersion)
	errSend       = invalid("a Send takes no Remote, and only Flags that exist")
	errNoScatter  = failure("the daemon is older and knows no Receive in several Pieces; upgrade it", ErrVersion)
	errReceive    = invalid("a Receive takes a Queue, and Local, LocalOff and Len or Pieces, and nothing else")
	// what arrives could not wait for a page, and a message that has its number must leave
	errMessageSpace = invalid("a Send or Receive needs memory that is registered whole, not a space or a " +
		"heap grant")
)
