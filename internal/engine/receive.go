package engine

import (
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
	queues    map[QueueID]*receiveQueue
	lastQueue QueueID
}

// receiveQueue is posted buffers that no message has begun to fill.
type receiveQueue struct {
	id       QueueID // 0: a connection's own
	posted   queue[Receive]
	promised int // of posted
	conns    int // that take from it
	asking   queue[ConnID]
}

// receiving is the peer's messages: those before base are with their owner, [base, begun) have buffers, [begun, limit)
// are promised some.
type receiving struct {
	from               *receiveQueue
	base, begun, limit uint32
	told               uint32    // the limit as the peer was told last
	buffers            []arrival // ring of [base, begun), its length a power of two or 0
	owesCredit         bool      // the next OpAck is to tell the peer of limit
	asks               bool      // the connection is in from.asking
	wants              uint32    // up to which number the peer asked for buffers, unless that is begun or before
}

// arrival is a buffer that a message fills.
type arrival struct {
	Receive
	Arrived
	op     seqnum.Value
	bound  bool // to op
	filled bool
	status Status
}

// free is how many buffers nobody was promised.
func (q *receiveQueue) free() int { return q.posted.len() - q.promised }

func (m *receiving) at(number uint32) *arrival { return &m.buffers[number&uint32(len(m.buffers)-1)] }

// PostReceive takes a buffer for the messages of a connection. It reports false, and nothing has happened, if the
// connection is not open or takes from a shared queue. Exactly one EvReceived with r.Token follows otherwise.
func (e *Endpoint) PostReceive(now mono.Time, id ConnID, r *Receive) bool {
	c := e.conn(id)
	if c == nil || c.state != connOpen || c.ping {
		return false
	}
	m := c.messages()
	if m.from == nil {
		m.from = &receiveQueue{conns: 1}
	}
	if m.from.id != 0 || m.from.posted.len() >= maxCredit/2 {
		return false
	}
	m.from.post(r)
	m.promise(1)
	c.tellCredit(now)
	return true
}

func (q *receiveQueue) post(r *Receive) {
	q.posted.push(*r)
	if r.Region != nil {
		r.Region.InFlight++
	}
}

// NewReceiveQueue makes a queue that connections can share.
func (e *Endpoint) NewReceiveQueue() QueueID {
	e.lastQueue++
	if e.queues == nil {
		e.queues = map[QueueID]*receiveQueue{}
	}
	e.queues[e.lastQueue] = &receiveQueue{id: e.lastQueue}
	return e.lastQueue
}

// DropReceiveQueue gives back what is posted to a shared queue. It reports false, and nothing has happened, while
// connections take from it.
func (e *Endpoint) DropReceiveQueue(id QueueID) bool {
	q := e.queues[id]
	if q == nil || q.conns > 0 {
		return false
	}
	delete(e.queues, id)
	e.flushPosted(0, q, StatusClosed)
	return true
}

// JoinReceiveQueue has a connection take its buffers from a shared queue from now on. It reports false if the
// connection is not open, or was given buffers of its own.
func (e *Endpoint) JoinReceiveQueue(now mono.Time, id ConnID, queue QueueID) bool {
	c, q := e.conn(id), e.queues[queue]
	if c == nil || q == nil || c.state != connOpen || c.ping || c.messages().from != nil {
		return false
	}
	c.msgs.from = q
	q.conns++
	c.msgs.owesCredit = true // that the queue is shared must be known even without a buffer
	c.topUp(now)
	c.ctl |= ctlCredit
	c.wake()
	return true
}

// PostShared takes a buffer for the messages of all connections that share a queue.
func (e *Endpoint) PostShared(now mono.Time, id QueueID, r *Receive) bool {
	q := e.queues[id]
	if q == nil {
		return false
	}
	q.post(r)
	e.serveAsking(now, q)
	return true
}

// promise promises n buffers more, if so many are free.
func (m *receiving) promise(n int) bool {
	if m.from == nil || m.from.free() < n {
		return false
	}
	m.from.promised += n
	m.limit += uint32(n)
	return true
}

// standing is how many buffers of a shared queue a connection is promised before its peer asks.
func (q *receiveQueue) standing() int { return min(max(q.posted.len()/(2*max(q.conns, 1)), 1), 16) }

// topUp promises a connection of a shared queue what it may have without asking, while half of the queue is free.
func (c *conn) topUp(now mono.Time) {
	m, gave := c.msgs, false
	for q := m.from; int(m.limit-m.begun) < q.standing() && 2*q.free() > q.posted.len() && m.promise(1); {
		gave = true
	}
	if gave {
		c.tellCredit(now)
	}
}

// onWant takes the peer's wish for buffers (clause 14.5). One that does not use those it has gets no more; one that a
// later wish overtook takes nothing back.
func (c *conn) onWant(now mono.Time, number uint32) {
	m := c.msgs
	if m == nil || m.from == nil || m.from.id == 0 || int32(number-m.begun) <= 0 || int32(number-m.begun) > maxCredit {
		return
	}
	if int32(m.wants-m.begun) <= 0 || int32(number-m.wants) > 0 {
		m.wants = number
	}
	c.askAgain()
	c.e.serveAsking(now, m.from)
}

