package sim

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"time"

	"multiedge/internal/engine"
	"multiedge/internal/mono"
	"multiedge/internal/wire"
)

// flow is the operations that one end of a connection submits, in order.
type flow struct {
	ops     []*operation
	next    int // to submit
	open    int // submitted and not completed
	using   int // pieces of their local memory
	pieces  int // the same of those that may have been gathered, and are not known to have been
	gap     time.Duration
	after   mono.Time // no next one before
	ordered bool
	checked int // operations before it are complete: their fences need no look any more
}

// operation is one read, write or send and what is known of it.
type operation struct {
	op        engine.Op
	msg       message // if it is a send
	far, near *slot   // at the peer; here, nil for writes by value
	size      int
	pieces    int  // of its local memory; 0: it is in one
	bad       bool // reaches outside on purpose; of a send, is longer than its buffer
	submitted bool
	given     bool // its local bytes were given back before it ended (LocalDone)
	complete  bool
	status    engine.Status
	notified  int
	applied   bool // seen whole at the peer
	touched   bool
	draft     *draft // it is composed; nil: it is submitted at once
	dropped   bool   // it is composed, and then aborted
}

// plan draws an end's operations and lays out the memory they use.
func (p *pairing) plan(rng *rand.Rand, from, to *end, most int, kind planKind) {
	own := func(which uint64) *rand.Rand { return stream(p.w.world.opt.Seed^uint64(p.number+1)<<32, which) }
	f, locals, eager, patience := &from.flow, own(localStream), own(eagerStream), own(patienceStream)
	shares, pieces := own(poolStream+100*uint64(to.node.Index+1)), own(pieceStream+100*uint64(to.node.Index+1))
	to.drawShares(p.w, shares)
	f.ordered = p.ordered
	var far []*area
	for i := range 1 + rng.IntN(2) {
		far = append(far, &area{node: to.node, name: fmt.Sprintf("pairing %d, export %d", p.number, i)})
	}
	for _, a := range far {
		a.carry = p.w.world.heaped()
	}
	near := &area{node: from.node, carry: p.w.world.heaped(), name: fmt.Sprintf("pairing %d, local", p.number)}
	mail := &area{node: to.node, name: fmt.Sprintf("pairing %d, buffers", p.number)}
	for i := range rng.IntN(most + 1) {
		o := &operation{size: drawSize(rng)}
		want := drawData(rng, o.size)
		o.op.Kind = engine.OpWrite
		if rng.IntN(4) == 0 && kind != plainWrites {
			o.op.Kind = engine.OpRead
		}
		if rng.IntN(2) == 0 {
			o.op.Flags = engine.OpFlags(rng.IntN(8))
		}
		o.op.Token, o.op.Late, o.op.Imm = uint64(i), uint64(i), uint32(i)|rng.Uint32()<<16
		if o.op.Kind == engine.OpWrite && locals.IntN(3) == 0 {
			o.op.Flags |= engine.LocalDone
		}
		a := far[rng.IntN(len(far))]
		byValue := o.op.Kind == engine.OpWrite && o.size <= engine.MaxInline && rng.IntN(2) == 0
		switch {
		case byValue && o.size >= 8 && o.op.Imm>>30 != 0 && kind != plainWrites && !a.carry:
			o.size, want = 8, want[:8]
			o.op.Flags &^= engine.LocalDone
			o.op.SetAtomic(addition(want))
			a.align()
		case o.op.Kind == engine.OpWrite && kind != plainWrites && p.w.world.opt.Misses.Delay == 0 &&
			to.drawMessage(p.w.mail): // messages are of memory that is registered whole
			o.op.Kind, a = engine.OpSend, mail
			o.op.Flags &^= engine.LocalDone
			if want = to.shares.cut(o, want, shares, kind); !to.shares.tooLong(o) {
				o.hurries(patience, p, kind)
			}
		}
		if !byValue {
			o.composes(eager, p, kind)
		}
		if o.op.Kind == engine.OpSend && !o.dropped {
			to.await(o, want)
		} else {
			o.far = a.slot(o.size, want, o.op.Kind == engine.OpRead)
		}
		switch {
		case o.op.Kind == engine.OpAtomic:
		case byValue:
			o.op.Inline = uint8(copy(o.op.Data[:], want))
		default:
			o.near = near.slot(o.size, want, o.op.Kind != engine.OpRead)
		}
		o.bad = kind == anyOperations && rng.IntN(16) == 0 && !o.dropped
		if o.draft != nil {
			o.draft.begin(o)
		}
		f.ops = append(f.ops, o)
	}
	to.layBuffers(mail)
	for i, a := range append(far, near, mail) {
		a.make(uint32(i+1), kind == anyOperations)
	}
	for _, o := range f.ops {
		if o.op.Kind != engine.OpSend {
			o.place(rng)
		}
		if o.near != nil {
			o.useLocal(near, pieces)
		}
	}
	to.exports, to.mail, from.local = far, mail, near
}

