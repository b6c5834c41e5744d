package engine

import (
	"math/bits"

	"multiedge/internal/seqnum"
)

// Local completion (MultiEdge §2.3.1, clause 15.1): a write with LocalDone completes as soon as its local bytes may
// change. A short one is copied when it is submitted, and is complete at once; a long one is complete when the peer has
// acknowledged the frames with all of its bytes, which are then never sent again. The operation goes on, hidden from
// its owner, and ends with EvLate.

// Which writes are copied. stagedMost is a choice, not a measured crossover: around it a copy and the wait for the
// peer's acknowledgement cost who uses one buffer again and again about the same, and which is less depends on the host
// and its load (go test ./edge -bench LocalDone runs both sides of it); well below, the copy wins. stagedRoom is
// how many bytes of copies a session may hold, half of them one user's where several have connections: what finds no
// room waits for the acknowledgement.
const (
	stagedMost = 64 << 10
	stagedRoom = 4 << 20

	leastClass = 6                               // the shortest buffer has 64 bytes
	classes    = 17 - leastClass                 // the longest has stagedMost
	_          = uint(classes + leastClass - 17) // they agree
)

// stage is the free buffers of copies, by class: a buffer of class i has 64<<i bytes.
type stage struct {
	free  [classes][][]byte
	bytes int // of free
}

func classOf(n int) int { return max(bits.Len(uint(n-1)), leastClass) - leastClass }

// take returns a buffer for n bytes, 1 to stagedMost.
func (g *stage) take(n int) []byte {
	c := classOf(n)
	if k := len(g.free[c]); k > 0 {
		b := g.free[c][k-1]
		g.free[c] = g.free[c][:k-1]
		g.bytes -= len(b)
		return b[:n]
	}
	return make([]byte, 1<<(c+leastClass))[:n]
}

// put takes a buffer back. What is more than one session may use is left to the collector.
func (g *stage) put(b []byte) {
	b = b[:cap(b)]
	if g.bytes+len(b) <= stagedRoom {
		c := classOf(len(b))
		g.free[c] = append(g.free[c], b)
		g.bytes += len(b)
	}
}

// submitLocal gives the local bytes of a write with LocalDone back at once, if they can be copied. Where too many
// operations are hidden already the write becomes one without the flag.
func (c *conn) submitLocal(op seqnum.Value) {
	o := c.sop(op)
	if c.hidden+c.acking >= c.e.cfg.OpWindow {
		o.Flags &^= LocalDone
		return
	}
	c.acking++
	most := c.e.cfg.StagedMost
	switch n := len(o.Local); {
	case n <= MaxInline:
		if o.Local != nil {
			o.Inline = uint8(copy(o.Data[:], o.Local))
		}
		c.giveLocal(op)
		o.Local = nil
	case n <= most && c.stageRoom(n):
		b := c.e.stage.take(n)
		copy(b, o.Local)
		c.chargeStage(cap(b))
		o.staged = true
		c.giveLocal(op)
		o.Local = b
		c.e.Count.WritesStaged++
	}
}

// stageRoom reports whether a copy of n bytes may be held.
func (c *conn) stageRoom(n int) bool {
	n = 1 << (classOf(n) + leastClass)
	return c.s.staged+n <= stagedRoom && (len(c.s.fair.users) == 1 || c.userShare().staged+n <= stagedRoom/2)
}

func (c *conn) chargeStage(bytes int) {
	c.s.staged += bytes
	c.userShare().staged += bytes
}

// giveLocal tells the owner that the local bytes of an operation are its own again. The operation is hidden from now
// on.
func (c *conn) giveLocal(op seqnum.Value) {
	o := c.sop(op)
	o.hidden = true
	c.acking--
	c.hidden++
	c.pending--
	if o.Region != nil {
		o.Region.InFlight--
		o.Region = nil
	}
	o.Local = nil
	c.e.emit(Event{Kind: EvComplete, Conn: c.id, Token: o.Token, Local: true})
}

// localAcked notes that the peer has received n bytes more of a write, whose frame is never sent again: every byte is
// in one frame at a time, so counting is enough.
func (c *conn) localAcked(op seqnum.Value, n uint64) {
	if !c.outstanding(op) {
		return
	}
	o := c.sop(op)
	if o.acked += n; o.acked >= o.n && !o.hidden {
		c.e.Count.WritesAcked++
		c.giveLocal(op)
	}
}

// endLocal finishes the event of a write with LocalDone that has ended.
func (c *conn) endLocal(o *sendOp, ev *Event) {
	if !o.hidden {
		c.acking--
		return
	}
	c.hidden--
	c.pending++ // complete counts it down
	ev.Kind, ev.Token, ev.Data = EvLate, o.Late, nil
	if ev.Status != OK {
		c.e.Count.OpsFailedLate++
	}
	if o.staged {
		c.unstage(o, ev)
	}
}

// unstage takes the copy of an operation back, whose end ev tells.
func (c *conn) unstage(o *sendOp, ev *Event) {
	ev.Data = o.Local[:cap(o.Local)] // frames handed out may still refer to it, whatever came of it
	c.chargeStage(-cap(o.Local))
	c.e.stage.put(o.Local)
	o.staged = false
}

// localRecord is the kind of record for a part of a write: of one whose local bytes the owner waits for, its
// acknowledgement counts.
func (o *sendOp) localRecord() recKind {
	if o.Flags&LocalDone != 0 && !o.hidden {
		return recLocal
	}
	return recRange
}
