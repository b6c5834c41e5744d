package op

import (
	"time"

	"multiedge/internal/abi"
	"multiedge/internal/engine/build"
	"multiedge/internal/engine/op/park"
	"multiedge/internal/mono"
	"multiedge/internal/seqnum"
	"multiedge/internal/wire"
	"multiedge/regmem"
)

// Misses (PROTOCOL clause 16). Memory of a space is not always resident (regmem.Backing). What meets a page that is not
// is parked (package park): a segment that arrived with a copy of its data, whose frame is acknowledged while its
// operation is not; a part that was to be sent as what is to be sent. Nothing else waits. It is tried again when the
// owner says that the page has come (Resident). A miss is no loss: neither congestion windows nor paths hear of it.
//
// Each kind of operation meets misses alike: its function returns a miss before it has changed anything, and whoever
// called it (perform, accept, operation, answer, resend) parks.

// Look is told of memory that a part of an operation uses, once it is resident.
type Look func(r *regmem.Region, off, n uint64, site regmem.Site)

// Observe has f be told of all memory that operations use; nil: nobody.
func (e *Endpoint) Observe(f Look) { e.misses.look = f }

// misses are parts of operations that miss.
type misses struct {
	look   Look    // nil: nobody observes
	latest miss    // what the latest touch returned, if it missed
	trying *missed // it is being tried again
	parked park.Table[waiter]
}

// miss is what an operation needs and is not resident. It is good until memory is touched again; nil: nothing is
// missing.
type miss struct {
	wait regmem.Wait
	at   uint64 // where it was met: in the operation, or in the grant
}

// lacks returns a miss.
func (e *misses) lacks(w regmem.Wait, at uint64) *miss {
	e.latest = miss{w, at}
	return &e.latest
}

// missed is a part of an operation that is parked.
type missed = park.Part[waiter]

// waiter is what is parked.
type waiter struct {
	site regmem.Site
	conn ConnID
	cost int // charged to the session's held memory

	seg  segment // what arrived; its data is in kept
	kept []byte
	part resend // what is to be sent
	new  bool   // of an answer: all from its cursor on, which was never sent

	off    uint64 // where part begins, as miss.at has it
	landed bool   // a courier has put the data of seg in its place
}

// touch uses n bytes of memory of our own operation, which others follow, and returns what is not resident of them.
func (e *Endpoint) touch(o *sendOp, off, n, follows uint64, site regmem.Site) *miss {
	if e.misses.look == nil && !o.backed {
		return nil
	}
	return e.touchLocal(&o.op, off, n, follows, site)
}

// touchLocal is touch for memory that may not be resident, or while look-ups are recorded.
func (e *Endpoint) touchLocal(o *Op, off, n, follows uint64, site regmem.Site) *miss {
	if o.Pieces != nil {
		return e.touchPieces(o.Pieces, off, n, site)
	}
	if o.Region == nil {
		return nil
	}
	if o.Region.Back != nil {
		if page, ok := o.Region.Back.Touch(o.LocalOff+off, n, follows, site); !ok {
			return e.misses.lacks(regmem.Wait{Back: o.Region.Back, Page: page}, off)
		}
	}
	if e.misses.look != nil && n > 0 {
		e.misses.look(o.Region, o.LocalOff+off, n, site)
	}
	return nil
}

// resident reports whether the memory that the table was asked for just now needs no touchGrant.
func (e *Endpoint) resident() bool { return e.misses.look == nil && !e.cfg.Grants.Backed() }

// touchGrant does so for the memory that the table was asked for just now.
func (e *Endpoint) touchGrant(off, n, follows uint64, site regmem.Site) *miss {
	if e.resident() {
		return nil
	}
	w, ok := e.cfg.Grants.Touch(off, n, follows, site)
	if !ok {
		return e.misses.lacks(w, off)
	}
	if e.misses.look != nil && n > 0 {
		r, base := e.cfg.Grants.Found()
		e.misses.look(r, base+off, n, site)
	}
	return nil
}

