package remap

import (
	"cmp"
	"slices"
)

// Op names the operation that bytes belong to.
type Op struct {
	Conn, Seq uint32
	Read      bool // the data of a read of ours, not a write of the peer's
}

// Counts are totals since the Exchanger was made.
type Counts struct {
	Exchanges uint64 // runs of pages
	Bytes     uint64 // in them
	Frames    uint64 // payloads that were received into pages which were then exchanged: never copied
	Copied    uint64 // bytes that were received for an exchange and copied after all
	Failures  uint64 // exchanges that the kernel refused; the bytes were copied
}

// Exchanger receives long runs of an operation's data into pages of a pool and exchanges each run, once it is whole,
// for the pages of the region that it belongs to. To its user it is a cache of memory: bytes given to Deliver count as
// in place, and are after Settle. Every byte of an extent belongs to one operation; the pages around are never touched.
// Bytes become visible when the extent is whole or the operation is settled.
//
// What the owner must do: Settle an operation before it tells anybody that it has ended; SettleConn before a
// connection's end is told; SettleAll before a key is revoked; Remove before a Space is closed. Nothing here allocates
// after Add. One goroutine at a time.
type Exchanger struct {
	Counts Counts
	spaces []*Space // by address
	open   []extent
	round  uint64
	least  int // the smallest of the spaces'
	spare  spare
}

// Prepare makes what the Exchanger needs to lend buffers before the first Space is added. It allocates 2 MiB, once.
func (t *Exchanger) Prepare() {
	if t.open == nil {
		t.open = make([]extent, 0, 64)
		t.spare.init()
	}
}

// Add makes a Space's pages exchangeable.
func (t *Exchanger) Add(s *Space) {
	i, _ := slices.BinarySearchFunc(t.spaces, s.base, func(o *Space, a uintptr) int { return cmp.Compare(o.base, a) })
	t.spaces = slices.Insert(t.spaces, i, s)
	t.Prepare()
	if t.least == 0 || s.least < t.least {
		t.least = s.least
	}
}

// Remove forgets a Space, whose bytes nobody writes to any more.
func (t *Exchanger) Remove(s *Space) {
	t.settle(func(x *extent) bool { return x.space == s })
	t.spaces = slices.DeleteFunc(t.spaces, func(o *Space) bool { return o == s })
}

// Round begins a new series of Slot. Places given out in earlier rounds are not received into any more.
func (t *Exchanger) Round() {
	t.round++
	t.spare.reset()
}

// Slot returns where to receive the bytes whose place is dst, as many: in the pool if they belong to a run that can be
// exchanged, else in a buffer from which they will be copied, as the paper does with what is no whole page. Of the same
// operation, behind bytes before dst are in place already and ahead bytes from the start of dst on are expected.
func (t *Exchanger) Slot(op Op, dst []byte, behind, ahead uint64) []byte {
	if len(dst) == 0 || len(t.open) == 0 && ahead+behind < uint64(t.least) {
		return t.spare.lend(dst)
	}
	lo := address(dst)
	hi := lo + uintptr(len(dst))
	t.claim(op, lo, hi)
	x := t.over(lo, hi)
	if x == nil {
		if x = t.begin(op, lo, behind, ahead); x == nil {
			return t.spare.lend(dst)
		}
	}
	at := int(lo - x.base)
	if lo < x.base || at+len(dst) > x.n {
		return t.spare.lend(dst)
	}
	x.round = t.round
	return x.bytes()[at : at+len(dst) : at+len(dst)]
}

// WholePages reports whether b is pages of so many bytes and nothing else: from a page boundary on.
func WholePages(b []byte, page int) bool {
	return len(b) > 0 && (address(b)|uintptr(len(b)))&uintptr(page-1) == 0
}

// over returns the open extent with the lowest address that shares bytes with [lo, hi).
func (t *Exchanger) over(lo, hi uintptr) (found *extent) {
	for i := range t.open {
		x := &t.open[i]
		if lo < x.base+uintptr(x.n) && x.base < hi && (found == nil || x.base < found.base) {
			found = x
		}
	}
	return found
}

// index returns where in t.open an extent is.
func (t *Exchanger) index(x *extent) int {
	for i := range t.open {
		if &t.open[i] == x {
			return i
		}
	}
	panic("BUG: remap: an extent that is not open")
}

// begin opens an extent at lo, or at the next grain, if a run worth exchanging lies there.
func (t *Exchanger) begin(op Op, lo uintptr, behind, ahead uint64) *extent {
	s := t.spaceOf(lo)
	if s == nil || len(t.open) == cap(t.open) {
		return nil
	}
	off := int(lo - s.base)
	at := up(off, s.grain)
	if back := down(off, s.grain); uint64(off-back) <= behind {
		at = back
	}
	end := down(off+int(min(ahead, uint64(len(s.view)-off))), s.grain)
	n := min(end-at, s.extent)
	base := s.base + uintptr(at)
	if n < s.least || t.over(base, base+uintptr(n)) != nil || len(s.free) == 0 && !t.evict(s) {
		return nil
	}
	k := len(s.free) - 1
	if !s.worth(at, s.free[k], n) {
		return nil
	}
	t.open = append(t.open, extent{op: op, space: s, at: at, n: n, slot: s.free[k], base: base, round: t.round})
	s.free = s.free[:k]
	x := &t.open[len(t.open)-1]
	if have := off - at; have > 0 { // received before the extent was there
		copy(x.bytes()[:have], x.place())
		x.add(0, have)
	}
	return x
}

