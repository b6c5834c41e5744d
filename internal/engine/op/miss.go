package op

import (
	"slices"
	"time"

	"multiedge/internal/abi"
	"multiedge/internal/engine/build"
	"multiedge/internal/mono"
	"multiedge/internal/seqnum"
	"multiedge/internal/wire"
	"multiedge/regmem"
)

// Misses (PROTOCOL clause 16). Memory of a space is not always resident (regmem.Backing). What meets a page that is not
// is parked: a segment that arrived with a copy of its data, whose frame is acknowledged while its operation is not; a
// part that was to be sent as what is to be sent. Nothing else waits. It is tried again when the owner says that the
// page has come (Resident). A miss is no loss: neither congestion windows nor paths hear of it.
//
// Each kind of operation meets misses alike: its function returns a miss before it has changed anything, and whoever
// called it (perform, accept, operation, answer, resend) parks.

const (
	missTime  = time.Second            // how long an operation waits for memory (clause 16.4)
	missTick  = 100 * time.Millisecond // how often parked parts are looked at: pages may have to be asked for again
	missLooks = 2048                   // parts that are looked at in one go, at most
	missTries = 256                    // parts that are tried again in one go, at most, since their page has come
	missTurns = 10                     // and as many times that while pages of the same memory come
	missRest  = 256                    // parked parts, with their buffers, that are kept for reuse
)

// Look is told of memory that a part of an operation uses, once it is resident.
type Look func(r *regmem.Region, off, n uint64, site regmem.Site)

// Observe has f be told of all memory that operations use; nil: nobody.
func (e *Endpoint) Observe(f Look) { e.misses.look = f }