// parkSegment parks a segment that arrived. It reports whether its frame may count as received.
func (c *Conn) parkSegment(now mono.Time, g *segment, site regmem.Site, wait regmem.Wait) bool {
	e := c.e
	m, cost := e.misses.trying, len(g.data)+heldOverhead
	if m == nil || g != &m.What.seg { // it comes for the first time
		*e.Count.Miss.MissesAt(site)++
	}
	h, carried := wait.Back.(*regmem.Heap)
	if carried && c.parkCarried(now, g, h, site) {
		return true
	}
	if carried {
		wait = regmem.Wait{Back: h.Room(), Page: regmem.RoomToPut}
	}
	if m == nil || g != &m.What.seg {
		// what a fence held gives back as much as this takes
		if e.cfg.DropMisses && !c.recv.releasing || !c.recv.releasing && !c.hasRoom(cost) || carried &&
			!c.recv.releasing {
			e.Count.Miss.MissesDropped++
			return c.tooLate(now, g, site, park.Limit(now, wait.Back, false))
		}
		m = e.misses.parked.New(now)
		m.What.kept = append(m.What.kept[:0], g.data...)
		m.What.seg = *g
		m.What.seg.data, m.What.seg.lasting = m.What.kept, true
	}
	m.What.cost, m.Heap = cost, h
	c.park(now, m, wait, site)
	return true
}

// tooLate refuses an operation whose frames were left unreceived because of misses for as long as one may be parked. It
// reports whether it did.
func (c *Conn) tooLate(now mono.Time, g *segment, site regmem.Site, limit time.Duration) bool {
	var left *park.Unreceived
	if site == regmem.ReadDest {
		left = &c.sop(g.op).left
	} else {
		left = &c.rop(g.op).left
	}
	if left.More(now) < limit {
		return false
	}
	c.e.Count.Miss.MissesFailed++
	if site == regmem.ReadDest {
		c.complete(now, g.op, abi.StatusMemory)
	} else {
		c.refuseOp(c.rop(g.op), g.op, abi.StatusMemory)
	}
	return true
}

// parkPart parks what was to be sent.
func (c *Conn) parkPart(now mono.Time, r resend, new bool, site regmem.Site, lack *miss) {
	e, wait := c.e, lack.wait
	*e.Count.Miss.MissesAt(site)++
	m := e.misses.parked.New(now)
	m.What.part, m.What.new, m.What.cost, m.What.off = r, new, 0, lack.at
	if h, ok := wait.Back.(*regmem.Heap); ok {
		m.Heap, m.Use = h, h.Last()
		wait = e.misses.parked.Fetch(m)
	}
	if site == regmem.ReadTarget && c.hasRoom(heldOverhead) {
		m.What.cost = heldOverhead // without room it is free: one for each answer and lost part, which were admitted
	}
	c.park(now, m, wait, site)
}

func (c *Conn) park(now mono.Time, m *missed, wait regmem.Wait, site regmem.Site) {
	m.What.site, m.What.conn = site, c.ID
	c.charge(m.What.cost)
	c.e.misses.parked.Park(now, m, wait, &c.missed)
}

// unpark takes one out.
func (e *Endpoint) unpark(m *missed) {
	if c := e.conn(m.What.conn); c != nil {
		c.charge(-m.What.cost)
	}
	e.misses.parked.Take(m)
}

// recycle keeps one that is over for reuse.
func (e *Endpoint) recycle(m *missed) {
	m.What = waiter{kept: m.What.kept}
	e.misses.parked.Keep(m)
}

// Resident says that a page which Backing.Touch named has come, or that it is time to ask again. What waits for it is
// tried again, in order; where that is much, some of it later.
func (e *Endpoint) Resident(now mono.Time, w regmem.Wait) { e.misses.parked.Resident(now, w) }

// Gone reports that memory was unregistered. What waits for it is tried again, and meets what there is in its place.
func (e *Endpoint) Gone(now mono.Time, b regmem.Backing) { e.misses.parked.Gone(now, b) }

// Waits reports whether something is parked for a page.
func (e *Endpoint) Waits(w regmem.Wait) bool { return e.misses.parked.First(w) != nil }

// AskAgain has pages of b be asked for again soon: some were forgotten, and there may be room.
func (e *Endpoint) AskAgain(b regmem.Backing) { e.misses.parked.AskAgain(b) }

// again tries one again.
func (e *Endpoint) again(now mono.Time, m *missed) {
	c := e.conn(m.What.conn)
	e.unpark(m)
	if c == nil || c.S == nil || c.state == connLast {
		e.recycle(m)
		return
	}
	if c.tryAgain(now, m) {
		e.Latency.Miss.Observe(now.Sub(m.Since))
		e.recycle(m)
	}
}

