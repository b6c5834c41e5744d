package edge

// An operation on its way to the transport: Post locks the submission side; put finds room, checks the work against its
// memory (encode), takes a free slot, whose number and generation are the operation's token, and writes one entry of 64
// bytes to the submission ring; publish shows it, and rings the doorbell if the daemon sleeps. How it ends,
// completion.go takes from the other ring.

import (
	"context"

	"multiedge/internal/ipc"
	"multiedge/regmem"
)

// NoWait is a context for Post that does not wait: it has ended, with ErrAgain. There may be room by then which a
// goroutine that waits for something else has not looked at yet.
var NoWait context.Context = noWait{context.Background()}

type noWait struct{ context.Context }

var ended = func() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

func (noWait) Done() <-chan struct{} { return ended }
func (noWait) Err() error            { return ErrAgain }

// Post starts operations in the order of works, waking the daemon once, and returns the last of them; Work.Op receives
// each. Where there is no room it waits until there is, the connection ends, or ctx does; with NoWait it returns
// ErrAgain instead. An error is about the first work that was not started: those before it were. Post does not wait for
// operations to end, keeps no Work, and allocates nothing.
func (c *Conn) Post(ctx context.Context, works ...*Work) (Op, error) {
	return c.d.postAll(ctx, poster{c, nil, noBounce}, works)
}

// poster is who posts: a connection, with a slot of the bounce arena or noBounce, or a shared receive queue.
type poster struct {
	conn   *Conn
	queue  *ReceiveQueue
	bounce int16
}

func (d *attachment) postAll(ctx context.Context, p poster, works []*Work) (op Op, err error) {
	for polled := false; ; {
		var n int
		n, err = d.postSome(p, works, &op)
		if works = works[n:]; err != ErrAgain {
			return op, err
		}
		if ctx == NoWait {
			if polled || d.poll() == 0 {
				return op, err
			}
			polled = true
			continue
		}
		want := waiter{kind: waitRoom, conn: p.conn, need: entries(works[0]), buffer: works[0].Kind == Receive}
		if err := d.wait(ctx, want); err != nil {
			return op, err
		}
	}
}

// postSome starts works while there is room. It returns how many it started, and the last of these in op.
func (d *attachment) postSome(p poster, works []*Work, op *Op) (n int, err error) {
	d.out.post.Lock()
	for n < len(works) {
		var o Op
		w := works[n]
		if p.queue == nil {
			o, err = p.conn.put(w, p.bounce)
		} else {
			o, err = p.queue.put(w)
		}
		if err != nil {
			break
		}
		if *op = o; w.Op != nil {
			*w.Op = o
		}
		n++
	}
	if n > 0 {
		d.publish()
	}
	d.out.post.Unlock()
	return n, err
}

// publish shows what was put to the daemon. The caller holds d.post.
func (d *attachment) publish() {
	if d.drive != nil {
		d.slots.gather.posted.Store(d.out.freeHead)
	}
	if d.out.sq.Publish() {
		d.counts.rung++
		d.out.submit.Ring()
	}
}

// put checks w and writes it to the submission ring. The caller holds d.post and publishes.
func (c *Conn) put(w *Work, bounce int16) (Op, error) {
	d := c.d
	if err := c.usable(); err != nil {
		return Op{}, err
	}
	if w.Kind == Receive {
		return d.putReceive(c, nil, w)
	}
	e := &d.out.sqe
	if err := c.encode(w, e); err != nil {
		return Op{}, err
	}
	local := w.Local
	if e.InlineLen > 0 {
		local = nil
	}
	return c.launch(local, bounce, w)
}

