package engine

// Sizes are the lengths of an endpoint's tables, for tests that look for growth.
type Sizes struct {
	Conns, Free, Dials, Sessions, Numbers, ByRemote, SendQueue, OpAcks, Records, Live, Outbox int
}

// TableSizes counts what the endpoint holds.
func (e *Endpoint) TableSizes() Sizes {
	z := Sizes{
		Conns: len(e.conns), Free: len(e.freeConn), Dials: len(e.dials), Sessions: len(e.sessions), Numbers: len(e.byNumber),
		Records: len(e.recs.pool), Outbox: len(e.outbox),
	}
	for _, c := range e.conns[1:] {
		if c.state != connFree {
			z.Live++
		}
	}
	for _, s := range e.sessions {
		z.ByRemote += len(s.byRemote)
		z.SendQueue += s.sendq.len()
		z.OpAcks += s.opacks.len()
	}
	return z
}

// HeldMemory is what segments behind fences cost now, over all sessions.
func (e *Endpoint) HeldMemory() (n int) {
	for _, s := range e.sessions {
		n += s.heldMem
	}
	return n
}

// Adverts counts what a connection remembers of its exports.
func (e *Endpoint) Adverts(id ConnID) int { return len(e.conn(id).adverts) }
