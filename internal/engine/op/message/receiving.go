package message

import (
	"multiedge/internal/abi"
	"multiedge/internal/mono"
	"multiedge/internal/seqnum"
)

// Receiving is the peer's messages of one connection: those before base are with their owner, [base, begun) have
// buffers, [begun, limit) are promised some.
type Receiving struct {
	conn               uint32
	from               *Queue // nil: no buffer was posted yet, or the connection is over
	base, begun, limit uint32
	told               uint32    // the limit as the peer was told last, or begun
	buffers            []Arrival // ring of [base, begun), its length a power of two or 0
	owes               bool      // the next acknowledgement is to tell the peer of limit
	asks, short        bool      // the connection is in from.asking, in from.short
	wants              uint32    // up to which number the peer asked for buffers, or begun
	place              int       // in from.takers
	borrowing
}

// Arrival is a buffer that a message fills.
type Arrival struct {
	Buffer
	Arrived
	Status abi.Status
	op     seqnum.Value
	bound  bool // to op
	filled bool
}

// firstRing is the length that rings of buffers start with. A power of two.
const firstRing = 4

// ArrivalCost is what a buffer that is being filled takes, in bytes.
const ArrivalCost = 72

// Init makes it that of a connection.
func (r *Receiving) Init(conn uint32) { r.conn = conn }

// From is the queue that the connection takes buffers from; nil: none yet, or it is over.
func (r *Receiving) From() *Queue { return r.from }

// Limit is the number of the first message that is not promised a buffer.
func (r *Receiving) Limit() uint32 { return r.limit }

// Promised is how many buffers it is promised that no message has begun to fill.
func (r *Receiving) Promised() int { return int(int32(r.limit - r.begun)) }

// Filling is how many buffers its messages have.
func (r *Receiving) Filling() int { return int(r.begun - r.base) }

// Ring is the length of the ring of buffers that messages fill.
func (r *Receiving) Ring() int { return len(r.buffers) }

// has is how many buffers the peer has: those that it was promised, and those that it has not filled yet. A peer can
// begin messages and never end them, or end all but the first.
func (r *Receiving) has() int { return int(r.limit - r.base) }

func (r *Receiving) at(number uint32) *Arrival { return &r.buffers[number&uint32(len(r.buffers)-1)] }

// Post takes a buffer for the messages of the connection alone. It reports false, and nothing has happened, if it takes
// from a shared queue, or has too many.
func (r *Receiving) Post(b *Buffer) bool {
	if r.from == nil {
		r.from = &Queue{}
	}
	if r.from.id != 0 || r.from.posted.Len() >= MaxCredit/2 {
		return false
	}
	r.from.post(b)
	r.Promise()
	return true
}

// Join has the connection take its buffers from a shared queue. It reports false if it was given buffers of its own,
// and whether it was promised some.
func (r *Receiving) Join(q *Queue) (joined, promised bool) {
	if r.from != nil {
		return false, false
	}
	r.from, r.place = q, len(q.takers)
	q.takers = append(q.takers, r)
	r.owes = true // that the queue is shared must be known even without a buffer
	return true, r.TopUp()
}

// Promise promises a buffer more, if one is free.
func (r *Receiving) Promise() bool {
	if r.from == nil || r.from.free() < 1 {
		return false
	}
	r.more(1)
	return true
}

// more promises n buffers more.
func (r *Receiving) more(n int) {
	r.from.promised += n
	r.limit += uint32(n)
}

// TopUp promises a connection of a shared queue what it may have without asking, while half of the queue is free. It
// reports whether that was any.
func (r *Receiving) TopUp() (promised bool) {
	for q := r.from; r.has() < q.standing() && q.halfFree() && r.Promise(); {
		promised = true
	}
	return promised
}

// Want takes the peer's wish for buffers up to a number (clause 14.5). One that does not use those it has gets no more;
// one that a later wish overtook takes nothing back.
func (t *Queues) Want(now mono.Time, r *Receiving, number uint32) {
	if r.from == nil || r.from.id == 0 || int32(number-r.begun) <= 0 || int32(number-r.begun) > MaxCredit {
		return
	}
	r.wants = atLeast(r.wants, number)
	r.askAgain()
	t.serve(now, r.from)
}

// askAgain puts a connection among those that ask, if its peer wants buffers and it is not there. It reports whether it
// did.
func (r *Receiving) askAgain() bool {
	if r.asks || int32(r.wants-r.limit) <= 0 {
		return false
	}
	r.asks = true
	r.from.enter(r, &r.from.asking)
	return true
}

// Owe has the next acknowledgement tell the peer of new buffers. It reports whether the peer has none left.
func (r *Receiving) Owe() (urgent bool) {
	r.owes = true
	return int32(r.told-r.begun) <= 0
}

// Owes reports whether the peer is to be told.
func (r *Receiving) Owes() bool { return r.owes }

// Tell returns what the peer is told now: the number of the first message that has no buffer, and whether the buffers
// are of a queue that others use too.
func (r *Receiving) Tell() (limit uint32, shared bool) {
	r.owes, r.told = false, r.limit
	return r.limit, r.from != nil && r.from.id != 0
}