// tryAgain reports whether it is parked no more.
func (c *Conn) tryAgain(now mono.Time, m *missed) bool {
	e := c.e
	switch m.What.site {
	case regmem.WriteSource:
		c.resendLater(m.What.part)
		c.wake()
		return true
	case regmem.ReadTarget:
		if m.What.new && c.answeredOp(m.What.part.op) != nil {
			c.recv.answering.Push(m.What.part.op)
		} else if !m.What.new {
			c.send.retx.Push(m.What.part)
		}
		c.wake()
		return true
	}
	done := true
	e.misses.trying = m
	if m.What.site == regmem.ReadDest {
		done = c.accept(now, &m.What.seg)
	} else if o := c.waitingOp(m.What.seg.op); o != nil { // else its number has left the window, or it was refused
		done = c.perform(now, o, &m.What.seg)
		if c.S != nil && c.S.OpAcks.Len() > 0 {
			c.S.AckAt = min(c.S.AckAt, now) // its frame was acknowledged long ago: nothing else has the OpAck sent
		}
	}
	e.misses.trying = nil
	switch {
	case e.misses.parked.Has(m):
		return false
	case !done: // no room for its range: its frame was acknowledged, so it must not be lost
		c.park(now, m, regmem.Wait{}, m.What.site)
		return false
	}
	return true
}

// waitingOp returns one of the peer's operations if it can still take a segment.
func (c *Conn) waitingOp(op seqnum.Value) *recvOp {
	if !op.InWindow(c.recv.base, c.recv.base.Distance(c.recv.top)) {
		return nil
	}
	if o := c.rop(op); o.state < ropAnswering {
		return o
	}
	return nil
}

// missFailed ends the operation of one whose memory did not come.
func (e *Endpoint) missFailed(now mono.Time, m *missed) {
	c := e.conn(m.What.conn)
	if e.unpark(m); c != nil && c.S != nil && c.state != connLast {
		e.Count.Miss.MissesFailed++
		c.giveUpMissed(now, m)
	}
	e.recycle(m)
}

// giveUpMissed ends an operation whose memory did not come (clause 16.4).
func (c *Conn) giveUpMissed(now mono.Time, m *missed) {
	switch m.What.site {
	case regmem.WriteSource:
		if c.outstanding(m.What.part.op) {
			c.sop(m.What.part.op).failed = abi.StatusMemory
			c.resendLater(resend{kind: build.RecOps, op: m.What.part.op, late: true})
			c.wake()
		}
	case regmem.WriteTarget:
		if o := c.waitingOp(m.What.seg.op); o != nil {
			c.refuseOp(o, m.What.seg.op, abi.StatusMemory)
		}
	case regmem.ReadTarget:
		if o := c.answeredOp(m.What.part.op); o != nil {
			c.refuseOp(o, m.What.part.op, abi.StatusMemory)
		}
	case regmem.ReadDest:
		if c.outstanding(m.What.seg.op) {
			c.complete(now, m.What.seg.op, abi.StatusMemory)
		}
	}
}

// nowhere is a place that lies in no grant, and its lower half in no message (clause 16.5).
const nowhere = ^uint64(0) - 1

// abandon sends, in place of what is left of a write or a send, a byte to nowhere: the peer refuses the operation, of
// which it may have parts, and those behind it go on (clause 16.5). A send keeps its kind: its message has a number.
func (c *Conn) abandon(w *build.Frame, o *sendOp, p part) (sent uint64, ok bool) {
	w.Seg = wire.Segment{Kind: kinds[o.op.Kind].request, Flags: p.flags, Conn: c.remote, Op: uint32(p.op),
		Fence: uint32(o.fence), Key: o.key, Place: nowhere, Data: nothing[:]}
	if w.Room < w.Seg.Len() {
		return 0, false
	}
	w.Small(&w.Seg)
	w.NoteOp(uint32(c.ID), p.op, false)
	return p.n, true
}

var nothing [1]byte

// dropMissed forgets what is parked of a connection that ends.
func (c *Conn) dropMissed() {
	for m := c.missed.First(); m != nil; m = c.missed.First() {
		c.e.unpark(m)
		c.e.recycle(m)
	}
}