// useLocal has an operation name its local memory, in pieces sometimes, some of them empty. Couriers carry one piece.
func (o *operation) useLocal(near *area, rng *rand.Rand) {
	o.op.Local, o.op.Region, o.op.LocalOff = near.local(o.near.off, o.near.n), near.region, uint64(o.near.off)
	if rng.IntN(4) > 0 || o.size == 0 || near.carry || o.draft != nil || o.op.Flags&engine.LocalDone != 0 {
		return
	}
	list, off := new(engine.Pieces), 0
	o.pieces = 1 + rng.IntN(engine.MaxPieces)
	for n := o.pieces - 1; n >= 0; n-- {
		end := o.size
		if n > 0 {
			end = off + rng.IntN(o.size-off+1)
		}
		list.Add(o.op.Local[off:end:end], o.op.Region, o.op.LocalOff+uint64(off))
		off = end
	}
	o.op.Local, o.op.Region, o.op.LocalOff, o.op.Pieces = nil, nil, 0, list
}

// place says where in the peer's memory a write or read is, or is not on purpose.
func (o *operation) place(rng *rand.Rand) {
	o.op.Off = uint64(o.far.off)
	if o.bad { // of a long write that ends outside, the parts inside would land: each is checked alone (clause 6.9)
		at := uint64(o.far.area.size)
		o.op.Off = []uint64{at, ^uint64(7), at - uint64(o.size) + 1}[rng.IntN(3)]
		if o.size == 0 || o.size > 100 {
			o.op.Off = at + 1
		}
	}
}

var nothing = binary.NativeEndian.Uint64(blank)

// addition is the atomic that makes want of 8 bytes that nobody has touched, if it is performed once.
func addition(want []byte) engine.Atomic {
	return engine.Atomic{Func: wire.AtomicAdd, Size: 8, Operand: binary.NativeEndian.Uint64(want) - nothing}
}

type planKind int

const (
	anyOperations  planKind = iota
	plainWrites             // none that the peer answers with anything but OpAck
	goodOperations          // few, that must all succeed
)

func drawSize(rng *rand.Rand) int {
	switch rng.IntN(8) {
	case 0, 1:
		return rng.IntN(30)
	case 2, 3, 4, 5:
		return rng.IntN(3000)
	}
	return rng.IntN(40000)
}

// drawData returns n bytes without their top bits.
func drawData(rng *rand.Rand, n int) []byte {
	b := make([]byte, (n+7)&^7)
	for i := 0; i < n; i += 8 {
		binary.LittleEndian.PutUint64(b[i:], rng.Uint64()&0x7f7f7f7f7f7f7f7f)
	}
	return b[:n:n]
}

// post submits what fits and is due.
func (w *swarm) post(e *end) {
	f := &e.flow
	for e.state == endOpen && f.next < len(f.ops) {
		w.composeAhead(e)
		if w.world.Now < f.after {
			return // a call is on its way
		}
		o := f.ops[f.next]
		o.op.Key = o.far.area.key
		if o.submitted {
			if !w.commit(e, o) {
				return
			}
		} else if o.draft != nil || !e.node.E.Submit(w.world.Now, e.conn, &o.op) {
			return
		}
		o.submittedAt(w.world.Now, e)
		f.next++
		f.took(o)
		if f.gap > 0 {
			f.after = w.world.Now.Add(f.gap)
			w.world.After(f.gap, func() { w.post(e) })
		}
	}
}

// took notes that an operation is under way.
func (f *flow) took(o *operation) {
	if o.submitted {
		return
	}
	o.submitted = true
	f.open++
	if o.near != nil {
		o.uses(f, 1)
	}
}

// uses counts what an operation uses of the local memory, or not any more.
func (o *operation) uses(f *flow, n int) {
	const gathered = 1024 // bytes, at most, of which the engine may make a copy when the operation enters
	switch {
	case o.pieces == 0:
		f.using += n
	case o.op.Kind == engine.OpRead || o.size > gathered:
		f.using += n * o.pieces
	case o.op.Pieces != nil: // Submit has not gathered them; it may happen yet
		f.pieces += n * o.pieces
	}
}