// evict settles an extent of s that nothing was received into for long.
func (t *Exchanger) evict(s *Space) bool {
	for i := range t.open {
		if x := &t.open[i]; x.space == s && t.round-x.round > stale {
			t.finish(i)
			return len(s.free) > 0
		}
	}
	return false
}

// spaceOf returns the space whose region holds the byte at an address.
func (t *Exchanger) spaceOf(a uintptr) *Space {
	i, exact := slices.BinarySearchFunc(t.spaces, a, func(o *Space, a uintptr) int { return cmp.Compare(o.base, a) })
	if !exact {
		i--
	}
	if i < 0 || a-t.spaces[i].base >= uintptr(len(t.spaces[i].view)) {
		return nil
	}
	return t.spaces[i]
}

// Lies reports whether body is where Slot wanted the bytes whose place is dst to be received, and still does.
func (t *Exchanger) Lies(op Op, dst, body []byte) bool {
	lo := address(dst)
	x := t.over(lo, lo+uintptr(len(dst)))
	if x != nil && x.op == op && lo >= x.base && int(lo-x.base)+len(body) <= x.n && &x.bytes()[lo-x.base] == &body[0] {
		return true
	}
	return t.spare.lentFor(lo, body)
}

// Deliver takes data, as long as dst, whose place is dst. It reports false, and nothing is done, if no extent of the
// operation is concerned: the caller puts the bytes in their place.
func (t *Exchanger) Deliver(op Op, dst, data []byte) (handled bool) {
	lo := address(dst)
	if len(t.open) == 0 || !t.claim(op, lo, lo+uintptr(len(dst))) {
		return false
	}
	t.put(op, dst, data)
	return true
}

// claim settles what waits of other operations in [lo, hi), so that it will not come over what is received there now.
// It reports whether an extent of op is there.
func (t *Exchanger) claim(op Op, lo, hi uintptr) (mine bool) {
	for i := len(t.open) - 1; i >= 0; i-- {
		switch x := &t.open[i]; {
		case lo >= x.base+uintptr(x.n) || x.base >= hi:
		case x.op == op:
			mine = true
		default:
			t.finish(i)
		}
	}
	return mine
}

// put copies the parts of data that are not where they belong: in an extent or, outside of all, in dst.
func (t *Exchanger) put(op Op, dst, data []byte) {
	lo := address(dst)
	for at := 0; at < len(dst); {
		x := t.over(lo+uintptr(at), lo+uintptr(len(dst)))
		if x == nil {
			place(dst[at:], data[at:])
			return
		}
		from := at
		if a := lo + uintptr(at); a < x.base {
			from += int(x.base - a)
			place(dst[at:from], data[at:from])
		}
		off := int(lo + uintptr(from) - x.base)
		n := min(len(dst)-from, x.n-off)
		at = from + n
		if !x.add(off, off+n) { // too many holes
			t.finish(t.index(x))
			place(dst[from:at], data[from:at])
			continue
		}
		if place(x.bytes()[off:off+n], data[from:at]) && n == len(dst) {
			x.clean++
		}
		if x.size == x.n {
			t.finish(t.index(x))
		}
	}
}

// place copies data to dst and reports whether it was there already.
func place(dst, data []byte) bool {
	if &dst[0] == &data[0] {
		return true
	}
	copy(dst, data)
	return false
}

// Settle puts everything received of an operation in its place.
func (t *Exchanger) Settle(op Op) {
	if len(t.open) > 0 {
		t.settle(func(x *extent) bool { return x.op == op })
	}
}

// SettleConn does so for all operations of a connection.
func (t *Exchanger) SettleConn(conn uint32) {
	t.settle(func(x *extent) bool { return x.op.Conn == conn })
}

// SettleAll does so for all operations.
func (t *Exchanger) SettleAll() { t.settle(func(*extent) bool { return true }) }

func (t *Exchanger) settle(which func(*extent) bool) {
	for i := len(t.open) - 1; i >= 0; i-- {
		if which(&t.open[i]) {
			t.finish(i)
		}
	}
}

// finish closes an extent: exchanges it if it is whole, or copies what there is.
func (t *Exchanger) finish(i int) {
	x := &t.open[i]
	s := x.space
	exchanged, usable := false, true
	if x.size == x.n {
		whole, err := s.Exchange(x.at, x.slot, x.n)
		if exchanged, usable = err == nil, whole; err != nil {
			t.Counts.Failures++
		}
	}
	if exchanged {
		t.Counts.Exchanges++
		t.Counts.Bytes += uint64(x.n)
		t.Counts.Frames += uint64(x.clean)
	} else {
		for _, p := range x.spans[:x.parts] {
			t.Counts.Copied += uint64(copy(x.place()[p.lo:p.hi], x.bytes()[p.lo:p.hi]))
		}
	}
	if usable {
		s.free = append(s.free, x.slot)
	}
	last := len(t.open) - 1
	t.open[i] = t.open[last]
	t.open[last] = extent{}
	t.open = t.open[:last]
}
