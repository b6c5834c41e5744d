package sim

import (
	"bytes"
	"fmt"

	"multiedge/regmem"
)

// What bytes are when they are not data, whose top bit is never set.
const (
	untouched = 0xCA // nothing arrived yet; canaries stay so for ever
	reused    = 0xEE // the owner has written over memory that is his again
	// local memory of an operation that completed: the transport must neither read nor write it any more
	spent = 0xDD
)

const canary = 16

// area is memory of one end of a connection: exported to the other end, or local to its own operations. Each operation
// has a slot of its own, with a canary on either side.
type area struct {
	node   *Node
	name   string
	size   int
	buf    []byte
	slots  []*slot
	region *regmem.Region
	pages  *pages   // nil: all of it is always there
	carry  bool     // it becomes a heap
	heap   *carried // nil: the engine has it
	key    regmem.Key
	void   bool // revoked, or its connection or node is gone: nothing may land any more
}

// slot is the part of an area that one operation uses. Data goes from it, or comes to it.
type slot struct {
	area   *area
	off, n int
	want   []byte       // what comes, or what goes
	among  []*operation // of a buffer: the messages one of which comes, at its beginning
	source bool         // data goes from here
	whole  bool         // everything had come when the area became void
	mark   byte         // if not 0: all bytes are this
	loose  bool         // its owner is writing here
	pool   *pool        // it is a buffer of that, for any message that comes from there
}

var blank = bytes.Repeat([]byte{untouched}, 64<<10)

// slot sets aside n bytes.
func (a *area) slot(n int, want []byte, source bool) *slot {
	s := &slot{area: a, off: a.size + canary, n: n, want: want, source: source}
	a.size = s.off + n
	a.slots = append(a.slots, s)
	return s
}

// align puts the next slot at a multiple of 8, for atomics.
func (a *area) align() { a.size = (a.size + 7) &^ 7 }

// make gives the area its memory once all slots are known. stuck says that pages of it may never come.
func (a *area) make(id uint32, stuck bool) {
	a.size += canary
	a.buf = bytes.Repeat([]byte{untouched}, a.size)
	for _, s := range a.slots {
		if s.source {
			copy(s.bytes(), s.want)
		}
	}
	a.region = &regmem.Region{ID: id, Mem: regmem.Wrap(a.buf)}
	if w := a.node.w; w.opt.Misses.Delay > 0 {
		a.pages = newPages(w, a, stuck)
		a.region.Back = a.pages
		if a.carry {
			a.heap = newHeap(w, a)
		}
	}
}

func (s *slot) bytes() []byte { return s.area.buf[s.off : s.off+s.n : s.off+s.n] }

// has reports whether the data is there.
func (s *slot) has() bool { return s.mark == 0 && bytes.Equal(s.bytes(), s.want) }

// fill is the owner's own use of the memory: from now on nobody else may write it.
func (s *slot) fill(mark byte) {
	s.mark = mark
	b := s.bytes()
	for i := range b {
		b[i] = mark
	}
}

// end makes the area void and reuses its memory.
func (a *area) end() {
	if a.void {
		return
	}
	a.void = true
	a.settle()
	for _, s := range a.slots {
		s.whole = s.has() || s.mark != 0
		s.fill(reused)
	}
}

// check compares one slot with what may be there.
func (s *slot) check() error {
	b := s.bytes()
	switch {
	case s.loose:
	case s.mark != 0:
		if i := notAll(b, s.mark); i >= 0 {
			return fmt.Errorf("node%d, %s: byte %d of the operation at %d became %#x after its end", s.area.node.Index,
				s.area.name, i, s.off, b[i])
		}
	case s.source:
		if !bytes.Equal(b, s.want) {
			return fmt.Errorf("node%d, %s: the data to be sent at %d was written to", s.area.node.Index, s.area.name,
				s.off)
		}
	case s.among != nil:
		return s.checkAny(s.among)
	case s.pool != nil && notAll(b, untouched) >= 0:
		return s.checkAny(s.pool.coming())
	case !bytes.Equal(b, s.want) && !bytes.Equal(b, blank[:len(b)]):
		for i := range b {
			if b[i] != s.want[i] && b[i] != untouched {
				return fmt.Errorf("node%d, %s: byte %d of the operation at %d became %#x, want %#x", s.area.node.Index,
					s.area.name, i, s.off, b[i], s.want[i])
			}
		}
	}
	return nil
}

// notAll returns the index of the first byte that is not mark, -1 if there is none.
func notAll(b []byte, mark byte) int {
	if len(b) == 0 || b[0] == mark && bytes.Equal(b[1:], b[:len(b)-1]) {
		return -1
	}
	for i := range b {
		if b[i] != mark {
			return i
		}
	}
	return -1
}

// canaries checks what stands between the slots.
func (a *area) canaries() error {
	at := 0
	for i := 0; i <= len(a.slots); i++ {
		if j := notAll(a.buf[at:at+canary], untouched); j >= 0 {
			return fmt.Errorf("node%d, %s: the canary at %d was written to", a.node.Index, a.name, at+j)
		}
		if i < len(a.slots) {
			at = a.slots[i].off + a.slots[i].n
		}
	}
	if a.heap != nil && notAll(a.heap.nil, never) >= 0 {
		return fmt.Errorf("node%d, %s: the engine wrote to memory that is not there", a.node.Index, a.name)
	}
	return nil
}

func (a *area) checkAll() error {
	for _, s := range a.slots {
		if err := s.check(); err != nil {
			return err
		}
	}
	return a.canaries()
}
