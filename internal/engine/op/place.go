package op

import (
	"cmp"
	"slices"
	"time"

	"multiedge/internal/abi"
	"multiedge/internal/engine/op/park"
	"multiedge/internal/engine/op/span"
	"multiedge/internal/engine/queue"
	"multiedge/internal/mono"
	"multiedge/internal/seqnum"
	"multiedge/internal/wire"
	"multiedge/regmem"
)

// A received part of an operation on its way to memory (step 3 of recv.go):
//
//  1. onOperation: of an operation already applied, or beyond the window: answered again, or not taken. A part that a
//     fence forbids is held, with a copy.
//  2. perform: its kind delivers it (kinds.go). Key, owner, permission and bounds are checked for these very bytes;
//     a mover brings them to their place (mover.go).
//  3. Once the operation is whole: apply queues the notification, makes the connection owe an OpAck, and performs what
//     was held for it.
//
// An answer to an operation of ours comes to its kind's accept, which delivers likewise.

type ropState uint8

const (
	ropNone      ropState = iota // nothing arrived, or only held segments
	ropPartial                   // a write, partly in place
	ropAnswering                 // performed; its answer is being sent
	ropFailed                    // refused; its OpNak is not known to have arrived
	ropApplied
)

// recvSide is the peer's operations. Those before recv.base are applied; of [recv.base, recv.top) each has its state in
// rops.
type recvSide struct {
	base, top    seqnum.Value
	turn         seqnum.Value // where answers overlap: those before it are applied, or being answered; see nextTurn
	window       int          // how far from recv.base operations are taken
	rops         []recvOp     // ring of [recv.base, recv.top), its length a power of two or 0
	appliedAhead int          // applied operations in (recv.base, recv.top)
	limitSent    seqnum.Value // the largest limit advertised: the peer's credit ends there
	owesAck      bool         // an OpAck is pending: the connection is in the session's queue

	naks      queue.Queue[seqnum.Value] // refused, the refusal not sent yet
	answering queue.Queue[seqnum.Value] // those whose answer is not all sent yet

	notes    queue.Queue[Notification]
	noting   bool // EvNotify is out and TakeNotify has not said no yet
	noteRoom int  // notifications that there is room for; firstNotes are not charged

	redirects []redirect // nil: none

	domain  uint64 // regmem.Domain whose memory the peer may reach, too; 0: none
	stopped bool   // an operation of the peer was refused, and with a domain none is performed after it
	wrote   uint64 // bytes of the latest write applied that no Tell was about yet (clause 14.9)

	held, heldFence int  // held segments; the loose ones of them
	releasing       bool // release is running
	again           bool // and is to go round once more
}

// recvOp is an operation of the peer (clause 6.3).
type recvOp struct {
	state       ropState
	kind        OpKind
	status      abi.Status
	flags       uint8 // segment flags seen
	imm         uint32
	first, last uint64   // place of FIRST, end of LAST; of an atomic last is its size
	got         span.Set // of a write: bytes in place
	held        []heldSegment
	kept        span.Set // of a write: bytes in held

	key         regmem.Key
	off         uint64 // of an atomic: what it found
	n           uint64
	sent, acked uint64
	left        park.Unreceived // its parts, since the latest part in place
	puts        int32           // trips of couriers that put parts of it
	fetched     *regmem.Trip    // trips that fetched parts of its answer
}

// segment is a part of an operation as it arrived. Data is borrowed from the frame.
type segment struct {
	kind     OpKind
	flags    uint8
	lasting  bool // data stays as it is until Placed
	shuffled int  // the first so many bytes of data stand behind the others
	op       seqnum.Value
	fence    seqnum.Value
	imm      uint32
	key      regmem.Key
	place    uint64
	size     uint64 // of a read request, or of the write that a Tell is about; of an atomic: wire.AtomicSize
	follows  uint64 // bytes of the operation behind data, as far as it says so
	data     []byte
}

// heldSegment is a segment behind a fence, with its own copy of the data.
type heldSegment struct{ segment }

