package engine

// Holding counts what an endpoint keeps for its peers at one moment: after the last connection is closed and answered,
// only sessions are left.
type Holding struct {
	Conns, Dials         int // connections, those whose end the peer has not confirmed included
	Sessions, Handshakes int
	Numbers, ByRemote    int // entries of tables by number
	Queued               int // connections that wait to send or to acknowledge
	Records              int // of what frames in flight carry
	InFlight, Held       int // the largest of any session: eliciting frames; bytes behind fences
	Staged               int // the largest of any session: bytes of copies of writes with LocalDone
	Least                int // the smallest of those counts, never negative
	Outbox               int
	Parked               int // parts of operations that wait for memory
	Queues               int // shared receive queues
}

// Holding takes time proportional to the tables; it is for tests and the simulator.
func (e *Endpoint) Holding() Holding {
	h := Holding{Dials: len(e.dials.byDeadline), Sessions: len(e.sessions.list), Numbers: len(e.sessions.byNumber),
		Outbox:  len(e.outbox),
		Records: len(e.recs.pool) - 1, Parked: len(e.misses.parked), Queues: len(e.queues.byID)}
	for _, c := range e.conns.byIndex[1:] {
		if c.state != connFree {
			h.Conns++
		}
	}
	for i := e.recs.free; i != 0; i = e.recs.pool[i].next {
		h.Records--
	}
	for _, s := range e.sessions.list {
		if s.trust.hs != nil {
			h.Handshakes++
		}
		h.ByRemote += len(s.members.byRemote)
		h.Queued += s.members.fair.Waiting + s.acks.opacks.Len()
		h.InFlight, h.Held = max(h.InFlight, s.paths.inFlight), max(h.Held, s.members.heldMem)
		h.Staged = max(h.Staged, s.members.staged)
		h.Least = min(h.Least, s.paths.inFlight, s.members.heldMem, s.members.staged, s.members.conns,
			s.members.unconfirmed, s.members.conns-s.members.unconfirmed)
	}
	return h
}

// Load is the part of Holding that can be had after every event.
func (e *Endpoint) Load() (h Holding) {
	for _, s := range e.sessions.list {
		h.InFlight, h.Held = max(h.InFlight, s.paths.inFlight), max(h.Held, s.members.heldMem)
		h.Staged = max(h.Staged, s.members.staged)
		h.Least = min(h.Least, s.paths.inFlight, s.members.heldMem, s.members.staged, s.members.conns,
			s.members.unconfirmed, s.members.conns-s.members.unconfirmed)
	}
	return h
}

// QueueLoad returns how many buffers of a shared receive queue no message has begun to fill, how many of them count as
// promised, and how many of those are lent. It is for the simulator, as Holding.
func (e *Endpoint) QueueLoad(id QueueID) (posted, promised, lent int) {
	q := e.queues.byID[id]
	return q.posted.Len(), q.promised, q.lent
}

// TakerLoad returns how many buffers a connection is promised that no message has begun to fill, and how many its
// messages have.
func (e *Endpoint) TakerLoad(id ConnID) (promised, filling int) {
	m := e.conn(id).msgs
	return int(int32(m.in.limit - m.in.begun)), int(m.in.begun - m.in.base)
}
