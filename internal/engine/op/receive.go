package op

import (
	"multiedge/internal/abi"
	"multiedge/internal/engine/queue"
	"multiedge/internal/mono"
	"multiedge/internal/seqnum"
	"multiedge/internal/wire"
	"multiedge/regmem"
)

// The receiving half of messages (clause 14). Buffers are posted to a queue: a connection's own, or one that several
// share. Each is promised to one connection before its peer may send a message for it. All of an own queue are promised
// at once; of a shared one a few are promised to everybody while half of it is free, and the rest to who asks.
//
// The buffer of a message is the oldest of the queue when the message, or one after it, begins to arrive, so that
// buffers go to messages in the order of their numbers; and so do the completions.

// Receive is a posted buffer. Local must stay valid until its EvReceived.
type Receive struct {
	Token  uint64
	Local  []byte
	Region *regmem.Region // its InFlight counts the buffer; may be nil
}

// QueueID names a shared receive queue of an endpoint. Zero is none.
type QueueID uint32

// sharedQueues are the queues that connections share.
type sharedQueues struct {
	byID     map[QueueID]*receiveQueue
	lastID   QueueID
	lenders  []*receiveQueue // those that are looked at
	unusedAt mono.Time       // when they are, if there are any
}

// receiveQueue is posted buffers that no message has begun to fill.
type receiveQueue struct {
	id       QueueID // 0: a connection's own
	posted   queue.Queue[Receive]
	promised int     // of posted
	filling  int     // buffers that messages have begun to fill, and that are not their owner's yet
	takers   []*Conn // that take from it, if it is shared
	asking   queue.Queue[ConnID]
	lending
}

// receiving is the peer's messages: those before base are with their owner, [base, begun) have buffers, [begun, limit)
// are promised some.
type receiving struct {
	from               *receiveQueue
	base, begun, limit uint32
	told               uint32    // the limit as the peer was told last, or begun
	buffers            []arrival // ring of [base, begun), its length a power of two or 0
	owesCredit         bool      // the next OpAck is to tell the peer of limit
	asks, short        bool      // the connection is in from.asking, in from.short
	wants              uint32    // up to which number the peer asked for buffers, or begun
	place              int       // in from.takers
	borrowing
}

// arrival is a buffer that a message fills.
type arrival struct {
	Receive
	Arrived
	op     seqnum.Value
	bound  bool // to op
	filled bool
	status abi.Status
}

// free is how many buffers nobody was promised.
func (q *receiveQueue) free() int { return q.posted.Len() - q.promised }

// halfFree reports whether more than half of the buffers are free, those that are being filled counted.
func (q *receiveQueue) halfFree() bool { return q.spare() > 0 }

// spare is how many buffers are free beyond half of all, those that are being filled included.
func (q *receiveQueue) spare() int { return q.free() - (q.posted.Len()+q.filling)/2 }

// has is how many buffers the peer has: those that it was promised, and those that it has not filled yet. A peer can
// begin messages and never end them, or end all but the first.
func (m *receiving) has() int { return int(m.limit - m.base) }

func (m *receiving) at(number uint32) *arrival { return &m.buffers[number&uint32(len(m.buffers)-1)] }

// PostReceive takes a buffer for the messages of a connection. It reports false, and nothing has happened, if the
// connection is not open or takes from a shared queue. Exactly one EvReceived with r.Token follows otherwise. One that
// is being closed takes buffers until it ends: where both ends close, each with sends that wait for buffers of the
// other's, neither would end without them.
func (e *Endpoint) PostReceive(now mono.Time, id ConnID, r *Receive) bool {
	c := e.conn(id)
	if c == nil || c.state != connOpen && c.state != connClosing || c.dial.ping {
		return false
	}
	m := c.messages()
	if m.in.from == nil {
		m.in.from = &receiveQueue{}
	}
	if m.in.from.id != 0 || m.in.from.posted.Len() >= maxCredit/2 {
		return false
	}
	m.in.from.post(r)
	m.in.promise()
	c.tellCredit(now)
	return true
}

