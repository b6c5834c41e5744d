// Package message has the buffers of messages (PROTOCOL clause 14): those that are posted here, to which connections
// they are promised, and what the peer promises. It knows no connections and no frames, but connections by number: what
// they are to do it tells its owner by three functions.
//
// Buffers are posted to a queue: a connection's own, or one that several share. Each is promised to one connection
// before its peer may send a message for it. All of an own queue are promised at once; of a shared one a few are
// promised to everybody while half of it is free, and the rest to those who ask.
//
// The buffer of a message is the oldest of the queue when the message, or one after it, begins to arrive, so that
// buffers go to messages in the order of their numbers; and so do the completions.
package message

import (
	"multiedge/internal/abi"
	"multiedge/internal/engine/op/pieces"
	"multiedge/internal/engine/queue"
	"multiedge/internal/mono"
	"multiedge/regmem"
)

// Buffer is a posted buffer. Local, or Pieces, must stay valid until it is handed back.
type Buffer struct {
	Token  uint64
	Local  []byte
	Region *regmem.Region // its InFlight counts the buffer; may be nil
	Pieces *pieces.List   // in place of Local and Region; nil: it is one range
}

// Size is how many bytes a message can have that the buffer takes.
func (b *Buffer) Size() uint64 {
	if b.Pieces != nil {
		return b.Pieces.Size
	}
	return uint64(len(b.Local))
}

// use counts the buffer for its regions, or one less.
func (b *Buffer) use(n int) {
	if b.Pieces != nil {
		b.Pieces.Use(n)
	} else if b.Region != nil {
		b.Region.InFlight += n
	}
}

// Arrived says what a message left in the buffer that took it.
type Arrived struct {
	Len    uint32
	Imm    uint32
	HasImm bool
	Tells  bool // the message is about a write of Len bytes before it, and put nothing into the buffer
}

// QueueID names a shared receive queue of an endpoint. Zero is none.
type QueueID uint32

// MaxCredit is the most buffers that one connection can be promised.
const MaxCredit = 1 << 16

// mostAsked is how many buffers one connection can be promised by asking.
const mostAsked = 64

// Queue is posted buffers that no message has begun to fill.
type Queue struct {
	id       QueueID // 0: a connection's own
	posted   queue.Queue[Buffer]
	promised int                     // of posted
	filling  int                     // buffers that messages have begun to fill, and that are not their owner's yet
	takers   []*Receiving            // that take from it, if it is shared
	asking   queue.Queue[*Receiving] // those whose peers want buffers
	lending
}

// Shared reports whether several connections can take from the queue.
func (q *Queue) Shared() bool { return q.id != 0 }

// Takers is how many connections take from it, if it is shared.
func (q *Queue) Takers() int { return len(q.takers) }

// Posted is how many buffers no message has begun to fill.
func (q *Queue) Posted() int { return q.posted.Len() }

// Counts is how many buffers are promised, are being filled and are lent.
func (q *Queue) Counts() (promised, filling, lent int) { return q.promised, q.filling, q.lent }

// Asking is how many entries the list of those has that ask for buffers.
func (q *Queue) Asking() int { return q.asking.Len() }

func (q *Queue) post(b *Buffer) {
	q.posted.Push(*b)
	b.use(1)
}

// free is how many buffers nobody was promised.
func (q *Queue) free() int { return q.posted.Len() - q.promised }

// halfFree reports whether more than half of the buffers are free, those that are being filled counted.
func (q *Queue) halfFree() bool { return q.spare() > 0 }

// spare is how many buffers are free beyond half of all, those that are being filled included.
func (q *Queue) spare() int { return q.free() - (q.posted.Len()+q.filling)/2 }

// standing is how many buffers of a shared queue a connection is promised before its peer asks.
func (q *Queue) standing() int {
	return min(max(q.posted.Len()/(2*max(len(q.takers), 1)), 1), 16)
}

// enter puts a connection behind the others of a list, in which it is not. Those that ended meanwhile are forgotten now
// and then: there may be no buffer that passes them for long.
func (q *Queue) enter(r *Receiving, list *queue.Queue[*Receiving]) {
	if list.Len() > 2*len(q.takers) {
		list.Remove(func(r *Receiving) bool { return r.from != q })
	}
	list.Push(r)
}

// next takes the first connection of a list; nil: it takes from the queue no more.
func (q *Queue) next(list *queue.Queue[*Receiving]) *Receiving {
	r := *list.Front()
	list.Pop()
	if r.from != q {
		return nil
	}
	return r
}

// Calls are what a connection, by its number, is to do.
type Calls struct {
	Promised func(now mono.Time, conn uint32) // tell the peer of new buffers
	Resume   func(now mono.Time, conn uint32) // go on with messages that found no buffer, for which there may be one
	// HandBack tells the owner of a buffer that it is his. Of what no message came for, got is zero; of a shared queue
	// that is dropped, so is conn.
	HandBack func(conn uint32, b *Buffer, st abi.Status, got Arrived)
}

// Queues are the queues that connections share.
type Queues struct {
	calls    Calls
	byID     map[QueueID]*Queue
	last     QueueID
	lenders  []*Queue  // those that are looked at
	unusedAt mono.Time // when they are, if there are any
}

// Init sets what connections are told by.
func (t *Queues) Init(calls Calls) { *t = Queues{calls: calls, byID: map[QueueID]*Queue{}} }

// Len is how many there are.
func (t *Queues) Len() int { return len(t.byID) }

// Find returns the queue of that number; nil: there is none.
func (t *Queues) Find(id QueueID) *Queue { return t.byID[id] }

// New makes a queue.
func (t *Queues) New() QueueID {
	for t.last++; t.last == 0 || t.byID[t.last] != nil; t.last++ {
	}
	t.byID[t.last] = &Queue{id: t.last}
	return t.last
}

// Drop gives back what is posted to a queue. It reports false, and nothing has happened, while connections take from
// it.
func (t *Queues) Drop(id QueueID) bool {
	q := t.byID[id]
	if q == nil || len(q.takers) > 0 {
		return false
	}
	delete(t.byID, id)
	t.handBackAll(0, q, abi.StatusClosed)
	return true
}

// Post takes a buffer for the messages of all connections that share a queue. It reports whether there is such a queue.
func (t *Queues) Post(now mono.Time, id QueueID, b *Buffer) bool {
	q := t.byID[id]
	if q == nil {
		return false
	}
	q.post(b)
	t.serveShort(now, q)
	t.serve(now, q)
	return true
}

// serve promises free buffers to those who asked, in turn: one to each, more while half of the queue is free.
func (t *Queues) serve(now mono.Time, q *Queue) {
	for q.free()+q.lent > 0 && q.asking.Len() > 0 {
		r := q.next(&q.asking)
		if r == nil {
			continue
		}
		r.asks = false
		if r.has() > 0 && !q.halfFree() {
			continue // it has some that it does not use, and asks again when it has
		}
		want := min(int(int32(r.wants-r.limit)), mostAsked-r.has(), max(1, q.spare()))
		if want > 0 {
			r.more(want)
			t.calls.Promised(now, r.conn)
		}
	}
	if q.starves() {
		t.checkSoon(now, q)
	}
}

func (t *Queues) handBack(conn uint32, b *Buffer, st abi.Status, got Arrived) {
	b.use(-1)
	t.calls.HandBack(conn, b, st, got)
}

func (t *Queues) handBackAll(conn uint32, q *Queue, st abi.Status) {
	for ; q.posted.Len() > 0; q.posted.Pop() {
		t.handBack(conn, q.posted.Front(), st, Arrived{})
	}
}