// Decided reports whether it is known if a message has a buffer: a strict one that has none must be the next of all,
// any other waits for one if what it was promised was lent.
func (r *Receiving) Decided(number uint32, strict bool) bool {
	switch {
	case int32(number-r.limit) >= 0: // malformed, unless it is strict
		return !strict || number == r.base
	case int32(number-r.begun) < 0 || r.from.posted.Len() > int(number-r.begun) || strict && number == r.base:
		return true
	}
	for r.from.posted.Len() > 0 { // those before it take what there is; or others would wait for one that takes none
		r.begin()
	}
	if !r.short {
		r.short = true
		r.from.enter(r, &r.from.short)
	}
	return false
}

// Lacks reports whether a strict message, the next of all, has no buffer and gets none.
func (r *Receiving) Lacks(number uint32) bool {
	return number == r.limit && number == r.base && !r.Promise()
}

// Skip passes over a strict message that had no buffer. It reports whether a buffer was promised, which is for the next
// then.
func (r *Receiving) Skip() (promised bool) {
	r.base, r.limit = r.base+1, r.limit+1
	r.passed()
	return r.limit != r.begun
}

// passed counts a message that has its buffer, or has none.
func (r *Receiving) passed() {
	r.begun++
	r.told, r.wants = atLeast(r.told, r.begun), atLeast(r.wants, r.begun)
}

// atLeast keeps a number of a message from falling so far behind that it would seem to be ahead.
func atLeast(number, least uint32) uint32 {
	if int32(number-least) < 0 {
		return least
	}
	return number
}

// Take returns the buffer of a message that operation op carries; nil if the peer may not send it. It reports false if
// there is none now, since what the peer was promised was lent.
func (r *Receiving) Take(number uint32, op seqnum.Value) (a *Arrival, there bool) {
	if int32(number-r.base) < 0 || int32(number-r.limit) >= 0 {
		return nil, true
	}
	for int32(number-r.begun) >= 0 {
		if r.from.posted.Len() == 0 {
			return nil, false
		}
		r.begin()
	}
	a = r.at(number)
	if !a.bound {
		a.bound, a.op = true, op
	}
	if a.op != op {
		return nil, true
	}
	return a, true
}

// begin takes the oldest buffer for the next message.
func (r *Receiving) begin() {
	n := int(r.begun - r.base)
	if n == len(r.buffers) {
		old := r.buffers
		r.buffers = make([]Arrival, max(firstRing, 2*n))
		for i := range old {
			number := r.base + uint32(i)
			*r.at(number) = old[number&uint32(len(old)-1)]
		}
	}
	*r.at(r.begun) = Arrival{Buffer: *r.from.posted.Front()}
	r.from.posted.Pop()
	r.from.promised--
	if r.lent > 0 {
		r.lent--
		r.from.lent--
	}
	r.from.filling++
	r.passed()
}

// Local is the buffer of a message that has one, if it is one range.
func (r *Receiving) Local(number uint32) []byte { return r.at(number).Local }

// Filled notes that nothing more comes into a buffer, and gives those whose turn it is to their owner. It reports
// whether the connection was promised buffers of a shared queue: the peer is to be told, and then Filled is to be
// followed by AskMore.
func (t *Queues) Filled(r *Receiving, a *Arrival) (promised bool) {
	a.filled = true
	for r.base != r.begun && r.at(r.base).filled {
		a := r.at(r.base)
		t.handBack(r.conn, &a.Buffer, a.Status, a.Arrived)
		*a = Arrival{}
		r.base++
		r.from.filling--
	}
	return r.from.id != 0 && r.TopUp()
}

// AskMore asks again for a connection of a shared queue whose peer wants more.
func (t *Queues) AskMore(now mono.Time, r *Receiving) {
	if q := r.from; q.id != 0 && r.askAgain() {
		t.serve(now, q)
	}
}

// Leave gives back the buffers of a connection that ends with st, but for those of a shared queue that no message had
// begun to fill.
func (t *Queues) Leave(now mono.Time, r *Receiving, st abi.Status) {
	q := r.from
	if q == nil {
		return
	}
	q.filling -= int(r.begun - r.base)
	for ; r.base != r.begun; r.base++ {
		t.handBack(r.conn, &r.at(r.base).Buffer, st, Arrived{})
	}
	r.from, r.buffers = nil, nil
	if q.id == 0 {
		t.handBackAll(r.conn, q, st)
		return
	}
	last := len(q.takers) - 1
	q.takers[r.place], q.takers[last].place = q.takers[last], r.place
	q.takers[last] = nil
	q.takers = q.takers[:last]
	q.promised -= int(r.limit - r.begun)
	q.lent -= r.lent
	r.limit, r.lent = r.begun, 0
	t.serve(now, q)
}

// GiveBack forgets the memory for buffers that were being filled, if there are none, and returns how much that was.
func (r *Receiving) GiveBack() (bytes int) {
	if r.base == r.begun {
		bytes = len(r.buffers) * ArrivalCost
		r.buffers = nil
	}
	return bytes
}