// extent is where the segment's bytes belong. What would end beyond the last place there is, Check refuses when it is
// performed.
func (g *segment) extent() (lo, hi uint64) {
	return g.place, g.place + min(uint64(len(g.data)), ^g.place)
}

// holds reports whether the segment is held already. One without data is all of its operation.
func (o *recvOp) holds(g *segment) bool {
	lo, hi := g.extent()
	if lo == hi {
		return len(o.held) > 0
	}
	return o.kept.Covers(lo, hi)
}

// keep adds a segment to those held.
func (o *recvOp) keep(h heldSegment) {
	o.held = append(o.held, h)
	if lo, hi := h.extent(); lo < hi {
		o.kept.Add(lo, hi)
	}
}

// rop returns the slot of one of the peer's operations that was admitted.
func (c *Conn) rop(op seqnum.Value) *recvOp {
	return &c.recv.rops[uint32(op)&uint32(len(c.recv.rops)-1)]
}

// onOperation takes a part of one of the peer's operations. It reports whether the frame may count as received (clause
// 3.3).
func (c *Conn) onOperation(now mono.Time, g *segment) bool {
	e := c.e
	if g.op.Before(c.recv.base) {
		e.Count.Loss.SegmentsDuplicated++
		c.oweAck()
		return true
	}
	// Beyond the window, beyond the credit, for our notifications would pile up, or too much is kept.
	if !g.op.InWindow(c.recv.base, c.recv.window) || !g.op.Before(c.recv.limitSent) || !c.admit(g.op) {
		e.Count.Reject.RejectedNoRoom++
		return false
	}
	o := c.rop(g.op)
	if c.recv.top.AtMost(g.op) {
		c.recv.top = g.op + 1
	}
	if o.state >= ropAnswering {
		e.Count.Loss.SegmentsDuplicated++
		c.oweAck()
		return true
	}
	if g.flags&wire.SegFenced != 0 && !g.fence.Before(g.op) {
		e.Count.Reject.RejectedMalformed++
		return false
	}
	if !c.allowed(g) {
		return c.hold(o, g)
	}
	return c.perform(now, o, g)
}

// allowed evaluates the fences (clauses 6.5 and 6.6).
func (c *Conn) allowed(g *segment) bool {
	if g.flags&wire.SegBackward != 0 && g.op != c.recv.base {
		return false
	}
	if c.overlap && g.op != c.nextTurn() {
		return false
	}
	if g.flags&wire.SegFenced != 0 && !g.fence.Before(c.recv.base) && c.rop(g.fence).state != ropApplied {
		return false
	}
	return !g.kind.Message() || c.recv.stopped || c.decided(g)
}

// nextTurn returns the first of the peer's operations that is neither applied nor being answered: where answers overlap
// it is the one to be performed next (clause 5.3).
func (c *Conn) nextTurn() seqnum.Value {
	r := &c.recv
	if r.turn.Before(r.base) {
		r.turn = r.base
	}
	for r.turn.Before(r.top) {
		if st := c.rop(r.turn).state; st != ropAnswering && st != ropApplied {
			break
		}
		r.turn++
	}
	return r.turn
}

// perform hands a request that no fence forbids to its kind. An operation of which parts are in place is of their kind:
// what is known of it would mean something else to another.
func (c *Conn) perform(now mono.Time, o *recvOp, g *segment) bool {
	if c.recv.stopped {
		c.refuseOp(o, g.op, abi.StatusStopped)
		return true
	}
	if o.state == ropPartial && o.kind != g.kind {
		c.e.Count.Reject.RejectedMalformed++
		return false
	}
	o.kind = g.kind
	received, lack := kinds[g.kind].deliver(c, now, o, g)
	if lack != nil {
		return c.parkSegment(now, g, regmem.WriteTarget, lack.wait)
	}
	if c.overlap && o.state == ropAnswering && c.recv.held > 0 {
		c.release(now)
	}
	return received
}

