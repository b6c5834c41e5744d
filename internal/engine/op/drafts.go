package op

import (
	"slices"

	"multiedge/internal/engine/op/copies"
	"multiedge/internal/mono"
	"multiedge/internal/seqnum"
	"multiedge/internal/wire"
	"multiedge/regmem"
)

// The receiving half of eager transfer (clause 18). What comes ahead of its operation lies in a draft, which is charged
// as what waits behind a fence is. Of each block the one with the greatest stamp counts, whatever order they come in.
// When the Commit is there and the stamps have the sum that it names, the draft is delivered as if it had come as one
// segment of the operation: fences, keys, buffers, redirections and misses are those of every operation.

// draftCost is what a draft takes besides its bytes, and blockCost what each block does.
const (
	draftCost = 384
	blockCost = 4
)

// draft is a message that a peer composes.
type draft struct {
	number    uint32
	bytes     []byte
	stamps    []uint32 // of each block; 0: nothing came
	sum       uint64   // of stamps
	committed bool
	need      uint64  // the sum that is to be reached, if committed
	segment   segment // of the operation, likewise
	n         uint32  // its bytes
}

// draftPrice is what a draft of a class is charged: its memory has that length, whatever the message's is.
func draftPrice(class int) int { return draftCost + 1<<class*(eagerBlock+blockCost) }

// draftRoom reports whether so many bytes may be kept for a draft. Drafts can lie for long, so they leave half of the
// room to what waits behind fences.
func (c *Conn) draftRoom(bytes int) bool {
	most := c.e.cfg.HeldBytes / 2
	return c.S.heldMem+bytes <= most && (c.S.Fair.OneUser() || c.userShare().Held+bytes <= most/2)
}

// onEager takes the segments of clause 18. It reports whether the frame may count as received (clause 3.3).
func (c *Conn) onEager(now mono.Time, g *wire.Segment) bool {
	x := c.composing()
	number := g.Op
	switch g.Kind {
	case wire.KindUnstaged:
		c.onUnstaged(number)
		return true
	case wire.KindCommit:
		number = g.From
	}
	switch {
	case x.gone.has(number):
		c.e.Count.Loss.SegmentsDuplicated++
		c.oweAck()
		return true
	case !x.gone.fits(number):
		c.e.Count.Reject.RejectedMalformed++
		return false
	case g.Kind == wire.KindDiscard:
		c.dropDraft(number)
		return true
	}
	d := c.draft(number, g.Size)
	switch {
	case d == nil && c.eager.words.Len() >= mostWords:
		c.e.Count.Reject.RejectedNoRoom++
		return false
	case d == nil:
		c.dropDraft(number)
		c.e.Count.Eager.EagerRefused++
		c.tellDraft(wire.KindUnstaged, number)
		return true
	case uint64(len(d.bytes)) != g.Size:
		c.e.Count.Reject.RejectedMalformed++
		return false
	case g.Kind == wire.KindStage:
		d.put(g)
	case !d.committed:
		d.commit(g)
	}
	return c.publish(now, d)
}

// draft returns the peer's draft of that number, made if there is none; nil if there is no room.
func (c *Conn) draft(number uint32, size uint64) *draft {
	for _, d := range c.eager.drafts {
		if d.number == number {
			return d
		}
	}
	if class := copies.ClassOf(int(size)); c.draftRoom(draftPrice(class)) {
		c.charge(draftPrice(class))
		d := c.e.takeDraft(class)
		d.number, d.bytes = number, d.bytes[:size]
		d.stamps = zeros(d.stamps, int(size+eagerBlock-1)/eagerBlock)
		c.eager.drafts = append(c.eager.drafts, d)
		return d
	}
	return nil
}

// takeDraft returns a draft of a class. What its bytes are is never shown: publish wants a stamp of every block.
func (e *Endpoint) takeDraft(class int) *draft {
	if idle := e.eager.drafts[class]; len(idle) > 0 {
		d := idle[len(idle)-1]
		e.eager.drafts[class] = idle[:len(idle)-1]
		e.eager.draftBytes -= draftPrice(class)
		return d
	}
	return &draft{bytes: make([]byte, eagerBlock<<class), stamps: make([]uint32, 1<<class)}
}

// endDraft gives back what a draft took.
func (c *Conn) endDraft(d *draft) {
	e, class := c.e, copies.ClassOf(len(d.bytes))
	price := draftPrice(class)
	c.charge(-price)
	if e.eager.draftBytes+price <= mostIdleDrafts {
		*d = draft{bytes: d.bytes, stamps: d.stamps}
		e.eager.drafts[class] = append(e.eager.drafts[class], d)
		e.eager.draftBytes += price
	}
}

// put keeps the blocks of a Stage that are newer than those there.
func (d *draft) put(g *wire.Segment) {
	for data, at := g.Data, g.Place; len(data) > 0; {
		n := min(len(data), eagerBlock)
		if s := &d.stamps[at/eagerBlock]; g.Stamp > *s {
			copy(d.bytes[at:], data[:n])
			d.sum += uint64(g.Stamp - *s)
			*s = g.Stamp
		}
		data, at = data[n:], at+uint64(n)
	}
}

func (d *draft) commit(g *wire.Segment) {
	d.committed, d.need, d.n = true, g.Word(0), g.Bytes
	d.segment = segment{kind: carriers[wire.Kind(g.Status)].kind, flags: g.Flags, op: seqnum.Value(g.Op),
		fence: seqnum.Value(g.Fence), imm: g.Imm, key: regmem.Key(g.Key), place: g.Place}
}

// publish delivers a draft that is committed and has the newest of every block. It reports false if there is no room
// for what its operation needs.
func (c *Conn) publish(now mono.Time, d *draft) bool {
	if !d.committed || d.sum != d.need {
		return true
	}
	if slices.Contains(d.stamps[:(d.n+eagerBlock-1)/eagerBlock], 0) {
		c.e.Count.Reject.RejectedMalformed++
		return false
	}
	d.segment.data = d.bytes[:d.n]
	if !c.onOperation(now, &d.segment) {
		return false
	}
	c.dropDraft(d.number)
	return true
}

// dropDraft forgets a draft, and whatever comes of it from now on.
func (c *Conn) dropDraft(number uint32) {
	x := c.eager
	x.gone.add(number)
	for i, d := range x.drafts {
		if d.number == number {
			last := len(x.drafts) - 1
			x.drafts[i], x.drafts[last] = x.drafts[last], nil
			x.drafts = x.drafts[:last]
			c.endDraft(d)
			return
		}
	}
}

// dropDrafts forgets all of them.
func (c *Conn) dropDrafts() {
	if c.eager != nil {
		for _, d := range c.eager.drafts {
			c.endDraft(d)
		}
		c.eager.drafts = nil
	}
}
