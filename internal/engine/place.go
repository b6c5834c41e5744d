package engine

// A received part of an operation on its way to memory (step 3 of recv.go):
//
//  1. onOperation: of an operation already applied, or beyond the window: answered again, or not taken. A part that a fence forbids is held, with a copy.
//  2. perform: key, owner, permission and bounds are checked for these very bytes; deliver copies them to their place, unless the driver put them there.
//  3. Once FIRST, LAST and everything between them is in place: apply queues the notification, owes the peer an OpAck, and performs what was held for it.
//
// Data of our own reads comes by onReadData, which delivers likewise.

import (
	"cmp"
	"slices"
	"time"

	"multiedge/internal/mono"
	"multiedge/internal/seqnum"
	"multiedge/internal/wire"
	"multiedge/regmem"
	"multiedge/remap"
)

type ropState uint8

const (
	ropNone    ropState = iota // nothing arrived, or only held segments
	ropPartial                 // a write, partly in place
	ropReading                 // a read whose data is being sent
	ropFailed                  // refused; its OpNak is not known to have arrived
	ropApplied
)

// recvOp is an operation of the peer (clause 6.3).
type recvOp struct {
	state       ropState
	status      Status
	flags       uint8 // segment flags seen
	imm         uint32
	first, last uint64 // place of FIRST, end of LAST
	got         ranges // of a write: bytes in place
	held        []heldSegment
	kept        ranges // of a write: bytes in held

	key         regmem.Key // of a read
	off         uint64
	n           uint64
	sent, acked uint64
}

// segment is a part of an operation as it arrived. Data is borrowed from the frame.
type segment struct {
	kind     wire.Kind
	flags    uint8
	shuffled int // the first so many bytes stand behind the others
	op       seqnum.Value
	fence    seqnum.Value
	imm      uint32
	key      regmem.Key
	place    uint64
	size     uint64 // of a read request
	data     []byte
}

// heldSegment is a segment behind a fence, with its own copy of the data.
type heldSegment struct{ segment }

// extent is where the segment's bytes belong. What would end beyond the last place there is, Check refuses when it is performed.
func (g *segment) extent() (lo, hi uint64) {
	return g.place, g.place + min(uint64(len(g.data)), ^g.place)
}

// holds reports whether the segment is held already. One without data is all of its operation.
func (o *recvOp) holds(g *segment) bool {
	lo, hi := g.extent()
	if lo == hi {
		return len(o.held) > 0
	}
	return o.kept.covers(lo, hi)
}

// keep adds a segment to those held.
func (o *recvOp) keep(h heldSegment) {
	o.held = append(o.held, h)
	if lo, hi := h.extent(); lo < hi {
		o.kept.add(lo, hi)
	}
}

// rop returns the slot of one of the peer's operations in the window, growing the ring as needed.
func (c *conn) rop(op seqnum.Value) *recvOp {
	for c.rcvBase.Distance(op) >= len(c.rops) {
		old := c.rops
		c.rops = make([]recvOp, max(firstRing, 2*len(old)))
		for i := range old {
			o := c.rcvBase.Add(i)
			c.rops[uint32(o)&uint32(len(c.rops)-1)] = old[uint32(o)&uint32(len(old)-1)]
		}
	}
	return &c.rops[uint32(op)&uint32(len(c.rops)-1)]
}

// creditLimit is the first operation number the peer may not send (clause 7.3).
func (c *conn) creditLimit() seqnum.Value { return c.rcvBase.Add(max(0, c.window-c.notes.len())) }

// onOperation takes a part of one of the peer's operations. It reports whether the frame may count as received (clause 3.3).
func (c *conn) onOperation(now mono.Time, g *segment) bool {
	e := c.e
	if g.op.Before(c.rcvBase) {
		e.Count.SegmentsDuplicated++
		c.oweAck()
		return true
	}
	if !g.op.InWindow(c.rcvBase, c.window) || !g.op.Before(c.limitSent) { // beyond the ring, or beyond the credit: our notifications would pile up
		e.Count.RejectedNoRoom++
		return false
	}
	o := c.rop(g.op)
	if c.rcvTop.AtMost(g.op) {
		c.rcvTop = g.op + 1
	}
	if o.state >= ropReading {
		e.Count.SegmentsDuplicated++
		c.oweAck()
		return true
	}
	if g.flags&wire.SegFenced != 0 && !g.fence.Before(g.op) {
		e.Count.RejectedMalformed++
		return false
	}
	if !c.allowed(g) {
		return c.hold(o, g)
	}
	return c.perform(now, o, g)
}

// allowed evaluates the fences (clauses 6.5 and 6.6).
func (c *conn) allowed(g *segment) bool {
	if g.flags&wire.SegBackward != 0 && g.op != c.rcvBase {
		return false
	}
	if g.flags&wire.SegFenced != 0 && !g.fence.Before(c.rcvBase) {
		return c.rop(g.fence).state == ropApplied
	}
	return true
}

