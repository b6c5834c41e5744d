package pattern

import "fmt"

// maxDetails bounds how many errors a Checker describes; all are counted.
const maxDetails = 8

// Checker verifies messages in a destination region as they arrive, in any order. It counts an error for each message
// that is wrong, for each message announced twice or never, and for each canary that was overwritten. It is not safe
// for concurrent use.
type Checker struct {
	Errors  uint64
	Details []string // the first few errors in words

	src      *Source
	region   []byte
	from, to Layout
	floor    uint64   // every message below it was checked
	seen     []uint64 // by destination slot: 1 + the last message checked there
}

// NewChecker arms region with the canaries of the layout to and returns a checker of messages that come from a peer's
// layout from.
func NewChecker(src *Source, region []byte, from, to Layout) *Checker {
	clear(region[to.Off(0):to.Off(to.Slots)])
	to.Arm(region)
	return &Checker{src: src, region: region, from: from, to: to, seen: make([]uint64, to.Slots)}
}

// Floor returns the number of messages that were checked without a hole: message Floor() + to.Slots may be sent.
func (c *Checker) Floor() uint64 { return c.floor }

// Extend returns the full sequence number whose low bits (mask: a power of two less one) are low and which is nearest
// above the floor, allowing for a repetition of recent messages.
func (c *Checker) Extend(low, mask uint64) uint64 {
	base := c.floor - min(c.floor, (mask+1)/2)
	return base + (low-base)&mask
}

// Slots returns the number of destination slots: how far senders may be ahead of Floor.
func (c *Checker) Slots() int { return c.to.Slots }

// Fail counts an error that the caller found.
func (c *Checker) Fail(what string) { c.fail("%s", what) }

// Message verifies message seq, which the transport said has arrived, and the canaries on both sides of it.
func (c *Checker) Message(seq uint64) {
	slots := uint64(c.to.Slots)
	slot := int(seq % slots)
	switch {
	case seq < c.floor || c.seen[slot] == seq+1:
		c.fail("message %d was announced twice", seq)
		return
	case seq >= c.floor+slots:
		c.fail("message %d was announced while %d has not been: beyond the window of %d slots", seq, c.floor, slots)
		return
	}
	off := c.to.Off(slot)
	got := c.region[off : off+c.to.Message]
	if wrong, first := c.src.Mismatch(got, c.content(seq)); wrong > 0 {
		c.fail("message %d: %d of %d bytes wrong, the first at byte %d (region offset %d): %s", seq, wrong, len(got),
			first, off+first, c.diagnose(got, seq, first))
	}
	c.around(seq, slot)
	c.seen[slot] = seq + 1
	for c.seen[c.floor%slots] == c.floor+1 {
		c.floor++
	}
}

// content is the number of the content that message seq carries.
func (c *Checker) content(seq uint64) uint64 { return seq % uint64(c.from.Slots) }

// around verifies the canaries next to a slot.
func (c *Checker) around(seq uint64, slot int) {
	if !c.to.Checked {
		return
	}
	off := c.to.Off(slot)
	for _, r := range [2][2]int{{off - gap, off}, {off + c.to.Message, off + c.to.Stride}} {
		if at := broken(c.region, r[0], r[1]); at >= 0 {
			c.fail("canary next to message %d overwritten at region offset %d (slot is %d to %d)", seq, at, off,
				off+c.to.Message)
			arm(c.region, r[0], r[1])
		}
	}
}

// diagnose says what the wrong bytes look like.
func (c *Checker) diagnose(got []byte, seq uint64, first int) string {
	tail := got[first:min(len(got), first+64)]
	zero := true
	for _, b := range tail {
		zero = zero && b == 0
	}
	if zero {
		return "zero, as before the first write"
	}
	want := make([]byte, len(got))
	if slots := uint64(c.to.Slots); seq >= slots {
		c.src.Fill(want, c.content(seq-slots))
		if string(want[first:first+len(tail)]) == string(tail) {
			return fmt.Sprintf("stale, they are of message %d", seq-slots)
		}
	}
	c.src.Fill(want, c.content(seq))
	return fmt.Sprintf("found % x, want % x", tail[:min(len(tail), 8)], want[first:min(len(want), first+8)])
}

// Finish ends the check of a run of total messages: all must have been announced, and nothing outside the slots
// touched.
func (c *Checker) Finish(total uint64) {
	if c.floor < total {
		missing := uint64(0)
		for seq := c.floor; seq < total; seq++ {
			if c.seen[seq%uint64(c.to.Slots)] != seq+1 {
				missing++
			}
		}
		c.failn(max(missing, 1), "%d of %d messages were never announced, the first is %d", missing, total, c.floor)
	} else if c.floor > total {
		c.fail("%d messages were announced, %d were sent", c.floor, total)
	}
	c.to.outside(c.region, func(from, to int) bool {
		if at := broken(c.region, from, to); at >= 0 {
			c.fail("canary overwritten at region offset %d", at)
		}
		return true
	})
}

func (c *Checker) fail(format string, args ...any) { c.failn(1, format, args...) }

func (c *Checker) failn(n uint64, format string, args ...any) {
	c.Errors += n
	if len(c.Details) < maxDetails {
		c.Details = append(c.Details, fmt.Sprintf(format, args...))
	}
}