// accept hands a segment of an answer to its kind.
func (c *Conn) accept(now mono.Time, g *segment) bool {
	received, lack := kinds[g.kind].accept(c, now, g)
	if lack != nil {
		return c.parkSegment(now, g, regmem.ReadDest, lack.wait)
	}
	return received
}

// resolve returns the n bytes at off of an exported range, which the peer may use as perm says, or why not. They may
// not be resident: see touchGrant.
func (c *Conn) resolve(k regmem.Key, perm regmem.Perm, off, n uint64) ([]byte, error) {
	at, err := c.e.cfg.Grants.Resolve(k, uint64(c.ID), perm, off, n)
	if err == regmem.ErrOwner && c.recv.domain != 0 {
		at, err = c.e.cfg.Grants.ResolveShared(k, c.recv.domain, perm, off, n)
	}
	return at.Bytes, err
}

// maxGuesses is how many operations with wrong keys are answered a second and session (clause 6.9).
const maxGuesses = 5000

// refuseAccess refuses an operation for its key, owner, permission or bounds. A peer that guesses keys faster than
// maxGuesses gets no answer: to it the frame is lost.
func (c *Conn) refuseAccess(now mono.Time, o *recvOp, op seqnum.Value, st abi.Status) bool {
	s := c.S
	if (st == abi.StatusKey || st == abi.StatusOwner) && !c.recv.releasing {
		if now.Sub(s.guessedAt) >= time.Second {
			s.guessedAt, s.guesses = now, 0
		}
		if s.guesses++; s.guesses > maxGuesses {
			c.e.Count.Op.GuessesIgnored++
			return false
		}
	}
	c.refuseOp(o, op, st)
	return true
}

// refuseOp answers an operation with a negative acknowledgement (clause 6.9).
func (c *Conn) refuseOp(o *recvOp, op seqnum.Value, st abi.Status) {
	o.state, o.status = ropFailed, st
	c.recv.stopped = c.recv.domain != 0 // clause 22.3
	dropTrips(&o.fetched)
	c.settle(op, false)
	c.empty(&o.got)
	c.dropHeld(o)
	c.e.Count.Op.AccessRefused++
	c.recv.naks.Push(op)
	c.wake()
}

// apply marks an operation applied, delivers its notification and lets those behind it proceed.
func (c *Conn) apply(now mono.Time, o *recvOp, op seqnum.Value, n uint64) {
	e := c.e
	if o.state == ropPartial {
		c.settle(op, false)
	}
	failed := o.state == ropFailed
	if o.state == ropAnswering {
		if kinds[o.kind].sized {
			n = o.last // its answer may be longer than what it was about
		}
		c.bytesOut += n
	} else if !failed {
		c.bytesIn += n
	}
	o.state = ropApplied
	dropTrips(&o.fetched)
	c.empty(&o.got)
	c.dropHeld(o)
	if !failed {
		if o.kind == OpWrite {
			c.recv.wrote = n
		}
		e.Count.Op.OpsApplied++
		if o.flags&wire.SegNotify != 0 {
			e.Count.Op.Notifications++
			c.recv.notes.Push(Notification{Imm: o.imm, Len: uint32(min(n, 1<<32-1)), Key: o.key, Off: o.first})
			if !c.recv.noting {
				c.recv.noting = true
				e.events.short(EvNotify, c.ID)
			}
		}
	}
	if op != c.recv.base {
		c.recv.appliedAhead++
	}
	for c.recv.base != c.recv.top {
		b := c.rop(c.recv.base)
		if b.state != ropApplied {
			break
		}
		if c.recv.base != op {
			c.recv.appliedAhead--
		}
		b.reset()
		c.recv.base++
	}
	c.oweAck()
	if c.recv.held > 0 {
		c.release(now)
	}
}

// reset empties the slot of an operation that was applied, as far as the next one does not set what it uses. It keeps
// memory for reuse.
func (o *recvOp) reset() { o.state, o.flags, o.left, o.puts = ropNone, 0, park.Unreceived{}, 0 }

