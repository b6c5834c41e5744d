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
	h := Holding{Dials: len(e.dials), Sessions: len(e.sessions), Numbers: len(e.byNumber), Outbox: len(e.outbox),
		Records: len(e.recs.pool) - 1, Parked: len(e.parked), Queues: len(e.queues)}
	for _, c := range e.conns[1:] {
		if c.state != connFree {
			h.Conns++
		}
	}
	for i := e.recs.free; i != 0; i = e.recs.pool[i].next {
		h.Records--
	}
	for _, s := range e.sessions {
		if s.hs != nil {
			h.Handshakes++
		}
		h.ByRemote += len(s.byRemote)
		h.Queued += s.fair.waiting + s.acks.opacks.len()
		h.InFlight, h.Held = max(h.InFlight, s.inFlight), max(h.Held, s.heldMem)
		h.Staged = max(h.Staged, s.staged)
		h.Least = min(h.Least, s.inFlight, s.heldMem, s.staged, s.conns, s.limbo, s.conns-s.limbo)
	}
	return h
}

// Load is the part of Holding that can be had after every event.
func (e *Endpoint) Load() (h Holding) {
	for _, s := range e.sessions {
		h.InFlight, h.Held = max(h.InFlight, s.inFlight), max(h.Held, s.heldMem)
		h.Staged = max(h.Staged, s.staged)
		h.Least = min(h.Least, s.inFlight, s.heldMem, s.staged, s.conns, s.limbo, s.conns-s.limbo)
	}
	return h
}

// QueueLoad returns how many buffers of a shared receive queue no message has begun to fill, how many of them count as
// promised, and how many of those are lent. It is for the simulator, as Holding.
func (e *Endpoint) QueueLoad(id QueueID) (posted, promised, lent int) {
	q := e.queues[id]
	return q.posted.len(), q.promised, q.lent
}

// TakerLoad returns how many buffers a connection is promised that no message has begun to fill, and how many its
// messages have.
func (e *Endpoint) TakerLoad(id ConnID) (promised, filling int) {
	m := e.conn(id).msgs
	return int(int32(m.limit - m.begun)), int(m.begun - m.base)
}