// askAgain puts a connection among those that ask, if its peer wants buffers and it is not there. It reports whether it
// did. Those that ended meanwhile are forgotten now and then: there may be no buffer that passes them for long.
func (c *conn) askAgain() bool {
	m := c.msgs
	if m.asks || int32(m.wants-m.limit) <= 0 {
		return false
	}
	q := m.from
	if q.asking.len() > 2*q.conns {
		q.asking.remove(func(id ConnID) bool { return c.e.takerOf(q, id) == nil })
	}
	m.asks = true
	q.asking.push(c.id)
	return true
}

// takerOf returns a connection that takes buffers from a queue, nil if it is over.
func (e *Endpoint) takerOf(q *receiveQueue, id ConnID) *conn {
	if c := e.conn(id); c != nil && c.msgs != nil && c.msgs.from == q {
		return c
	}
	return nil
}

// mostAsked is how many buffers one connection can be promised by asking.
const mostAsked = 64

// serveAsking promises free buffers to those who asked, in turn: one to each, more while half of the queue is free.
func (e *Endpoint) serveAsking(now mono.Time, q *receiveQueue) {
	for q.free() > 0 && q.asking.len() > 0 {
		c := e.takerOf(q, *q.asking.front())
		q.asking.pop()
		if c == nil {
			continue
		}
		m := c.msgs
		m.asks = false
		if m.limit != m.begun && 2*q.free() <= q.posted.len() {
			continue // it has some that it does not use
		}
		want := min(int(int32(m.wants-m.limit)), mostAsked-int(m.limit-m.begun), max(1, q.free()-q.posted.len()/2))
		if want > 0 && m.promise(want) {
			c.tellCredit(now)
		}
	}
}

// tellCredit has the peer told of new buffers: with the next acknowledgement, or at once if it has none left.
func (c *conn) tellCredit(now mono.Time) {
	m := c.msgs
	m.owesCredit = true
	if int32(m.told-m.begun) <= 0 {
		c.ctl |= ctlCredit
		c.wake()
	} else {
		c.oweAck()
	}
	if c.held > 0 {
		c.release(now) // strict sends that waited for their turn
	}
}

// credit is the segment that tells the peer.
func (c *conn) credit() wire.Segment {
	m := c.msgs
	m.owesCredit, m.told = false, m.limit
	g := wire.Segment{Kind: wire.KindCredit, Conn: c.remote, Limit: m.limit}
	if m.from != nil && m.from.id != 0 {
		g.Flags = wire.CreditShared
	}
	return g
}

// decided reports whether it is known if a strict message has a buffer: one beyond the limit must be the next of all.
func (c *conn) decided(number uint32) bool {
	m := c.messages()
	return int32(number-m.limit) < 0 || number == m.base
}

// skip passes over a strict message that had no buffer.
func (m *receiving) skip() { m.base, m.begun, m.limit = m.base+1, m.begun+1, m.limit+1 }

// buffer returns the buffer of a message that operation op carries; nil if the peer may not send it.
func (m *receiving) buffer(number uint32, op seqnum.Value) *arrival {
	if int32(number-m.base) < 0 || int32(number-m.limit) >= 0 {
		return nil
	}
	for int32(number-m.begun) >= 0 {
		m.begin()
	}
	a := m.at(number)
	if !a.bound {
		a.bound, a.op = true, op
	}
	if a.op != op {
		return nil
	}
	return a
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
	*m.at(m.begun) = arrival{Receive: *m.from.posted.front()}
	m.from.posted.pop()
	m.from.promised--
	m.begun++
}

// vacant returns the place of [at, at+n) of an operation's message, if it is in its buffer.
func (m *messages) vacant(o *recvOp, at, n uint64) []byte {
	a := m.at(uint32(o.key))
	if size := uint64(len(a.Local)); at > size || n > size-at {
		return nil
	}
	return a.Local[at : at+n]
}

// filled notes that nothing more comes into a buffer, and gives those whose turn it is to their owner.
func (c *conn) filled(now mono.Time, a *arrival) {
	a.filled = true
	m := c.msgs
	for m.base != m.begun && m.at(m.base).filled {
		a := m.at(m.base)
		c.e.handBack(c.id, &a.Receive, a.status, a.Arrived)
		*a = arrival{}
		m.base++
	}
	if q := m.from; q.id != 0 {
		c.topUp(now)
		if c.askAgain() {
			c.e.serveAsking(now, q)
		}
	}
}

// handBack tells the owner of a buffer that it is his.
func (e *Endpoint) handBack(id ConnID, r *Receive, st Status, got Arrived) {
	if r.Region != nil {
		r.Region.InFlight--
	}
	e.emit(Event{Kind: EvReceived, Conn: id, Token: r.Token, Status: st, Msg: got})
}

func (e *Endpoint) flushPosted(id ConnID, q *receiveQueue, st Status) {
	for ; q.posted.len() > 0; q.posted.pop() {
		e.handBack(id, q.posted.front(), st, Arrived{})
	}
}

// flush gives back the buffers of a connection that ends with st, but for those of a shared queue that no message had
// begun to fill.
func (c *conn) flush(now mono.Time, st Status) {
	m := c.msgs
	if m == nil || m.from == nil {
		return
	}
	if st == OK {
		st = StatusClosed
	}
	for ; m.base != m.begun; m.base++ {
		c.e.handBack(c.id, &m.at(m.base).Receive, st, Arrived{})
	}
	q := m.from
	m.from, m.buffers = nil, nil
	q.conns--
	if q.id == 0 {
		c.e.flushPosted(c.id, q, st)
		return
	}
	q.promised -= int(m.limit - m.begun)
	m.limit = m.begun
	c.e.serveAsking(now, q)
}