// completed checks a completion against the oracle, and uses the memory again that is the owners' now.
func (w *swarm) completed(e *end, ev *engine.Event) {
	f := &e.flow
	if ev.Token >= uint64(len(f.ops)) || !f.ops[ev.Token].submitted || f.ops[ev.Token].complete {
		w.world.fault("%v: operation %d completed twice, or was never submitted", e, ev.Token)
		return
	}
	o := f.ops[ev.Token]
	if o.given != (ev.Kind == engine.EvLate) || ev.Local && o.op.Flags&engine.LocalDone == 0 {
		w.world.fault("%v: operation %d, with flags %d, ended by event %d (local %v)", e, ev.Token, o.op.Flags, ev.Kind,
			ev.Local)
		return
	}
	if !o.given {
		f.open--
	}
	if ev.Local {
		o.given = true
		e.giveBack(o)
		return
	}
	o.complete, o.status = true, ev.Status
	if o.op.Kind == engine.OpAtomic && ev.Status == engine.OK && ev.Value != nothing {
		w.world.fault("%v: atomic %d found %#x", e, ev.Token, ev.Value)
	}
	if err := e.judge(o, ev.Status); err != nil {
		w.world.fault("%v: operation %d of %d bytes (kind %d, flags %d, bad %v) completed with %q: %w", e, ev.Token,
			o.size,
			o.op.Kind, o.op.Flags, o.bad, ev.Status, err)
	}
	if !o.given {
		e.giveBack(o)
	}
	if ev.Status == engine.OK && o.far.mark == 0 && o.op.Kind != engine.OpSend {
		o.far.fill(reused)
	}
}

// giveBack uses the local memory of an operation again: the transport must neither read nor write it any more.
func (e *end) giveBack(o *operation) {
	if o.near == nil {
		return
	}
	o.uses(&e.flow, -1)
	if o.status != engine.OK {
		o.near.area.settle()
	}
	if err := o.near.check(); err != nil {
		e.pairing.w.world.fault("%v: %w", e, err)
	}
	o.near.fill(spent)
}

// judge says whether an operation may end so.
func (e *end) judge(o *operation, st engine.Status) error {
	p, void := e.pairing, o.far.area.void
	if o.memoryFailed(st) {
		return nil
	}
	switch st {
	case engine.OK:
		if o.bad {
			return fmt.Errorf("it reaches outside the memory")
		}
		if o.op.Kind == engine.OpRead && !o.near.has() {
			return fmt.Errorf("wrong data was read")
		}
		if placed := o.op.Kind == engine.OpWrite || o.op.Kind == engine.OpAtomic; placed && !o.far.has() &&
			!o.far.whole {
			return fmt.Errorf("the data is not in place (void %v)", void)
		}
		if o.op.Kind == engine.OpSend && !e.other.has(o) {
			return fmt.Errorf("the message is in no buffer (passed over %v)", o.msg.passed)
		}
		return nil
	case engine.StatusNoBuffer:
		if err := e.other.judgeShortage(o); err != nil {
			return err
		}
		return o.judgeRefusal(p.w)
	case engine.StatusTooLong:
		if o.bad && o.op.Kind == engine.OpSend {
			return nil
		}
	case engine.StatusBounds:
		if o.bad && o.op.Kind != engine.OpSend {
			return nil
		}
	case engine.StatusKey:
		if void {
			return nil
		}
	case engine.StatusClosed, engine.StatusReset:
		if p.ended || e.closing && o.draft != nil && !o.draft.over {
			return nil
		}
	case engine.StatusAborted:
		if e.aborted || o.dropped && o.draft.over {
			return nil
		}
	case engine.StatusPeerDown:
		if p.dropped() != nil {
			return nil
		}
	}
	return fmt.Errorf("nothing explains it")
}

// fences checks clauses 6.5 and 6.6 on memory itself: no byte of an operation before what its fences demand.
func (f *flow) fences() error {
	for f.checked < f.next && f.ops[f.checked].complete {
		f.checked++
	}
	allBefore, forward := true, true
	for i, o := range f.ops[f.checked:f.next] {
		i += f.checked
		if o.far.area.void {
			return nil
		}
		known := (o.op.Kind == engine.OpWrite || o.op.Kind == engine.OpAtomic) && !o.bad && o.size > 0 && !o.dropped
		if !known || o.complete {
			o.applied = true
			continue
		}
		if !o.applied {
			slot := o.far.bytes()
			o.touched = o.touched || notAll(slot, untouched) >= 0
			if o.touched {
				if (o.op.Flags&engine.BackwardFence != 0 || f.ordered) && !allBefore {
					return fmt.Errorf("operation %d has a backward fence and was placed before one before it was "+
						"applied", i)
				}
				if !forward {
					return fmt.Errorf("operation %d was placed before the forward-fenced one before it was applied", i)
				}
				o.applied = o.far.has()
			}
		}
		if !o.applied {
			allBefore = false
			forward = forward && o.op.Flags&engine.ForwardFence == 0
		}
	}
	return nil
}
