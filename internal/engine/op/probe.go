package op

import (
	"reflect"

	"multiedge/internal/engine/op/eager"
	"multiedge/internal/engine/op/message"
	"multiedge/internal/engine/op/span"
)

// Probe shows tests and the simulator what an Endpoint keeps.
type Probe struct{ e *Endpoint }

// ProbeOf returns the Probe of e.
func ProbeOf(e *Endpoint) Probe { return Probe{e} }

// Kept is what tables hold: live connections, records of connections, free indices, dials, parked parts, shared queues.
type Kept struct{ Conns, Live, Records, Free, Dials, Parked, Queues int }

// Kept counts what the tables hold.
func (p Probe) Kept() Kept {
	e := p.e
	k := Kept{Conns: len(e.Conns.byIndex), Free: len(e.Conns.free), Dials: len(e.dials.byDeadline),
		Parked: e.misses.parked.Len(), Queues: e.queues.Len()}
	for _, c := range e.Conns.byIndex[1:] {
		if c.state != connFree {
			k.Live++
		}
		if c != e.Conns.byIndex[0] {
			k.Records++
		}
	}
	return k
}

// Charged is what a session's connections make this node keep, and how many wait.
type Charged struct {
	Conns, Unconfirmed, ByRemote, Ended int
	Sending, OpAcks                     int // connections that wait to send, and to acknowledge
	Held, Copied                        int // bytes: behind fences and in holes; of copies
}

// Charged counts it.
func (s *Session) Charged() Charged {
	return Charged{Conns: s.Conns, Unconfirmed: s.Unconfirmed, ByRemote: len(s.byRemote), Ended: len(s.over),
		Sending: s.Fair.Waiting, OpAcks: s.OpAcks.Len(), Held: s.heldMem, Copied: s.copied}
}

// Prices and bounds that tests compare with what things take.
const (
	FirstRing      = firstRing
	HeldOverhead   = heldOverhead
	MostIdleDrafts = eager.MostIdleDrafts
)

// Spans is for how many spans a connection has memory.
func (p Probe) Spans(id ConnID) (n int) {
	c := p.e.conn(id)
	n = cap(c.exports.told.Spans) + cap(c.exports.taken.Spans)
	for i := range c.send.ops {
		n += cap(c.send.ops[i].got.Spans)
	}
	for i := range c.recv.rops {
		n += cap(c.recv.rops[i].got.Spans)
	}
	return n
}

// RingPrices returns what is counted of a ring's operation and of a buffer that is being filled, and what they take.
func (Probe) RingPrices() (sop, sopTakes, arrives, arriveTakes int) {
	return sopCost, int(reflect.TypeFor[sendOp]().Size()), message.ArrivalCost,
		int(reflect.TypeFor[message.Arrival]().Size())
}

// Prices returns what is charged of a ring's operation and of a held segment, and what they take at most: with the
// places in queues of 4 and growing slices.
func (Probe) Prices() (rop, ropTakes, held, heldTakes int) {
	one := int(reflect.TypeFor[span.Span]().Size())
	return ropCost, int(reflect.TypeFor[recvOp]().Size()) + span.Free*one + 2*2*4, heldOverhead,
		2*int(reflect.TypeFor[heldSegment]().Size()) + 2*one + 16
}

// RingMemory is what the rings and spans of a connection's receiving side take, bytes, and its notifications.
func (p Probe) RingMemory(id ConnID) (n int) {
	c := p.e.conn(id)
	n = len(c.recv.rops)*int(reflect.TypeFor[recvOp]().Size()) +
		cap(c.recv.notes.Items)*int(reflect.TypeFor[Notification]().Size()) +
		4*(cap(c.recv.naks.Items)+cap(c.recv.answering.Items))
	for i := range c.recv.rops {
		n += cap(c.recv.rops[i].got.Spans) * int(reflect.TypeFor[span.Span]().Size())
	}
	return n
}

// SendRing is for how many operations of its owner a connection has memory.
func (p Probe) SendRing(id ConnID) int { return len(p.e.conn(id).send.ops) }

// MessageMemory is what a connection's sends that wait and buffers that are being filled take, in bytes.
func (p Probe) MessageMemory(id ConnID) int {
	m := p.e.conn(id).msgs
	return cap(m.waiting.queue.Items)*int(reflect.TypeFor[sendOp]().Size()) +
		m.in.Ring()*int(reflect.TypeFor[message.Arrival]().Size())
}

// DraftMemory is what the drafts of all connections take, and those that are kept for reuse.
func (p Probe) DraftMemory() (used, idle int) {
	for _, c := range p.e.Conns.byIndex {
		if c.eager != nil {
			used += c.eager.Theirs.Memory()
		}
	}
	return used, p.e.eager.Memory()
}

// EagerWords is how many words of a connection wait to be sent, and how many may.
func (p Probe) EagerWords(id ConnID) (n, most int) {
	return p.e.conn(id).eager.Words.Len(), eager.MostWords
}

// Asking is how many entries the list of those that ask for buffers of a queue has.
func (p Probe) Asking(q QueueID) int { return p.e.queues.Find(q).Asking() }

// Adverts counts what a connection remembers of its exports.
func (p Probe) Adverts(id ConnID) int { return len(p.e.conn(id).exports.adverts) }

// DialWork is how many wishes and dials were looked at so far.
func (p Probe) DialWork() (wishes, dials uint64) { return p.e.dials.work.wishes, p.e.dials.work.dials }

// QueueCounts is how many buffers of a shared queue are promised, are being filled and are lent.
func (p Probe) QueueCounts(id QueueID) [3]int {
	promised, filling, lent := p.e.queues.Find(id).Counts()
	return [3]int{promised, filling, lent}
}

// QueueLoad returns how many buffers of a shared receive queue no message has begun to fill, how many of them count as
// promised, and how many of those are lent. It is for the simulator, as Holding.
func (p Probe) QueueLoad(id QueueID) (posted, promised, lent int) {
	q := p.e.queues.Find(id)
	promised, _, lent = q.Counts()
	return q.Posted(), promised, lent
}

// TakerLoad returns how many buffers a connection is promised that no message has begun to fill, and how many its
// messages have.
func (p Probe) TakerLoad(id ConnID) (promised, filling int) {
	m := p.e.conn(id).msgs
	return m.in.Promised(), m.in.Filling()
}
