package message

import (
	"testing"
	"time"

	"multiedge/internal/abi"
	"multiedge/internal/mono"
	"multiedge/internal/seqnum"
)

// end is the receiving end of connections that share queues. It notes what they are told.
type end struct {
	t        *testing.T
	q        Queues
	conns    map[uint32]*Receiving
	resumed  []uint32
	promised map[uint32]int
	back     []uint64 // tokens
}

func newEnd(t *testing.T) *end {
	e := &end{t: t, conns: map[uint32]*Receiving{}, promised: map[uint32]int{}}
	e.q.Init(Calls{
		Promised: func(_ mono.Time, conn uint32) { e.promised[conn]++ },
		Resume:   func(_ mono.Time, conn uint32) { e.resumed = append(e.resumed, conn) },
		HandBack: func(_ uint32, b *Buffer, _ abi.Status, _ Arrived) { e.back = append(e.back, b.Token) },
	})
	return e
}

// join makes a connection that takes from a queue.
func (e *end) join(conn uint32, q QueueID) *Receiving {
	r := &Receiving{}
	r.Init(conn)
	if joined, _ := r.Join(e.q.Find(q)); !joined {
		e.t.Fatalf("connection %d does not join the queue", conn)
	}
	e.conns[conn] = r
	return r
}

func (e *end) post(q QueueID, n int) {
	for k := range n {
		e.q.Post(0, q, &Buffer{Token: uint64(k), Local: make([]byte, 8)})
	}
}

// arrive has the next message of a connection arrive whole.
func (e *end) arrive(r *Receiving) {
	e.t.Helper()
	number := r.begun
	a, there := r.Take(number, seqnum.Value(number))
	if a == nil || !there {
		e.t.Fatalf("message %d: no buffer", number)
	}
	e.q.Filled(r, a)
	e.q.AskMore(0, r)
}

// Numbers of receive queues that come round again do not take the place of queues that there are.
func TestQueueNumbersComeRound(t *testing.T) {
	e := newEnd(t)
	first := e.q.New()
	e.q.last = ^QueueID(0) - 1
	if a, b := e.q.New(), e.q.New(); a != ^QueueID(0) || b == 0 || b == first {
		t.Errorf("queues %d and %d beside %d", a, b, first)
	}
}

// Clause 14.5: a connection whose buffers were enough for 2^31 messages still asks when they are not, and gets no more
// than others as long as it does not.
func TestAskingAfterManyMessages(t *testing.T) {
	const many = 1<<31 - 3
	e := newEnd(t)
	q := e.q.New()
	e.post(q, 100)
	r, s := e.join(1, q), &Sending{}
	r.base, r.begun, r.limit, r.told = r.base+many, r.begun+many, r.limit+many, r.told+many
	s.next, s.credits = s.next+many, s.credits+many
	tell := func() {
		if limit, shared := r.Tell(); !s.OnCredit(limit, shared) {
			t.Fatalf("credit up to %d is refused after message %d", limit, s.next)
		}
	}
	for k := range 8 {
		tell()
		if n := s.Credit(); n < 1 || n > 16 {
			t.Fatalf("after %d messages it was promised %d buffers without asking", k, n)
		}
		if n := s.Next(); n != r.begun {
			t.Fatalf("message %d is number %d", n, r.begun)
		}
		e.arrive(r)
		e.post(q, 1)
	}
	tell()
	for s.Credit() > 0 {
		s.Next()
		e.arrive(r)
	}
	if !s.Asks(100) {
		t.Fatal("it does not ask")
	}
	e.q.Want(0, r, s.Ask(100))
	if tell(); s.Credit() < 1 || s.Asks(100) {
		t.Errorf("it asked and has %d; it asks again: %v", s.Credit(), s.Asks(100))
	}
}

// Connections that end while they wait for a buffer leave nothing in the queue.
func TestThoseThatWaitAreForgotten(t *testing.T) {
	e := newEnd(t)
	q := e.q.New()
	stays := e.join(1, q)
	lacks := func(r *Receiving) {
		r.more(1) // promised, and lent
		r.lent, r.from.lent = 1, r.from.lent+1
		if r.Decided(r.begun, false) {
			t.Fatal("there is a buffer")
		}
	}
	lacks(stays)
	for k := range uint32(100) {
		r := e.join(2+k, q)
		lacks(r)
		if n := e.q.Find(q).short.Len(); n > 10 {
			t.Fatalf("%d entries of 2 connections", n)
		}
		e.q.Leave(0, r, abi.StatusClosed)
	}
	e.post(q, 1)
	if len(e.resumed) != 1 || e.resumed[0] != 1 {
		t.Errorf("connections %v go on, want the one that stays", e.resumed)
	}
	e.q.Leave(0, stays, abi.StatusClosed)
	if promised, filling, lent := e.q.Find(q).Counts(); promised != 0 || filling != 0 || lent != 0 {
		t.Errorf("%d buffers are promised, %d are being filled, %d are lent to nobody", promised, filling, lent)
	}
}

// Clause 14.5: what a connection does not use is lent to one that asks in vain, after the time for that, and each look
// goes through the connections of the queue alone.
func TestUnusedIsLent(t *testing.T) {
	e := newEnd(t)
	q, other := e.q.New(), e.q.New()
	idle := e.join(1, q)
	e.post(q, 1)
	e.q.Want(0, idle, 1)
	if idle.Promised() != 1 {
		t.Fatalf("the one that asked was promised %d buffers", idle.Promised())
	}
	busy, far := e.join(2, q), e.join(3, other)
	if e.q.Timeout() != mono.Never {
		t.Error("unused buffers are looked for although nobody asks")
	}
	e.q.Want(0, busy, 1)
	if e.q.Timeout() != mono.Time(unusedTime) {
		t.Fatalf("unused buffers are looked for at %v", time.Duration(e.q.Timeout()))
	}
	now := mono.Time(0)
	for busy.Promised() == 0 {
		if now = e.q.Timeout(); now > mono.Time(time.Second) {
			t.Fatal("nothing is lent")
		}
		e.q.CheckUnused(now)
	}
	if now != mono.Time(2*unusedTime) {
		t.Errorf("lent after %v, want %v", time.Duration(now), 2*unusedTime)
	}
	if far.lookedTill != far.limit || far.lookedBegun != 0 || idle.lookedTill != idle.limit {
		t.Error("another queue's connection was looked at")
	}
	if _, _, lent := e.q.Find(q).Counts(); lent != 1 || e.promised[2] != 1 {
		t.Errorf("%d buffers are lent, the connection was told %d times", lent, e.promised[2])
	}
}