// launch gives the entry d.sqe a slot, whose token it gets, and puts it into the submission ring, behind the pieces of
// w, which is nil for what is no operation. The caller holds d.post and publishes.
func (c *Conn) launch(local *Region, bounce int16, w *Work) (Op, error) {
	d := c.d
	if d.out.detached || !c.room(entries(w)) {
		return Op{}, ErrAgain
	}
	e := &d.out.sqe
	if w != nil && w.Queue != nil {
		if err := w.Queue.take(d, 1); err != nil {
			return Op{}, err
		}
		if w.Queue.works.Add(1) == 1 {
			d.hurry() // who waits for the queue sleeps until something arrives
		}
	}
	i := d.slots.free[d.out.freeHead&uint32(len(d.slots.free)-1)]
	d.out.freeHead++
	if w != nil {
		d.out.posted++
	}
	s := &d.slots.list[i]
	gen := (s.gen.Load() + 1) | 1 // the leader may have yet to move it on
	s.conn, s.region, s.bounce = c, local, bounce
	c.inflight.Add(1)
	if w != nil && (len(w.Pieces) > 0 || w.Result != nil || w.Queue != nil) {
		c.putExtra(w, i)
	}
	if s.region != nil {
		s.region.inflight.Add(1)
	}
	s.gen.Store(gen)
	if d.drive != nil && long(e, w) {
		d.slots.gather.at.Store(0)
	}
	e.Token = opKey(i, gen)
	if w != nil && len(w.Inline) > ipc.MaxInline {
		d.putBytes(e.Conn, w.Inline[:len(w.Inline)-ipc.MaxInline])
	}
	d.out.sq.Put(e)
	return Op{d: d, slot: i, gen: gen}, nil
}

// slotFree reports whether there is room for an operation but for the ring. The caller holds d.post.
func (c *Conn) slotFree() bool {
	return int(c.inflight.Load()) < c.d.window && c.d.out.freeHead != c.d.slots.freeTail.Load()
}

// room reports whether an operation of so many entries can be put. The caller holds d.post.
func (c *Conn) room(need int) bool {
	d := c.d
	if !c.slotFree() {
		return false
	}
	n, err := d.out.sq.RoomFor(need)
	if err != nil {
		go d.fail(ErrDaemonDown)
	}
	return n >= need
}

// encode checks w against its memory and fills e, all but the token. The caller holds d.post, which keeps regions open.
func (c *Conn) encode(w *Work, e *ipc.SQE) error {
	if w.Kind == Send {
		return c.encodeSend(w, e)
	}
	r := w.Remote
	if r == nil || r.conn != c {
		return errRemote
	}
	if r.revoked.Load() {
		return ErrRevoked
	}
	n, pieces := w.Len, len(w.Pieces) > 0
	switch {
	case pieces:
		if n = c.d.sumPieces(w); n < 0 {
			return errPieces
		}
	case len(w.Inline) > 0:
		n = len(w.Inline)
	}
	if n < 0 || w.RemoteOff < 0 || int64(w.RemoteOff) > r.size || int64(n) > r.size-int64(w.RemoteOff) {
		return ErrBounds
	}
	if w.Kind == Atomic {
		return c.encodeAtomic(w, e)
	}
	switch {
	case w.Kind == Write && r.perm&regmem.RemoteWrite == 0, w.Kind == Read && r.perm&regmem.RemoteRead == 0:
		return ErrPermission
	case w.Kind != Write && w.Kind != Read, w.Flags&^(BackwardFence|ForwardFence|Notify|LocalDone) != 0:
		return errKind
	case w.Kind == Read && (w.Flags&(Notify|LocalDone) != 0 || len(w.Inline) > 0):
		return errReadFlags
	case pieces && (w.Local != nil || w.LocalOff != 0 || w.Len != 0 || len(w.Inline) > 0):
		return errPieces
	}
	e.Op, e.Flags, e.Conn, e.Imm = ipc.Op(w.Kind), ipc.Flags(w.Flags)&c.d.flags, c.id, w.Imm
	e.Key, e.RemoteOff = uint64(r.key), uint64(w.RemoteOff)
	return c.d.encodeLocal(w, e)
}

