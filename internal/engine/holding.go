package engine

import (
	"multiedge/internal/engine/op"
	"multiedge/internal/engine/peering"
)

// Holding counts what an endpoint keeps for its peers at one moment: after the last connection is closed and answered,
// only sessions are left.
type Holding struct {
	Conns, Dials         int // connections, those whose end the peer has not confirmed included
	Sessions, Handshakes int
	Numbers, ByRemote    int // entries of tables by number
	Queued               int // connections that wait to send or to acknowledge
	Records              int // of what frames in flight carry
	InFlight, Held       int // the largest of any session: eliciting frames; bytes behind fences
	Copied               int // the largest of any session: bytes of copies of writes with LocalDone
	Least                int // the smallest of those counts, never negative
	Outbox               int
	Parked               int // parts of operations that wait for memory
	Queues               int // shared receive queues
}

// Holding takes time proportional to the tables; it is for tests and the simulator.
func (e *Endpoint) Holding() Holding {
	k, n := op.ProbeOf(&e.ops).Kept(), peering.ProbeOf(&e.nodes).Kept()
	h := Holding{Conns: k.Live, Dials: k.Dials, Sessions: n.Sessions, Numbers: n.Numbers,
		Outbox: n.Outbox, Records: e.recs.Used(), Parked: k.Parked, Queues: k.Queues}
	for _, s := range e.nodes.Sessions.List {
		if s.HasHandshake() {
			h.Handshakes++
		}
		c := s.Ops.Charged()
		h.ByRemote += c.ByRemote
		h.Queued += c.Sending + c.OpAcks
		h.add(s)
	}
	return h
}

// Overslept reports whether NextTimeout is later than the deadline of a session that is being set up.
func (e *Endpoint) Overslept() bool { return peering.ProbeOf(&e.nodes).Overslept() }

// Load is the part of Holding that can be had after every event.
func (e *Endpoint) Load() (h Holding) {
	for _, s := range e.nodes.Sessions.List {
		h.add(s)
	}
	return h
}

// add counts what is kept in a session.
func (h *Holding) add(s *peering.Session) {
	c := s.Ops.Charged()
	h.InFlight, h.Held, h.Copied = max(h.InFlight, s.Paths.InFlight), max(h.Held, c.Held), max(h.Copied, c.Copied)
	h.Least = min(h.Least, s.Paths.InFlight, c.Held, c.Copied, c.Conns, c.Unconfirmed, c.Conns-c.Unconfirmed)
}

// QueueLoad returns how many buffers of a shared receive queue no message has begun to fill, how many of them count as
// promised, and how many of those are lent. It is for the simulator, as Holding.
func (e *Endpoint) QueueLoad(id QueueID) (posted, promised, lent int) {
	return op.ProbeOf(&e.ops).QueueLoad(id)
}

// TakerLoad returns how many buffers a connection is promised that no message has begun to fill, and how many its
// messages have.
func (e *Endpoint) TakerLoad(id ConnID) (promised, filling int) {
	return op.ProbeOf(&e.ops).TakerLoad(id)
}
