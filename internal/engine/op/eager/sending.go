package eager

import (
	"math"
	"math/bits"

	"multiedge/internal/seqnum"
)

// Message is a message of ours, until it is committed and everything of it has arrived.
type Message[O any] struct {
	Op        O      // what it becomes
	Name      uint64 // by which its owner commits it
	Mem       []byte
	Size      uint64 // of what was committed
	Number    uint32 // at the peer, if it is Numbered: from the first block sent on
	Numbered  bool
	Committed bool
	Refused   bool // the peer has no room for a draft
	Sent      bool // of a committed one: its Commit was, as operation Seq
	Seq       seqnum.Value

	sum    uint64   // of stamps
	stamp  uint32   // the latest
	stamps []uint32 // of each block as it was sent last; 0: never
	marks  []uint64 // blocks to be sent, a bit each
	left   int      // of marks
}

// lastStamp is the last before the commit, which needs another one.
const lastStamp = math.MaxUint32 - 1

// Sum is what the stamps of all blocks of a committed message add up to.
func (m *Message[O]) Sum() uint64 { return m.sum }

// Left is how many blocks are to be sent.
func (m *Message[O]) Left() int { return m.left }

// setStamp gives block b the latest stamp.
func (m *Message[O]) setStamp(b int) {
	m.sum += uint64(m.stamp - m.stamps[b])
	m.stamps[b] = m.stamp
}

func (m *Message[O]) marked(b int) bool { return m.marks[b/64]>>(b%64)&1 != 0 }

// Sending is the messages that a connection composes.
type Sending[O any] struct {
	List   []*Message[O]
	Marked int // blocks of them that are to be sent
	next   uint32
	ended  numbers // those that the peer has no draft of any more
}

// Composing is how many of the messages are not committed.
func (s *Sending[O]) Composing() (n int) {
	for _, m := range s.List {
		if !m.Committed {
			n++
		}
	}
	return n
}

// Find returns the message of that name that is being composed; nil: there is none.
func (s *Sending[O]) Find(name uint64) *Message[O] {
	for _, m := range s.List {
		if !m.Committed && m.Name == name {
			return m
		}
	}
	return nil
}

// byNumber returns a message that the peer may have a draft of.
func (s *Sending[O]) byNumber(number uint32) *Message[O] {
	for _, m := range s.List {
		if m.Numbered && m.Number == number {
			return m
		}
	}
	return nil
}

// Write marks the blocks of n bytes from off on, as far as the message has them. It reports whether there is something
// to be sent.
func (s *Sending[O]) Write(m *Message[O], off, n uint64) bool {
	size := uint64(len(m.Mem))
	off = min(off, size)
	if n = min(n, size-off); n == 0 || m.Refused {
		return false
	}
	first, last := int(off/Block), int((off+n-1)/Block)
	for w := first / 64; w <= last/64; w++ {
		more := ^uint64(0)
		if w == first/64 {
			more <<= first % 64
		}
		if w == last/64 {
			more &= ^uint64(0) >> (63 - last%64)
		}
		n := bits.OnesCount64(more &^ m.marks[w])
		m.marks[w] |= more
		m.left += n
		s.Marked += n
	}
	return true
}

func (s *Sending[O]) mark(m *Message[O], b int) {
	if !m.marked(b) {
		m.marks[b/64] |= 1 << (b % 64)
		m.left++
		s.Marked++
	}
}

func (s *Sending[O]) unmark(m *Message[O], b int) {
	if m.marked(b) {
		m.marks[b/64] &^= 1 << (b % 64)
		m.left--
		s.Marked--
	}
}

// unmarkAll gives up sending the blocks of a message.
func (s *Sending[O]) unmarkAll(m *Message[O]) {
	s.Marked -= m.left
	m.left = 0
	clear(m.marks)
}

// Freeze commits the first n bytes of a message: what is to be sent of them gets its last stamp, and their bytes do not
// change any more.
func (s *Sending[O]) Freeze(m *Message[O], n uint64) {
	m.Committed, m.Size = true, n
	m.stamp++
	end := blocks(n)
	for b := range m.stamps {
		switch {
		case b < end && (m.marked(b) || m.stamps[b] == 0):
			m.setStamp(b)
			s.mark(m, b)
		case m.stamps[b] == 0:
			s.unmark(m, b)
		}
	}
}

// Forget has nothing more sent of a message.
func (s *Sending[O]) Forget(m *Message[O]) {
	s.unmarkAll(m)
	for i, o := range s.List {
		if o == m {
			last := len(s.List) - 1
			s.List[i], s.List[last] = s.List[last], nil
			s.List = s.List[:last]
			return
		}
	}
}

// Ended notes that the peer has no draft of that number any more. It reports whether blocks are to be sent: their
// messages may find a number now.
func (s *Sending[O]) Ended(number uint32) bool {
	s.ended.add(number)
	return s.Marked > 0
}

// Refuse notes that the peer has no room for the draft of that number, and returns the message. Nil: it is over, or
// was refused before.
func (s *Sending[O]) Refuse(number uint32) *Message[O] {
	m := s.byNumber(number)
	if m == nil || m.Refused {
		return nil
	}
	m.Refused = true
	s.unmarkAll(m)
	return m
}

// Lost marks blocks whose frame was lost, unless they left again since: those at off of n bytes with that stamp.
func (s *Sending[O]) Lost(number uint32, off, n uint64, stamp uint32) {
	m := s.byNumber(number)
	if m == nil || m.Refused {
		return
	}
	for b := int(off / Block); b < len(m.stamps) && uint64(b)*Block < off+n; b++ {
		if m.stamps[b] == stamp {
			s.mark(m, b)
		}
	}
}

// MayLeave reports whether blocks of a message may be sent, among those of messages that are committed, or of the
// others.
func (s *Sending[O]) MayLeave(m *Message[O], committed bool) bool {
	return m.Committed == committed && (m.left == 0 || m.Numbered || s.ended.fits(s.next)) &&
		(committed || m.stamp != lastStamp)
}

// Run is bytes [Lo, Hi) of a message on their way, with the stamp of their blocks.
type Run struct {
	Lo, Hi uint64
	Stamp  uint32
}

// Take returns the first blocks that are to be sent, which follow each other, room of them at most. It reports false if
// there are none. Blocks of a message that is not committed get a fresh stamp, since their bytes may have changed; the
// others have stamps that count already.
func (s *Sending[O]) Take(m *Message[O], room int) (Run, bool) {
	b := 0
	for i, word := range m.marks {
		if word != 0 {
			b = 64*i + bits.TrailingZeros64(word)
			break
		}
	}
	end := b
	for end < len(m.stamps) && end-b < room && m.marked(end) && (!m.Committed || m.stamps[end] == m.stamps[b]) {
		end++
	}
	if end == b {
		return Run{}, false
	}
	if !m.Numbered {
		m.Numbered, m.Number = true, s.next
		s.next++
	}
	if !m.Committed {
		m.stamp++
	}
	for i := b; i < end; i++ {
		s.unmark(m, i)
		if !m.Committed {
			m.setStamp(i)
		}
	}
	return Run{uint64(b) * Block, min(uint64(end)*Block, uint64(len(m.Mem))), m.stamps[b]}, true
}
