package op

import (
	"multiedge/internal/engine/build"
	"multiedge/internal/engine/op/copies"
	"multiedge/internal/seqnum"
)

// Local completion (MultiEdge §2.3.1, clause 15.1): a write with LocalDone completes as soon as its local bytes may
// change. A short one is copied when it is submitted, and is complete at once; a long one is complete when the peer has
// acknowledged the frames with all of its bytes, which are then never sent again. The operation goes on, hidden from
// its owner, and ends with EvLate.

// Which writes are copied. CopiedMost is a choice, not a measured crossover: around it a copy and the wait for the
// peer's acknowledgement cost who uses one buffer again and again about the same, and which is less depends on the host
// and its load (go test ./edge -bench LocalDone runs both sides of it); well below, the copy wins. copiesRoom is
// how many bytes of copies a session may hold, half of them one user's where several have connections: what finds no
// room waits for the acknowledgement.
const (
	CopiedMost = copies.Most
	copiesRoom = copies.Room
)

// submitLocal gives the local bytes of a write with LocalDone back at once, if they can be copied. Where too many
// operations are hidden already the write becomes one without the flag.
func (c *Conn) submitLocal(op seqnum.Value) {
	o := c.sop(op)
	if c.send.hidden+c.send.acking >= c.e.cfg.OpWindow {
		o.op.Flags &^= LocalDone
		return
	}
	c.send.acking++
	most := c.e.cfg.CopiedMost
	switch n := len(o.op.Local); {
	case n <= MaxInline:
		if o.op.Local != nil {
			o.op.Inline = uint8(copy(o.op.Data[:], o.op.Local))
		}
		c.giveLocal(op)
		o.op.Local = nil
	case n <= most && c.copyRoom(n):
		b := c.e.copies.Take(n)
		copy(b, o.op.Local)
		c.chargeCopy(cap(b))
		o.copied = true
		c.giveLocal(op)
		o.op.Local = b
		c.e.Count.Op.WritesCopied++
	}
}

// copyRoom reports whether a copy of n bytes may be held.
func (c *Conn) copyRoom(n int) bool {
	n = 1 << (copies.ClassOf(n) + copies.LeastClass)
	return c.S.copied+n <= copiesRoom && (c.S.Fair.OneUser() || c.userShare().Copied+
		n <= copiesRoom/2)
}

func (c *Conn) chargeCopy(bytes int) {
	c.S.copied += bytes
	c.userShare().Copied += bytes
}

// giveLocal tells the owner that the local bytes of an operation are its own again. The operation is hidden from now
// on.
func (c *Conn) giveLocal(op seqnum.Value) {
	o := c.sop(op)
	o.hidden = true
	c.send.acking--
	c.send.hidden++
	c.send.pending--
	if o.op.Region != nil {
		o.op.Region.InFlight--
		o.op.Region = nil
	}
	o.op.Local = nil
	c.e.Emit(Event{Kind: EvComplete, Conn: c.ID, Token: o.op.Token, Local: true})
}

// localAcked notes that the peer has received n bytes more of a write, whose frame is never sent again: every byte is
// in one frame at a time, so counting is enough.
func (c *Conn) localAcked(op seqnum.Value, n uint64) {
	if !c.outstanding(op) {
		return
	}
	o := c.sop(op)
	if o.acked += n; o.acked >= o.n && !o.hidden {
		c.e.Count.Op.WritesAcked++
		c.giveLocal(op)
	}
}

// endLocal finishes the event of a write with LocalDone that has ended.
func (c *Conn) endLocal(o *sendOp, ev *Event) {
	if !o.hidden {
		c.send.acking--
		return
	}
	c.send.hidden--
	c.send.pending++ // complete counts it down
	ev.Kind, ev.Token, ev.Data = EvLate, o.op.Late, nil
	if ev.Status != OK {
		c.e.Count.Op.OpsFailedLate++
	}
	if o.copied {
		c.dropCopy(o, ev)
	}
}

// dropCopy takes the copy of an operation back, whose end ev tells.
func (c *Conn) dropCopy(o *sendOp, ev *Event) {
	ev.Data = o.op.Local[:cap(o.op.Local)] // frames handed out may still refer to it, whatever came of it
	c.chargeCopy(-cap(o.op.Local))
	c.e.copies.Put(o.op.Local)
	o.copied = false
}

// localRecord is the kind of record for a part of a write: of one whose local bytes the owner waits for, its
// acknowledgement counts.
func (o *sendOp) localRecord() build.Kind {
	if o.op.Flags&LocalDone != 0 && !o.hidden {
		return build.RecLocal
	}
	return build.RecRange
}