// fits reports whether there is room for [lo, hi) in the spans of an operation in place, or of adverts that came.
// Extending an existing span always fits. So does what was held: each held segment gives back more than the span of the
// next one costs.
func (c *Conn) fits(got *span.Set, lo, hi uint64) bool {
	n := cap(got.Spans)
	if len(got.Spans) < max(n, span.Free) {
		return got.Takes(lo, hi)
	}
	return got.Joins(lo, hi) || got.Takes(lo, hi) && c.hasRoom(span.Cost*n) // slices grow by doubling
}

// add puts [lo, hi) among what is in place or came.
func (c *Conn) add(got *span.Set, lo, hi uint64) {
	before := got.Charge()
	got.Add(lo, hi)
	c.charge(got.Charge() - before)
}

// empty forgets what is in place of an operation that has ended, or came of adverts.
func (c *Conn) empty(got *span.Set) {
	c.charge(-got.Charge())
	got.Reset()
}

// hold keeps a copy of a segment that a fence forbids (clause 7.5).
func (c *Conn) hold(o *recvOp, g *segment) bool {
	e := c.e
	if o.holds(g) {
		e.Count.Loss.SegmentsDuplicated++
		return true
	}
	if lo, hi := g.extent(); !c.hasRoom(len(g.data)+heldOverhead) || !o.kept.Takes(lo, hi) {
		e.Count.Reject.RejectedNoRoom++
		return false
	}
	c.charge(len(g.data) + heldOverhead)
	e.Count.Op.SegmentsHeld++
	h := heldSegment{*g}
	h.data, h.lasting = append([]byte(nil), g.data...), true
	o.keep(h)
	c.recv.held++
	if c.loose(g) {
		c.recv.heldFence++
	}
	return true
}

// loose reports whether a held segment may be performed though it is not its operation's turn.
func (c *Conn) loose(g *segment) bool {
	if c.overlap {
		return false
	}
	return g.flags&wire.SegFenced != 0 || g.kind.Message() && g.flags&wire.SegBackward == 0
}

func (c *Conn) dropHeld(o *recvOp) {
	if o.held == nil && o.kept.Spans == nil {
		return
	}
	for i := range o.held {
		c.unhold(&o.held[i])
	}
	o.held, o.kept = nil, span.Set{}
}

func (c *Conn) unhold(h *heldSegment) {
	c.charge(-len(h.data) - heldOverhead)
	c.recv.held--
	if c.loose(&h.segment) {
		c.recv.heldFence--
	}
}

// release performs held segments that nothing forbids any more. Performing one can apply an operation, which calls
// release again: the inner call only asks the outer one for another round.
func (c *Conn) release(now mono.Time) {
	c.recv.again = true
	if c.recv.releasing {
		return
	}
	c.recv.releasing = true
	for c.recv.again && c.recv.held > 0 {
		c.recv.again = false
		if c.recv.heldFence == 0 {
			op := c.recv.base
			if c.overlap {
				op = c.nextTurn()
			}
			c.releaseOp(now, op)
			continue
		}
		for op := c.recv.base; op.Before(c.recv.top) && c.recv.held > 0; op++ {
			c.releaseOp(now, op)
		}
	}
	c.recv.releasing = false
}

// releaseOp performs the held segments of one operation.
func (c *Conn) releaseOp(now mono.Time, op seqnum.Value) {
	if !op.Before(c.recv.top) {
		return
	}
	o := c.rop(op)
	if len(o.held) == 0 || !c.allowed(&o.held[0].segment) {
		return
	}
	held := o.held
	o.held = nil
	o.kept.Reset()
	// In the order of their places they make no more ranges at any time than all of them make: there is room for each,
	// as there was when it was held.
	slices.SortFunc(held, func(a, b heldSegment) int { return cmp.Compare(a.place, b.place) })
	for i := range held {
		h := &held[i]
		if o.state < ropAnswering && op.InWindow(c.recv.base, c.recv.window) &&
			!(c.allowed(&h.segment) && c.perform(now, o, &h.segment)) {
			o.keep(*h) // its frame was acknowledged: it must not be lost
			continue
		}
		c.unhold(h)
		h.data = nil
	}
}
