package engine

import (
	"math/bits"
	"reflect"
	"weak"

	"multiedge/internal/engine/op/span"
	"multiedge/internal/mono"
)

// Sizes are the lengths of an endpoint's tables, for tests that look for growth.
type Sizes struct {
	Conns, Kept, Free, Dials, Sessions, Numbers, ByRemote, SendQueue, OpAcks, Records, Live, Outbox int
}

// TableSizes counts what the endpoint holds.
func (e *Endpoint) TableSizes() Sizes {
	z := Sizes{
		Conns: len(e.conns.byIndex), Free: len(e.conns.free), Dials: len(e.dials.byDeadline),
		Sessions: len(e.sessions.list),
		Numbers:  len(e.sessions.byNumber),
		Records:  len(e.recs.pool), Outbox: len(e.outbox),
	}
	for _, c := range e.conns.byIndex[1:] {
		if c.state != connFree {
			z.Live++
		}
		if c != e.conns.byIndex[0] {
			z.Kept++
		}
	}
	for _, s := range e.sessions.list {
		z.ByRemote += len(s.members.byRemote)
		z.SendQueue += s.members.fair.Waiting
		z.OpAcks += s.acks.opacks.Len()
	}
	return z
}

// HeldMemory is what segments behind fences and holes cost now, over all sessions.
func (e *Endpoint) HeldMemory() (n int) {
	for _, s := range e.sessions.list {
		n += s.members.heldMem
	}
	return n
}

// Spans is for how many spans a connection has memory.
func (e *Endpoint) Spans(id ConnID) (n int) {
	c := e.conn(id)
	n = cap(c.exports.told.Spans) + cap(c.exports.taken.Spans)
	for i := range c.send.ops {
		n += cap(c.send.ops[i].got.Spans)
	}
	for i := range c.recv.rops {
		n += cap(c.recv.rops[i].got.Spans)
	}
	return n
}

// FirstRing is how many operations a connection always has memory for.
const FirstRing = firstRing

// HeldOverhead is what a held segment is charged besides its data.
const HeldOverhead = heldOverhead

// RingPrices returns what is counted of a ring's operation and of a buffer that is being filled, and what they take.
func RingPrices() (sop, sopTakes, arrives, arriveTakes int) {
	return sopCost, int(reflect.TypeFor[sendOp]().Size()), arrivalCost, int(reflect.TypeFor[arrival]().Size())
}

// Prices returns what is charged of a ring's operation and of a held segment, and what they take at most: with the
// places in queues of 4 and growing slices.
func Prices() (rop, ropTakes, held, heldTakes int) {
	one := int(reflect.TypeFor[span.Span]().Size())
	return ropCost, int(reflect.TypeFor[recvOp]().Size()) + span.Free*one + 2*2*4, heldOverhead,
		2*int(reflect.TypeFor[heldSegment]().Size()) + 2*one + 16
}

// RingMemory is what the rings and spans of a connection's receiving side take, bytes, and its notifications.
func (e *Endpoint) RingMemory(id ConnID) (n int) {
	c := e.conn(id)
	n = len(c.recv.rops)*int(reflect.TypeFor[recvOp]().Size()) +
		cap(c.recv.notes.Items)*int(reflect.TypeFor[Notification]().Size()) +
		4*(cap(c.recv.naks.Items)+cap(c.recv.answering.Items))
	for i := range c.recv.rops {
		n += cap(c.recv.rops[i].got.Spans) * int(reflect.TypeFor[span.Span]().Size())
	}
	return n
}

// SendRing is for how many operations of its owner a connection has memory.
func (e *Endpoint) SendRing(id ConnID) int { return len(e.conn(id).send.ops) }

// MessageMemory is what a connection's sends that wait and buffers that are being filled take, in bytes.
func (e *Endpoint) MessageMemory(id ConnID) int {
	m := e.conn(id).msgs
	return cap(m.out.queue.Items)*int(reflect.TypeFor[sendOp]().Size()) +
		len(m.in.buffers)*int(reflect.TypeFor[arrival]().Size())
}

// DraftMemory is what the drafts of all connections take, and those that are kept for reuse.
func (e *Endpoint) DraftMemory() (used, idle int) {
	takes := func(d *draft) int {
		return int(reflect.TypeFor[draft]().Size()) + 2*8 + cap(d.bytes) + 4*cap(d.stamps) // and a place in a list
	}
	for _, c := range e.conns.byIndex {
		if c.eager != nil {
			for _, d := range c.eager.drafts {
				used += takes(d)
			}
		}
	}
	for _, class := range e.eager.drafts {
		for _, d := range class {
			idle += takes(d)
		}
	}
	return used, idle
}

// MostIdleDrafts is how much is kept at most.
const MostIdleDrafts = mostIdleDrafts

// EagerWords is how many words of a connection wait to be sent, and how many may.
func (e *Endpoint) EagerWords(id ConnID) (n, most int) {
	return e.conn(id).eager.words.Len(), mostWords
}