func (q *receiveQueue) post(r *Receive) {
	q.posted.Push(*r)
	if r.Region != nil {
		r.Region.InFlight++
	}
}

// NewReceiveQueue makes a queue that connections can share.
func (e *Endpoint) NewReceiveQueue() QueueID {
	if e.queues.byID == nil {
		e.queues.byID = map[QueueID]*receiveQueue{}
	}
	for e.queues.lastID++; e.queues.lastID == 0 || e.queues.byID[e.queues.lastID] != nil; e.queues.lastID++ {
	}
	e.queues.byID[e.queues.lastID] = &receiveQueue{id: e.queues.lastID}
	return e.queues.lastID
}

// DropReceiveQueue gives back what is posted to a shared queue. It reports false, and nothing has happened, while
// connections take from it.
func (e *Endpoint) DropReceiveQueue(id QueueID) bool {
	q := e.queues.byID[id]
	if q == nil || len(q.takers) > 0 {
		return false
	}
	delete(e.queues.byID, id)
	e.flushPosted(0, q, abi.StatusClosed)
	return true
}

// JoinReceiveQueue has a connection take its buffers from a shared queue from now on. It reports false if the
// connection is not open, or was given buffers of its own. As with PostReceive, one that is being closed may.
func (e *Endpoint) JoinReceiveQueue(now mono.Time, id ConnID, queue QueueID) bool {
	c, q := e.conn(id), e.queues.byID[queue]
	if c == nil || q == nil || c.state != connOpen && c.state != connClosing || c.dial.ping ||
		c.messages().in.from != nil {
		return false
	}
	c.msgs.in.from, c.msgs.in.place = q, len(q.takers)
	q.takers = append(q.takers, c)
	c.msgs.in.owesCredit = true // that the queue is shared must be known even without a buffer
	c.topUp(now)
	c.ctl |= ctlCredit
	c.wake()
	return true
}

// PostShared takes a buffer for the messages of all connections that share a queue.
func (e *Endpoint) PostShared(now mono.Time, id QueueID, r *Receive) bool {
	q := e.queues.byID[id]
	if q == nil {
		return false
	}
	q.post(r)
	e.serveShort(now, q)
	e.serveAsking(now, q)
	return true
}

// promise promises a buffer more, if one is free.
func (m *receiving) promise() bool {
	if m.from == nil || m.from.free() < 1 {
		return false
	}
	m.more(1)
	return true
}

// more promises n buffers more.
func (m *receiving) more(n int) {
	m.from.promised += n
	m.limit += uint32(n)
}

// standing is how many buffers of a shared queue a connection is promised before its peer asks.
func (q *receiveQueue) standing() int {
	return min(max(q.posted.Len()/(2*max(len(q.takers), 1)), 1), 16)
}

// topUp promises a connection of a shared queue what it may have without asking, while half of the queue is free.
func (c *Conn) topUp(now mono.Time) {
	m, gave := c.msgs, false
	for q := m.in.from; m.in.has() < q.standing() && q.halfFree() && m.in.promise(); {
		gave = true
	}
	if gave {
		c.tellCredit(now)
	}
}

// onWant takes the peer's wish for buffers (clause 14.5). One that does not use those it has gets no more; one that a
// later wish overtook takes nothing back.
func (c *Conn) onWant(now mono.Time, number uint32) {
	m := c.msgs
	if m == nil || m.in.from == nil || m.in.from.id == 0 || int32(number-m.in.begun) <= 0 ||
		int32(number-m.in.begun) > maxCredit {
		return
	}
	m.in.wants = atLeast(m.in.wants, number)
	c.askAgain()
	c.e.serveAsking(now, m.in.from)
}

// askAgain puts a connection among those that ask, if its peer wants buffers and it is not there. It reports whether it
// did. Those that ended meanwhile are forgotten now and then: there may be no buffer that passes them for long.
func (c *Conn) askAgain() bool {
	m := c.msgs
	if m.in.asks || int32(m.in.wants-m.in.limit) <= 0 {
		return false
	}
	m.in.asks = true
	m.in.from.enter(c, &m.in.from.asking)
	return true
}