// misses is what is parked.
type misses struct {
	look    Look    // nil: nobody observes
	latest  miss    // what the latest touch returned, if it missed
	trying  *missed // it is being tried again
	waits   map[regmem.Wait]chain
	backs   map[regmem.Backing]chain // by the memory that they wait for
	parked  []*missed                // all of them
	missAt  mono.Time                // when they are looked at
	looked  int                      // at so many of them, in this tick
	asking  []regmem.Backing         // of AskAgain
	came    []arrivedPage            // for which more wait than were tried again
	looking []*missed                // scratch
	spare   []*missed
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
type missed struct {
	wait  regmem.Wait // no Back: for room, until the next look
	site  regmem.Site
	conn  ConnID
	since mono.Time
	cost  int // charged to the session's held memory
	index int // in parked
	in    [chains]struct{ next, prev *missed }

	seg  segment // what arrived; its data is in kept
	kept []byte
	part resend // what is to be sent
	new  bool   // of an answer: all from its cursor on, which was never sent

	heap   *regmem.Heap // what couriers carry for it
	use    regmem.Use   // of part
	off    uint64       // where that begins, as miss.at has it
	landed bool         // a courier has put the data of seg in its place
}

// A parked part is in three chains, so that nobody has to go through what others have parked.
const (
	ofPage = iota // misses.waits
	ofBack        // misses.backs
	ofConn        // conn.missed
	chains
)

// chain is parked parts of one kind, in order of arrival.
type chain struct{ first, last *missed }

func (b *chain) push(m *missed, k int) {
	at := &m.in[k]
	if at.next, at.prev = nil, b.last; b.last == nil {
		b.first = m
	} else {
		b.last.in[k].next = m
	}
	b.last = m
}

func (b *chain) remove(m *missed, k int) {
	at := &m.in[k]
	if at.prev == nil {
		b.first = at.next
	} else {
		at.prev.in[k].next = at.next
	}
	if at.next == nil {
		b.last = at.prev
	} else {
		at.next.in[k].prev = at.prev
	}
	at.next, at.prev = nil, nil
}

func pushTo[K comparable](of map[K]chain, key K, m *missed, k int) {
	b := of[key]
	b.push(m, k)
	of[key] = b
}

func removeFrom[K comparable](of map[K]chain, key K, m *missed, k int) {
	b := of[key]
	if b.remove(m, k); b.first == nil {
		delete(of, key)
	} else {
		of[key] = b
	}
}

// back is the memory that m waits for, or for room for a trip to it; nil: for room here.
func (m *missed) back() regmem.Backing {
	if m.heap != nil {
		return m.heap
	}
	return m.wait.Back
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
	if m == nil || g != &m.seg { // it comes for the first time
		*e.Count.Miss.MissesAt(site)++
	}
	h, carried := wait.Back.(*regmem.Heap)
	if carried && c.parkCarried(now, g, h, site) {
		return true
	}
	if carried {
		wait = regmem.Wait{Back: h.Room(), Page: regmem.RoomToPut}
	}
	if m == nil || g != &m.seg {
		// what a fence held gives back as much as this takes
		if e.cfg.DropMisses && !c.recv.releasing || !c.recv.releasing && !c.hasRoom(cost) || carried &&
			!c.recv.releasing {
			e.Count.Miss.MissesDropped++
			return c.tooLate(now, g, site, missLimit(now, wait.Back, false))
		}
		m = e.newMissed(now)
		m.kept = append(m.kept[:0], g.data...)
		m.seg = *g
		m.seg.data, m.seg.lasting = m.kept, true
	}
	m.cost, m.heap = cost, h
	c.park(now, m, wait, site)
	return true
}

// unreceived says when frames with parts of an operation were left unreceived because of misses, in milliseconds modulo
// 2^32: the first, 0 if there is none, and the latest.
type unreceived struct{ since, last uint32 }

// more notes another, and returns the time since the first. That begins anew if none came for missTime: the operation
// cannot have used memory that became resident meanwhile.
func (u *unreceived) more(now mono.Time) time.Duration {
	ms := max(1, uint32(time.Duration(now)/time.Millisecond))
	if u.since == 0 || ms-u.last >= uint32(missTime/time.Millisecond) {
		u.since = ms
	}
	u.last = ms
	return time.Duration(ms-u.since) * time.Millisecond
}

// tooLate refuses an operation whose frames were left unreceived because of misses for as long as one may be parked. It
// reports whether it did.
func (c *Conn) tooLate(now mono.Time, g *segment, site regmem.Site, limit time.Duration) bool {
	var left *unreceived
	if site == regmem.ReadDest {
		left = &c.sop(g.op).left
	} else {
		left = &c.rop(g.op).left
	}
	if left.more(now) < limit {
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
	m := e.newMissed(now)
	m.part, m.new, m.cost, m.off = r, new, 0, lack.at
	if h, ok := wait.Back.(*regmem.Heap); ok {
		m.heap, m.use = h, h.Last()
		wait = e.fetch(m)
	}
	if site == regmem.ReadTarget && c.hasRoom(heldOverhead) {
		m.cost = heldOverhead // without room it is free: one for each answer and lost part, which were admitted
	}
	c.park(now, m, wait, site)
}

func (c *Conn) park(now mono.Time, m *missed, wait regmem.Wait, site regmem.Site) {
	e := c.e
	m.wait, m.site, m.conn, m.index = wait, site, c.ID, len(e.misses.parked)
	c.charge(m.cost)
	c.missed.push(m, ofConn)
	if e.misses.parked = append(e.misses.parked, m); m.index == 0 {
		e.misses.missAt, e.misses.looked = now.Add(missTick), 0
	}
	if wait.Back != nil {
		pushTo(e.misses.waits, wait, m, ofPage)
	}
	if b := m.back(); b != nil {
		pushTo(e.misses.backs, b, m, ofBack)
	}
}

// unpark takes one out of every list.
func (e *Endpoint) unpark(m *missed) {
	last := len(e.misses.parked) - 1
	e.misses.parked[m.index] = e.misses.parked[last]
	e.misses.parked[m.index].index = m.index
	e.misses.parked[last] = nil
	e.misses.parked = e.misses.parked[:last]
	if c := e.conn(m.conn); c != nil {
		c.charge(-m.cost)
		c.missed.remove(m, ofConn)
	}
	if m.wait.Back != nil {
		removeFrom(e.misses.waits, m.wait, m, ofPage)
	}
	if b := m.back(); b != nil {
		removeFrom(e.misses.backs, b, m, ofBack)
	}
}

func (e *Endpoint) newMissed(now mono.Time) *missed {
	m := &missed{}
	if n := len(e.misses.spare); n > 0 {
		m, e.misses.spare = e.misses.spare[n-1], e.misses.spare[:n-1]
	}
	m.since = now
	return m
}

// recycle keeps one that is over for reuse.
func (e *Endpoint) recycle(m *missed) {
	if len(e.misses.spare) < missRest {
		*m = missed{kept: m.kept}
		e.misses.spare = append(e.misses.spare, m)
	}
}

// arrivedPage is a page for which so many are to be tried again still.
type arrivedPage struct {
	regmem.Wait
	left int
}

// Resident says that a page which Backing.Touch named has come, or that it is time to ask again. What waits for it is
// tried again, in order; where that is much, some of it later.
func (e *Endpoint) Resident(now mono.Time, w regmem.Wait) {
	n := 0
	for m := e.misses.waits[w].first; m != nil; m = m.in[ofPage].next {
		n++
	}
	e.arrived(now, arrivedPage{w, n})
}

func (e *Endpoint) arrived(now mono.Time, p arrivedPage) {
	n := min(p.left, missTries)
	if e.someAgain(now, p.Wait, n); p.left > n && e.Waits(p.Wait) {
		e.misses.came = append(e.misses.came, arrivedPage{p.Wait, p.left - n})
	}
}

// someAgain tries again the first n of those that wait for a page.
func (e *Endpoint) someAgain(now mono.Time, w regmem.Wait, n int) {
	for ; n > 0; n-- { // one that misses again waits behind the others
		m := e.misses.waits[w].first
		if m == nil {
			return // it went with its connection
		}
		e.again(now, m)
	}
}

// again tries one again.
func (e *Endpoint) again(now mono.Time, m *missed) {
	c := e.conn(m.conn)
	e.unpark(m)
	if c == nil || c.S == nil || c.state == connLast {
		e.recycle(m)
		return
	}
	if c.tryAgain(now, m) {
		e.Latency.Miss.Observe(now.Sub(m.since))
		e.recycle(m)
	}
}

// tryAgain reports whether it is parked no more.
func (c *Conn) tryAgain(now mono.Time, m *missed) bool {
	e := c.e
	switch m.site {
	case regmem.WriteSource:
		c.resendLater(m.part)
		c.wake()
		return true
	case regmem.ReadTarget:
		if m.new && c.answeredOp(m.part.op) != nil {
			c.recv.answering.Push(m.part.op)
		} else if !m.new {
			c.send.retx.Push(m.part)
		}
		c.wake()
		return true
	}
	done := true
	at := len(e.misses.parked)
	e.misses.trying = m
	if m.site == regmem.ReadDest {
		done = c.accept(now, &m.seg)
	} else if o := c.waitingOp(m.seg.op); o != nil { // else its number has left the window, or it was refused
		done = c.perform(now, o, &m.seg)
		if c.S != nil && c.S.OpAcks.Len() > 0 {
			c.S.AckAt = min(c.S.AckAt, now) // its frame was acknowledged long ago: nothing else has the OpAck sent
		}
	}
	e.misses.trying = nil
	switch {
	case len(e.misses.parked) > at && e.misses.parked[len(e.misses.parked)-1] == m:
		return false
	case !done: // no room for its range: its frame was acknowledged, so it must not be lost
		c.park(now, m, regmem.Wait{}, m.site)
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

// Gone reports that memory was unregistered. What waits for it, or for room to be carried there, is tried again, and
// meets what there is in its place. What waits for the same room is not: a user may give up one grant after the other.
func (e *Endpoint) Gone(now mono.Time, b regmem.Backing) {
	var all []*missed
	for m := e.misses.backs[b].first; m != nil; m = m.in[ofBack].next {
		all = append(all, m)
	}
	for _, m := range all {
		if e.isParked(m) && m.back() == b {
			e.again(now, m)
		}
	}
}

// isParked reports whether m is parked still: it may have gone with another.
func (e *Endpoint) isParked(m *missed) bool {
	return m.index < len(e.misses.parked) && e.misses.parked[m.index] == m
}

// missTimeout is when parked parts are looked at next.
func (e *Endpoint) missTimeout() mono.Time {
	switch {
	case len(e.misses.parked) == 0:
		return mono.Never
	case len(e.misses.asking)+len(e.misses.came) > 0:
		return 0
	}
	return e.misses.missAt
}

// Waits reports whether something is parked for a page.
func (e *Endpoint) Waits(w regmem.Wait) bool { return e.misses.waits[w].first != nil }

// AskAgain has pages of b be asked for again soon, those first that are waited for longest: some were forgotten, and
// there may be room.
func (e *Endpoint) AskAgain(b regmem.Backing) {
	if e.misses.backs[b].first != nil && !slices.Contains(e.misses.asking, b) {
		e.misses.asking = append(e.misses.asking, b)
	}
}

// checkMissed asks again for the pages of what is parked, and ends what has waited for too long. In each tick it looks
// at everything, a part at a time.
func (e *Endpoint) checkMissed(now mono.Time) {
	if len(e.misses.came) > 0 {
		p := e.misses.came[0]
		e.misses.came = slices.Delete(e.misses.came, 0, 1)
		e.arrived(now, p)
	}
	some, asked := e.misses.looking[:0], 0
	for ; asked < len(e.misses.asking) && len(some) < missLooks; asked++ {
		most := len(some) + missLooks
		for m := e.misses.backs[e.misses.asking[asked]].first; m != nil && len(some) < most; m = m.in[ofBack].next {
			some = append(some, m)
		}
	}
	if e.misses.asking = slices.Delete(e.misses.asking, 0, asked); now >= e.misses.missAt {
		if e.misses.looked >= len(e.misses.parked) {
			e.misses.looked = 0
		}
		part := e.misses.parked[e.misses.looked:min(e.misses.looked+missLooks, len(e.misses.parked))]
		some, e.misses.looked = append(some, part...), e.misses.looked+len(part)
		e.misses.missAt = now.Add(missTick * time.Duration(len(part)) / time.Duration(max(len(e.misses.parked), 1)))
	}
	e.checkSome(now, some)
	clear(some)
	e.misses.looking = some[:0]
}

// checkSome does so for some of them.
func (e *Endpoint) checkSome(now mono.Time, some []*missed) {
	for _, m := range some {
		switch {
		case !e.isParked(m):
		case m.wait.Back == nil:
			e.again(now, m)
		case !e.comes(now, m):
			c := e.conn(m.conn)
			if e.unpark(m); c != nil && c.S != nil && c.state != connLast {
				e.Count.Miss.MissesFailed++
				c.giveUpMissed(now, m)
			}
			e.recycle(m)
		}
	}
}

// comes asks for the page of one again, or tries it again if the page is there. It reports false if it has waited for
// too long: while pages of the same memory come at all it may wait for its turn.
func (e *Endpoint) comes(now mono.Time, m *missed) bool {
	if wait := m.wait; m.heap != nil && wait.Back == m.heap.Room() {
		if e.fetchMore(now, m.heap); m.wait != wait {
			return true
		}
	}
	resident, busy := m.wait.Back.Ask(m.wait.Page)
	waited := now.Sub(m.since)
	if resident && waited < missTurns*missTime {
		e.again(now, m)
		return true
	}
	return waited < missLimit(now, m.wait.Back, busy)
}

// giveUpMissed ends an operation whose memory did not come (clause 16.4).
func (c *Conn) giveUpMissed(now mono.Time, m *missed) {
	switch m.site {
	case regmem.WriteSource:
		if c.outstanding(m.part.op) {
			c.sop(m.part.op).failed = abi.StatusMemory
			c.resendLater(resend{kind: build.RecOps, op: m.part.op, late: true})
			c.wake()
		}
	case regmem.WriteTarget:
		if o := c.waitingOp(m.seg.op); o != nil {
			c.refuseOp(o, m.seg.op, abi.StatusMemory)
		}
	case regmem.ReadTarget:
		if o := c.answeredOp(m.part.op); o != nil {
			c.refuseOp(o, m.part.op, abi.StatusMemory)
		}
	case regmem.ReadDest:
		if c.outstanding(m.seg.op) {
			c.complete(now, m.seg.op, abi.StatusMemory)
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
	for m := c.missed.first; m != nil; m = c.missed.first {
		c.e.unpark(m)
		c.e.recycle(m)
	}
}
