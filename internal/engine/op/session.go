package op

import (
	"multiedge/internal/abi"
	"multiedge/internal/engine/op/fair"
	"multiedge/internal/engine/queue"
	"multiedge/internal/mono"
)

// Session is what the connections of one session have in common: turns, what this node keeps for all of them together,
// and what they owe the peer.
type Session struct {
	Number uint32 // by which the owner finds the session
	Peer   *Peer  // who it is with
	Open   bool
	Inside bool // with a shard of this node

	Fair        fair.Tree[*Conn] // connections with something to send
	Conns       int              // how many there are
	dials       dialList         // those of our requests that wait for the session or an answer
	Unconfirmed int              // those of conns that are in connIncoming or connLast
	byRemote    map[uint32]*Conn
	over        []uint32 // the peer's numbers of connections that ended lately, a ring of overMost
	overNext    int

	OpAcks queue.Queue[*Conn] // connections that owe an OpAck
	// an explicit acknowledgement is due then, whatever the paths' policies say; Never: none is
	AckAt mono.Time

	copied    int // bytes of copies of writes with LocalDone, at most copiesRoom; see local.go
	heldMem   int // bytes that are kept for the peer, at most Config.HeldBytes; see held.go
	guesses   int // operations with wrong keys since guessedAt
	guessedAt mono.Time
}

// Peer is the node at the other end of a session, as its owner knows it.
type Peer struct {
	ID    NodeID
	Name  string
	Shard uint8
}

// NewSession returns that of a session with a peer.
func NewSession(p *Peer) Session {
	return Session{Peer: p, AckAt: mono.Never, byRemote: map[uint32]*Conn{}}
}

// Ending has nothing of the session sent any more.
func (s *Session) Ending() {
	s.Open = false
	s.OpAcks = queue.Queue[*Conn]{} // or each of very many connections would look for itself there
}

// FinishAll ends the connections of a session without a word to the peer.
func (e *Endpoint) FinishAll(now mono.Time, s *Session, st abi.Status) {
	for k := 0; s.Conns > 0 && k < len(e.Conns.byIndex); k++ {
		if c := e.Conns.byIndex[k]; c.S == s && c.state != connFree {
			c.Finish(now, st, "")
		}
	}
}

// overMost is how many ended connections a session remembers: a late copy of their Open must not begin them anew
// (clause 5.1).
const overMost = 1024

// ended notes the peer's number of a connection that is over.
func (s *Session) ended(number uint32) {
	if len(s.over) < overMost {
		s.over = append(s.over, number)
		return
	}
	s.over[s.overNext] = number
	s.overNext = (s.overNext + 1) % overMost
}