// enter puts a connection behind the others of a list, in which it is not.
func (q *receiveQueue) enter(c *Conn, list *queue.Queue[ConnID]) {
	if list.Len() > 2*len(q.takers) {
		list.Remove(func(id ConnID) bool { return c.e.takerOf(q, id) == nil })
	}
	list.Push(c.ID)
}

// takerOf returns a connection that takes buffers from a queue, nil if it is over.
func (e *Endpoint) takerOf(q *receiveQueue, id ConnID) *Conn {
	if c := e.conn(id); c != nil && c.msgs != nil && c.msgs.in.from == q {
		return c
	}
	return nil
}

// mostAsked is how many buffers one connection can be promised by asking.
const mostAsked = 64

// serveAsking promises free buffers to those who asked, in turn: one to each, more while half of the queue is free.
func (e *Endpoint) serveAsking(now mono.Time, q *receiveQueue) {
	for q.free()+q.lent > 0 && q.asking.Len() > 0 {
		c := e.takerOf(q, *q.asking.Front())
		q.asking.Pop()
		if c == nil {
			continue
		}
		m := c.msgs
		m.in.asks = false
		if m.in.has() > 0 && !q.halfFree() {
			continue // it has some that it does not use, and asks again when it has
		}
		want := min(int(int32(m.in.wants-m.in.limit)), mostAsked-m.in.has(), max(1, q.spare()))
		if want > 0 {
			m.in.more(want)
			c.tellCredit(now)
		}
	}
	if q.starves() {
		e.checkSoon(now, q)
	}
}

// tellCredit has the peer told of new buffers: with the next acknowledgement, or at once if it has none left.
func (c *Conn) tellCredit(now mono.Time) {
	m := c.msgs
	m.in.owesCredit = true
	if int32(m.in.told-m.in.begun) <= 0 {
		c.ctl |= ctlCredit
		c.wake()
	} else {
		c.oweAck()
	}
	if c.recv.held > 0 {
		c.release(now) // strict sends that waited for their turn
	}
}

// credit is the segment that tells the peer.
func (c *Conn) credit() wire.Segment {
	m := c.msgs
	m.in.owesCredit, m.in.told = false, m.in.limit
	g := wire.Segment{Kind: wire.KindCredit, Conn: c.remote, Limit: m.in.limit}
	if m.in.from != nil && m.in.from.id != 0 {
		g.Flags = wire.CreditShared
	}
	return g
}

// decided reports whether it is known if a message has a buffer: a strict one that has none must be the next of all,
// any other waits for one if what it was promised was lent.
func (c *Conn) decided(g *segment) bool {
	m, number, strict := c.messages(), uint32(g.key), g.flags&wire.SegStrict != 0
	switch {
	case int32(number-m.in.limit) >= 0: // malformed, unless it is strict
		return !strict || number == m.in.base
	case int32(number-m.in.begun) < 0 || m.in.from.posted.Len() > int(number-m.in.begun) || strict &&
		number == m.in.base:
		return true
	}
	for m.in.from.posted.Len() > 0 { // those before it take what there is; or others would wait for who takes none
		m.in.begin()
	}
	if !m.in.short {
		m.in.short = true
		m.in.from.enter(c, &m.in.from.short)
	}
	return false
}

// skip passes over a strict message that had no buffer.
func (m *receiving) skip() {
	m.base, m.limit = m.base+1, m.limit+1
	m.passed()
}

// passed counts a message that has its buffer, or has none.
func (m *receiving) passed() {
	m.begun++
	m.told, m.wants = atLeast(m.told, m.begun), atLeast(m.wants, m.begun)
}

// atLeast keeps a number of a message from falling so far behind that it would seem to be ahead.
func atLeast(number, least uint32) uint32 {
	if int32(number-least) < 0 {
		return least
	}
	return number
}

