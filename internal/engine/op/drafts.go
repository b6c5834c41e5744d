package op

import (
	"multiedge/internal/engine/op/eager"
	"multiedge/internal/mono"
	"multiedge/internal/seqnum"
	"multiedge/internal/wire"
	"multiedge/regmem"
)

// The receiving half of eager transfer (clause 18). What comes ahead of its operation lies in a draft, which is charged
// as what waits behind a fence is. When the Commit is there and the stamps have the sum that it names, the draft is
// delivered as if it had come as one segment of the operation: fences, keys, buffers, redirections and misses are those
// of every operation.

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
	case x.Theirs.Gone(number):
		c.e.Count.Loss.SegmentsDuplicated++
		c.oweAck()
		return true
	case !x.Theirs.Fits(number):
		c.e.Count.Reject.RejectedMalformed++
		return false
	case g.Kind == wire.KindDiscard:
		c.dropDraft(number)
		return true
	}
	d := c.draft(number, g.Size)
	switch {
	case d == nil && x.Words.Len() >= eager.MostWords:
		c.e.Count.Reject.RejectedNoRoom++
		return false
	case d == nil:
		c.dropDraft(number)
		c.e.Count.Eager.EagerRefused++
		c.tellDraft(wire.KindUnstaged, number)
		return true
	case d.Size() != g.Size:
		c.e.Count.Reject.RejectedMalformed++
		return false
	case g.Kind == wire.KindStage:
		d.Put(g)
	default:
		d.SetCommit(g)
	}
	return !d.Whole() || c.publish(now, number, d)
}

// draft returns the peer's draft of that number, made if there is none; nil if there is no room.
func (c *Conn) draft(number uint32, size uint64) *eager.Draft {
	d := c.eager.Theirs.Find(number)
	if d == nil && c.draftRoom(eager.Price(size)) {
		c.charge(eager.Price(size))
		d = c.e.eager.Draft(number, size)
		c.eager.Theirs.Add(d)
	}
	return d
}

// publish delivers a draft that is whole. It reports false if there is no room for what its operation needs.
func (c *Conn) publish(now mono.Time, number uint32, d *eager.Draft) bool {
	data, all := d.Bytes()
	if !all {
		c.e.Count.Reject.RejectedMalformed++
		return false
	}
	s, g := &d.Commit, &c.e.segment
	*g = segment{kind: carriers[wire.Kind(s.Status)].kind, flags: s.Flags, op: seqnum.Value(s.Op),
		fence: seqnum.Value(s.Fence), imm: s.Imm, key: regmem.Key(s.Key), place: s.Place, data: data}
	if !c.onOperation(now, g) {
		return false
	}
	c.dropDraft(number)
	return true
}

// dropDraft forgets a draft, and whatever comes of it from now on.
func (c *Conn) dropDraft(number uint32) {
	if d := c.eager.Theirs.Drop(number); d != nil {
		c.endDraft(d)
	}
}

// endDraft gives back what a draft took.
func (c *Conn) endDraft(d *eager.Draft) {
	c.charge(-eager.Price(d.Size()))
	c.e.eager.KeepDraft(d)
}

// dropDrafts forgets all of them.
func (c *Conn) dropDrafts() {
	if c.eager != nil {
		for _, d := range c.eager.Theirs.Clear() {
			c.endDraft(d)
		}
	}
}