// SetStamp gives a composed message its latest stamp: so many before the last one that there is.
func (e *Endpoint) SetStamp(id ConnID, name uint64, left uint32) {
	e.conn(id).eager.find(name).stamp = lastStamp - left
}

// Asking is how many entries the list of those that ask for buffers of a queue has.
func (e *Endpoint) Asking(q QueueID) int { return e.queues.byID[q].asking.Len() }

// FreeSpans is how many spans of an operation are not charged.
const FreeSpans = span.Free

// Adverts counts what a connection remembers of its exports.
func (e *Endpoint) Adverts(id ConnID) int { return len(e.conn(id).exports.adverts) }

// SessionInfo is what tests see of a session.
type SessionInfo struct {
	Local, Remote uint32
	Open          bool
	Handshake     bool // something of its handshake is remembered
	Paths         int
}

// SessionList describes every session, those that are being set up too.
func (e *Endpoint) SessionList() (out []SessionInfo) {
	for _, s := range e.sessions.list {
		out = append(out, SessionInfo{s.local, s.remote, s.state == sessionOpen, s.trust.hs != nil,
			bits.OnesCount64(s.paths.txMask)})
	}
	return out
}

// Handshakes counts those that others began and that did not end.
func (e *Endpoint) Handshakes() (n int) {
	for _, s := range e.sessions.list {
		if s.trust.hs != nil && !s.trust.hs.dialer && s.state == sessionHandshake {
			n++
		}
	}
	return n
}

// MaxPending is how many of them there may be.
const MaxPending = maxPending

// SetKeys changes for how long keys are used, those of the open sessions too.
func (e *Endpoint) SetKeys(now mono.Time, l KeyLimits) {
	e.cfg.Keys = l
	e.cfg.setDefaults()
	for _, s := range e.sessions.list {
		if s.trust.sealer != nil {
			s.beginKeys(now)
		}
	}
}

// DialWork is how many wishes and dials were looked at so far.
func (e *Endpoint) DialWork() (wishes, dials uint64) { return e.dials.work.wishes, e.dials.work.dials }

// Pending is how many steps wait to be taken.
func (e *Endpoint) Pending() (n int) {
	for i := range e.shakes.steps {
		n += e.shakes.steps[i].Len()
	}
	return n
}

// Graves is how many keys wait to be erased.
func (e *Endpoint) RetiredKeys() int { return len(e.shakes.retired) }

// MaxTries is how many handshakes a session that asks may have.
const MaxTries = maxTries

// Ended is how many ended connections the sessions remember.
func (e *Endpoint) Ended() (n int) {
	for _, s := range e.sessions.list {
		n += len(s.members.over)
	}
	return n
}

// FillPeers fills the table of peers with ones that have a session.
func (e *Endpoint) FillPeers() {
	e.peers.list, e.peers.byID = nil, map[peerID]*peer{}
	for i := range maxPeers {
		id := NodeID{9, byte(i >> 8), byte(i)}
		e.record(id, 0).session = &session{}
	}
}

// SessionsAlive returns, for each session, a function that tells whether its memory is still in use.
func (e *Endpoint) SessionsAlive() (alive []func() bool) {
	for _, s := range e.sessions.list {
		p := weak.Make(s)
		alive = append(alive, func() bool { return p.Value() != nil })
	}
	return alive
}

// SetLastQueue sets the number of the receive queue that was made last: the next one gets id+1.
func (e *Endpoint) SetLastQueue(id QueueID) { e.queues.lastID = id }

// PassMessages makes a connection be as if n messages more had come and gone, each way, and nobody had had to ask for
// a buffer.
func (e *Endpoint) PassMessages(id ConnID, n uint32) {
	m := e.conn(id).msgs
	m.out.next, m.out.credits = m.out.next+n, m.out.credits+n
	m.in.base, m.in.begun, m.in.limit, m.in.told = m.in.base+n, m.in.begun+n, m.in.limit+n, m.in.told+n
}

// QueueCounts is how many buffers of a shared queue are promised, are being filled and are lent.
func (e *Endpoint) QueueCounts(id QueueID) [3]int {
	q := e.queues.byID[id]
	return [3]int{q.promised, q.filling, q.lent}
}

// Lack puts a connection among those that found no buffer in their shared queue, Short is how many entries that has.
func (e *Endpoint) Lack(id ConnID) {
	c := e.conn(id)
	c.msgs.in.short = true
	c.msgs.in.from.enter(c, &c.msgs.in.from.short)
}

func (e *Endpoint) Short(q QueueID) int { return e.queues.byID[q].short.Len() }

// LookSoon and LookAtUnused have a shared queue looked at for what it can lend.
func (e *Endpoint) LookSoon(q QueueID) { e.checkSoon(0, e.queues.byID[q]) }

func (e *Endpoint) LookAtUnused() { e.checkUnused(0) }