// buffer returns the buffer of a message that operation op carries; nil if the peer may not send it. It reports false
// if there is none now, since what the peer was promised was lent.
func (m *receiving) buffer(number uint32, op seqnum.Value) (a *arrival, there bool) {
	if int32(number-m.base) < 0 || int32(number-m.limit) >= 0 {
		return nil, true
	}
	for int32(number-m.begun) >= 0 {
		if m.from.posted.Len() == 0 {
			return nil, false
		}
		m.begin()
	}
	a = m.at(number)
	if !a.bound {
		a.bound, a.op = true, op
	}
	if a.op != op {
		return nil, true
	}
	return a, true
}

// begin takes the oldest buffer for the next message.
func (m *receiving) begin() {
	n := int(m.begun - m.base)
	if n == len(m.buffers) {
		old := m.buffers
		m.buffers = make([]arrival, max(firstRing, 2*n))
		for i := range old {
			number := m.base + uint32(i)
			*m.at(number) = old[number&uint32(len(old)-1)]
		}
	}
	*m.at(m.begun) = arrival{Receive: *m.from.posted.Front()}
	m.from.posted.Pop()
	m.from.promised--
	if m.lent > 0 {
		m.lent--
		m.from.lent--
	}
	m.from.filling++
	m.passed()
}

// vacant returns the place of [at, at+n) of an operation's message, if it is in its buffer.
func (m *messages) vacant(o *recvOp, at, n uint64) []byte {
	a := m.in.at(uint32(o.key))
	if size := uint64(len(a.Local)); at > size || n > size-at {
		return nil
	}
	return a.Local[at : at+n]
}

// filled notes that nothing more comes into a buffer, and gives those whose turn it is to their owner.
func (c *Conn) filled(now mono.Time, a *arrival) {
	a.filled = true
	m := c.msgs
	for m.in.base != m.in.begun && m.in.at(m.in.base).filled {
		a := m.in.at(m.in.base)
		c.e.handBack(c.ID, &a.Receive, a.status, a.Arrived)
		*a = arrival{}
		m.in.base++
		m.in.from.filling--
	}
	if q := m.in.from; q.id != 0 {
		c.topUp(now)
		if c.askAgain() {
			c.e.serveAsking(now, q)
		}
	}
}

// handBack tells the owner of a buffer that it is his.
func (e *Endpoint) handBack(id ConnID, r *Receive, st abi.Status, got Arrived) {
	if r.Region != nil {
		r.Region.InFlight--
	}
	e.Emit(Event{Kind: EvReceived, Conn: id, Token: r.Token, Status: st, Msg: got})
}

func (e *Endpoint) flushPosted(id ConnID, q *receiveQueue, st abi.Status) {
	for ; q.posted.Len() > 0; q.posted.Pop() {
		e.handBack(id, q.posted.Front(), st, Arrived{})
	}
}

// flush gives back the buffers of a connection that ends with st, but for those of a shared queue that no message had
// begun to fill.
func (c *Conn) flush(now mono.Time, st abi.Status) {
	m := c.msgs
	if m == nil || m.in.from == nil {
		return
	}
	if st == OK {
		st = abi.StatusClosed
	}
	q := m.in.from
	q.filling -= int(m.in.begun - m.in.base)
	for ; m.in.base != m.in.begun; m.in.base++ {
		c.e.handBack(c.ID, &m.in.at(m.in.base).Receive, st, Arrived{})
	}
	m.in.from, m.in.buffers = nil, nil
	if q.id == 0 {
		c.e.flushPosted(c.ID, q, st)
		return
	}
	last := len(q.takers) - 1
	q.takers[m.in.place], q.takers[last].msgs.in.place = q.takers[last], m.in.place
	q.takers[last] = nil
	q.takers = q.takers[:last]
	q.promised -= int(m.in.limit - m.in.begun)
	q.lent -= m.in.lent
	m.in.limit, m.in.lent = m.in.begun, 0
	c.e.serveAsking(now, q)
}
