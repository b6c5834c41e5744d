package pattern

import "fmt"

// Guard is the number of bytes at each end of a region that nobody exports: a page of canary.
const Guard = 4096

// gap is the canary between two checked slots, and the alignment of slots.
const gap = 64

// Layout divides a region into slots of one message each:
//
//	guard | message pad gap | message pad gap | ... | guard
//
// Pads and gaps exist only in checked layouts; unchecked slots touch each other when the message is a multiple of the
// alignment.
type Layout struct {
	Message int  // bytes of a message
	Stride  int  // bytes from one slot to the next
	Slots   int  // how many slots there are
	Checked bool // slots are surrounded by canaries
	Shift   int  // bytes by which the slots begin later than they could
}

// stride of slots for a message size.
func strideFor(message int, checked bool) int {
	if checked {
		return (message+gap-1)/gap*gap + gap
	}
	if message >= gap {
		return (message + gap - 1) / gap * gap
	}
	for s := 8; ; s *= 2 { // small messages share cache lines, as small writes do
		if s >= message {
			return s
		}
	}
}

// Need returns the region size that holds slots messages.
func Need(message, slots int, checked bool) int {
	return 2*Guard + gap + slots*strideFor(message, checked)
}

// NewLayout divides a region of size bytes. At most limit slots are made; limit 0 means as many as fit.
func NewLayout(size, message, limit int, checked bool) (Layout, error) {
	l := Layout{Message: message, Stride: strideFor(message, checked), Checked: checked}
	l.Slots = (size - 2*Guard - gap) / l.Stride
	if l.Slots < 1 {
		return l, fmt.Errorf("a message of %d bytes does not fit a region of %d bytes: needs %d", message, size,
			Need(message, 1, checked))
	}
	if limit > 0 {
		l.Slots = min(l.Slots, limit)
	}
	return l, nil
}

// Off returns where in the region slot begins.
func (l Layout) Off(slot int) int { return Guard + gap + l.Shift + slot*l.Stride }

// Pair returns the layouts of a source and a destination region of size bytes such that message seq travels from source
// slot seq mod src.Slots to destination slot seq mod dst.Slots, and a destination slot never receives the same content
// twice in a row. The source then needs to be filled only once. Both regions must hold two messages when checked.
func Pair(size, message int, checked bool) (src, dst Layout, err error) {
	src, err = NewLayout(size, message, 0, checked)
	if err != nil {
		return src, dst, err
	}
	dst = src
	if checked {
		if src.Slots < 2 {
			return src, dst, fmt.Errorf("checking messages of %d bytes needs regions of %d bytes, these are %d",
				message, Need(message, 2, checked), size)
		}
		dst.Slots = src.Slots - 1
	}
	return src, dst, nil
}

// canaries is what region bytes hold wherever no message may be written, repeating: index i of a region holds
// canaries[i%len].
var canaries = func() (c [gap]byte) {
	for i := range c {
		c[i] = byte(mix(uint64(i)^0xCA7A21E5)) | 1 // never zero, which is what untouched memory holds
	}
	return c
}()

// arm writes canaries over region[from:to].
func arm(region []byte, from, to int) {
	for from < to {
		from += copy(region[from:to], canaries[from%gap:])
	}
}

// broken returns the first index in [from, to) of region that is no longer canary, or -1.
func broken(region []byte, from, to int) int {
	for from < to {
		want := canaries[from%gap:]
		want = want[:min(len(want), to-from)]
		if string(region[from:from+len(want)]) == string(want) {
			from += len(want)
			continue
		}
		for i := range want {
			if region[from+i] != want[i] {
				return from + i
			}
		}
	}
	return -1
}

// Arm writes canaries into everything of region outside messages. Message bytes are left alone.
func (l Layout) Arm(region []byte) {
	l.outside(region, func(from, to int) bool {
		arm(region, from, to)
		return true
	})
}

// outside calls f for each range of region that no message may touch, until f returns false. The end guard of an
// unchecked layout starts behind the last slot.
func (l Layout) outside(region []byte, f func(from, to int) bool) {
	if !f(0, l.Off(0)) {
		return
	}
	if l.Checked {
		for s := range l.Slots {
			if !f(l.Off(s)+l.Message, l.Off(s+1)) {
				return
			}
		}
	}
	f(l.Off(l.Slots), len(region))
}

// Fill arms region and fills each slot with the content of its number.
func (l Layout) Fill(region []byte, src *Source) {
	l.Arm(region)
	for s := range l.Slots {
		src.Fill(region[l.Off(s):l.Off(s)+l.Message], uint64(s))
	}
}