// perform places a write segment or starts a read.
func (c *conn) perform(now mono.Time, o *recvOp, g *segment) bool {
	if g.kind == wire.KindReadRequest {
		return c.startRead(now, o, g)
	}
	e := c.e
	dst, _, err := e.cfg.Grants.Check(g.key, grantOwner(c.id), regmem.RemoteWrite, g.place, uint64(len(g.data)))
	if err != nil {
		return c.refuseAccess(now, o, g.op, statusOf(err))
	}
	lo, hi := g.place, g.place+uint64(len(g.data))
	switch {
	case lo == hi:
	case o.got.covers(lo, hi):
		e.Count.SegmentsDuplicated++
	case !c.fits(&o.got, lo, hi):
		e.Count.RejectedNoRoom++
		return false
	default:
		e.deliver(c.opName(g.op, false), dst, g.data, g.shuffled, g.flags&(wire.SegFirst|wire.SegLast) == wire.SegFirst|wire.SegLast)
		c.add(&o.got, lo, hi)
	}
	o.state = ropPartial
	o.flags |= g.flags
	if g.flags&wire.SegFirst != 0 {
		o.first = lo
	}
	if g.flags&wire.SegLast != 0 {
		o.last = hi
	}
	if g.flags&wire.SegLast != 0 {
		o.imm = g.imm
	}
	if o.flags&(wire.SegFirst|wire.SegLast) == wire.SegFirst|wire.SegLast && o.got.is(o.first, o.last) {
		e.Placed()
		c.apply(now, o, g.op, o.last-o.first)
	}
	return true
}

func (c *conn) startRead(now mono.Time, o *recvOp, g *segment) bool {
	if _, _, err := c.e.cfg.Grants.Check(g.key, grantOwner(c.id), regmem.RemoteRead, g.place, g.size); err != nil {
		return c.refuseAccess(now, o, g.op, statusOf(err))
	}
	o.state, o.flags, o.imm = ropReading, g.flags, g.imm
	o.key, o.off, o.n, o.sent, o.acked = g.key, g.place, g.size, 0, 0
	if g.size == 0 {
		c.apply(now, o, g.op, 0)
		return true
	}
	c.reading.push(g.op)
	c.wake()
	return true
}

// maxGuesses is how many operations with wrong keys are answered a second and session (clause 6.9).
const maxGuesses = 5000

// refuseAccess refuses an operation for its key, owner, permission or bounds. Who guesses keys faster than maxGuesses gets no answer: to him the frame is lost.
func (c *conn) refuseAccess(now mono.Time, o *recvOp, op seqnum.Value, st Status) bool {
	s := c.s
	if (st == StatusKey || st == StatusOwner) && !c.releasing {
		if now.Sub(s.guessedAt) >= time.Second {
			s.guessedAt, s.guesses = now, 0
		}
		if s.guesses++; s.guesses > maxGuesses {
			c.e.Count.GuessesIgnored++
			return false
		}
	}
	c.refuseOp(o, op, st)
	return true
}

// refuseOp answers an operation with a negative acknowledgement (clause 6.9).
func (c *conn) refuseOp(o *recvOp, op seqnum.Value, st Status) {
	o.state, o.status = ropFailed, st
	c.settle(op, false)
	c.empty(&o.got)
	c.dropHeld(o)
	c.e.Count.AccessRefused++
	c.naks.push(op)
	c.wake()
}

// apply marks an operation applied, delivers its notification and lets those behind it proceed.
func (c *conn) apply(now mono.Time, o *recvOp, op seqnum.Value, n uint64) {
	e := c.e
	c.settle(op, false)
	failed := o.state == ropFailed
	o.state = ropApplied
	c.empty(&o.got)
	c.dropHeld(o)
	if !failed {
		e.Count.OpsApplied++
		if o.flags&wire.SegNotify != 0 {
			e.Count.Notifications++
			c.notes.push(Notification{Imm: o.imm, Len: uint32(min(n, 1<<32-1))})
			if !c.noting {
				c.noting = true
				e.emit(Event{Kind: EvNotify, Conn: c.id})
			}
		}
	}
	if op != c.rcvBase {
		c.appliedAhead++
	}
	for c.rcvBase != c.rcvTop {
		b := c.rop(c.rcvBase)
		if b.state != ropApplied {
			break
		}
		if c.rcvBase != op {
			c.appliedAhead--
		}
		b.reset()
		c.rcvBase++
	}
	c.oweAck()
	if c.held > 0 {
		c.release(now)
	}
}

// reset empties the slot of an operation that was applied but keeps memory for reuse.
func (o *recvOp) reset() { *o = recvOp{got: o.got} }

// fits reports whether there is room for [lo, hi) in what is in place of an operation, or came of adverts. There always is where it makes no further span, and for what was held, since
// each segment gives back more than the next one's span costs.
func (c *conn) fits(got *ranges, lo, hi uint64) bool {
	if len(got.spans) < freeSpans || got.joins(lo, hi) {
		return true
	}
	return got.takes(lo, hi) && c.s.heldMem+spanCost <= c.e.cfg.HeldBytes
}

// add puts [lo, hi) among what is in place or came.
func (c *conn) add(got *ranges, lo, hi uint64) {
	c.s.heldMem -= got.charge()
	got.add(lo, hi)
	c.s.heldMem += got.charge()
}