// encodeLocal checks the local side of w and fills in that part of e.
func (d *attachment) encodeLocal(w *Work, e *ipc.SQE) error {
	if n := len(w.Inline); n > 0 {
		if err := d.checkInline(w); err != nil {
			return err
		}
		own := w.Inline[n-min(n, ipc.MaxInline):]
		e.InlineLen = uint8(len(own))
		e.Region, e.LocalOff, e.Len = 0, 0, 0
		clear(e.Inline[copy(e.Inline[:], own):])
		return nil
	}
	last := Piece{w.Local, w.LocalOff, w.Len}
	if len(w.Pieces) > 0 {
		if w.Local != nil || w.LocalOff != 0 || w.Len != 0 {
			return errPieces
		}
		if len(w.Pieces) > 1 && inHeap(w.Pieces) {
			return errHeapPieces
		}
		if err := d.checkPieces(w.Pieces); err != nil {
			return err
		}
		last = w.Pieces[len(w.Pieces)-1]
	}
	if err := d.checkPiece(&last); err != nil {
		return err
	}
	e.InlineLen = 0
	e.Region, e.LocalOff, e.Len = last.Region.id, uint64(last.Off), uint64(last.Len)
	return nil
}

// checkPiece checks a range of local memory. The caller holds d.post.
func (d *attachment) checkPiece(p *Piece) error {
	switch l := p.Region; {
	case l == nil:
		return errLocal
	case l.d != d: // its own attachment's lock guards whether it is closed
		if l.d.dev == d.dev && l.d.life.dead.Load() != nil {
			return ErrStale
		}
		return errLocal
	case l.closed:
		return errLocal
	}
	if size := p.Region.size; p.Off < 0 || p.Off > size || p.Len < 0 || p.Len > size-p.Off {
		return ErrBounds
	}
	return nil
}

var (
	errRemote    = invalid("Work.Remote must be a RemoteRegion imported on this connection")
	errLocal     = invalid("Work.Local must be an open Region of the same Device; or use Inline")
	errKind      = invalid("Work.Kind must be Write, Read or Atomic, and Work.Flags known flags")
	errReadFlags = invalid("a Read takes neither Notify, LocalDone nor Inline")
	errInline    = invalid("Work.Inline holds more than MaxInline, the queue or an older daemon takes; use a Region")
)

// credit returns the notifications that c's owner consumed to the daemon. The caller holds d.post. It reports false
// when there was no room.
func (d *attachment) credit(c *Conn) bool {
	if d.out.detached || c.Err() != nil { // a connection that has ended takes none
		return true
	}
	room, err := d.out.sq.Room()
	if err != nil {
		go d.fail(ErrDaemonDown)
	}
	if room == 0 {
		if d.out.freeHead != d.slots.freeTail.Load() { // else completions will ring
			d.out.ringFull.Store(true)
		}
		return false
	}
	if n := c.notes.takeOwed(); n > 0 {
		d.out.sqe = ipc.SQE{Op: ipc.OpCredit, Conn: c.id, Imm: n}
		d.out.sq.Put(&d.out.sqe)
		d.publish()
	}
	return true
}

// returnCredit gives credit of c back now, or as soon as there is room, and reports whether it was now.
func (d *attachment) returnCredit(c *Conn) bool {
	d.out.post.Lock()
	paid := d.credit(c)
	if !paid && !c.owes {
		c.owes = true
		d.out.owing = append(d.out.owing, c)
		d.out.owingFlag.Store(true)
	}
	d.out.post.Unlock()
	if !paid {
		d.kick() // a leader that found nothing owing and went to sleep must look
	}
	return paid
}

// payOwing retries credit that did not fit before.
func (d *attachment) payOwing() {
	if !d.out.owingFlag.Load() {
		return
	}
	d.out.post.Lock()
	defer d.out.post.Unlock()
	d.out.ringFull.Store(false)
	still := d.out.owing[:0]
	for _, c := range d.out.owing {
		if c.owes = !d.credit(c); c.owes {
			still = append(still, c)
		}
	}
	clear(d.out.owing[len(still):])
	d.out.owing = still
	d.out.owingFlag.Store(len(still) > 0)
}