// empty forgets what is in place of an operation that has ended, or came of adverts.
func (c *conn) empty(got *ranges) {
	if n := got.charge(); n > 0 { // else there may be no session yet
		c.s.heldMem -= n
	}
	got.reset()
}

// hold keeps a copy of a segment that a fence forbids (clause 7.5).
func (c *conn) hold(o *recvOp, g *segment) bool {
	e := c.e
	if o.holds(g) {
		e.Count.SegmentsDuplicated++
		return true
	}
	if lo, hi := g.extent(); c.s.heldMem+len(g.data)+heldOverhead > e.cfg.HeldBytes || !o.kept.takes(lo, hi) {
		e.Count.RejectedNoRoom++
		return false
	}
	c.s.heldMem += len(g.data) + heldOverhead
	e.Count.SegmentsHeld++
	h := heldSegment{*g}
	h.data = append([]byte(nil), g.data...)
	o.keep(h)
	c.held++
	if g.flags&wire.SegFenced != 0 {
		c.heldFence++
	}
	return true
}

// heldOverhead is what a held segment costs besides its data, bytes.
const heldOverhead = 128

func (c *conn) dropHeld(o *recvOp) {
	for i := range o.held {
		c.unhold(&o.held[i])
	}
	o.held, o.kept = nil, ranges{}
}

func (c *conn) unhold(h *heldSegment) {
	c.s.heldMem -= len(h.data) + heldOverhead
	c.held--
	if h.flags&wire.SegFenced != 0 {
		c.heldFence--
	}
}

// release performs held segments that nothing forbids any more. Performing one can apply an operation, which calls release again: the inner
// call only asks the outer one for another round.
func (c *conn) release(now mono.Time) {
	c.again = true
	if c.releasing {
		return
	}
	c.releasing = true
	for c.again && c.held > 0 {
		c.again = false
		if c.heldFence == 0 {
			c.releaseOp(now, c.rcvBase)
			continue
		}
		for op := c.rcvBase; op.Before(c.rcvTop) && c.held > 0; op++ {
			c.releaseOp(now, op)
		}
	}
	c.releasing = false
}

// releaseOp performs the held segments of one operation.
func (c *conn) releaseOp(now mono.Time, op seqnum.Value) {
	if !op.Before(c.rcvTop) {
		return
	}
	o := c.rop(op)
	if len(o.held) == 0 || !c.allowed(&o.held[0].segment) {
		return
	}
	held := o.held
	o.held = nil
	o.kept.reset()
	// In the order of their places they make no more ranges at any time than all of them make: there is room for each, as there was when it was held.
	slices.SortFunc(held, func(a, b heldSegment) int { return cmp.Compare(a.place, b.place) })
	for i := range held {
		h := &held[i]
		if o.state < ropReading && op.InWindow(c.rcvBase, c.window) && !c.perform(now, o, &h.segment) {
			o.keep(*h) // its frame was acknowledged: it must not be lost
			continue
		}
		c.unhold(h)
		h.data = nil
	}
}

// onReadData places data of one of our reads.
func (c *conn) onReadData(now mono.Time, op seqnum.Value, place uint64, data []byte, shuffled int) bool {
	e := c.e
	if !c.outstanding(op) || !c.sent(op) || c.sop(op).Kind != OpRead {
		e.Count.SegmentsDuplicated++
		return true
	}
	o := c.sop(op)
	lo, n := place, uint64(len(data))
	if n == 0 || lo > o.n || n > o.n-lo {
		e.Count.RejectedMalformed++
		return false
	}
	if o.got.covers(lo, lo+n) {
		e.Count.SegmentsDuplicated++
		return true
	}
	if !c.fits(&o.got, lo, lo+n) {
		e.Count.RejectedNoRoom++
		return false
	}
	e.deliver(c.opName(op, true), o.Local[lo:lo+n], data, shuffled, n == o.n)
	c.add(&o.got, lo, lo+n)
	if o.got.is(0, o.n) {
		e.Placed()
		c.complete(now, op, OK)
	}
	return true
}

// deliver puts a payload in its place, unless the driver has received it there already (scatter.go). Of a shuffled one the first bytes stand
// behind the others (clause 2.6). whole says that it is all of its operation.
func (e *Endpoint) deliver(op remap.Op, dst, data []byte, shuffled int, whole bool) {
	e.Count.PayloadReceived += uint64(len(data))
	if e.cfg.Stage != nil && e.deliverStaged(op, dst, data, shuffled) {
		return
	}
	if &dst[0] == &data[0] {
		e.Count.FramesInPlace++
		return
	}
	if h := shuffled; h > 0 && h < len(dst) {
		n := copy(dst[h:], data[:len(data)-h])
		copy(dst[:h], data[n:])
		return
	}
	if p := e.cfg.Placer; p != nil && e.lasting && !whole {
		p.Place(dst, data)
		return
	}
	copy(dst, data)
}

// oweAck puts the connection among those that owe the peer an OpAck.
func (c *conn) oweAck() {
	if !c.owesAck && c.state != connFree {
		c.owesAck = true
		c.s.opacks.push(c)
	}
}
