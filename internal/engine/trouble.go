package engine

import (
	"time"

	"multiedge/internal/mono"
	"multiedge/internal/wire"
)

// Why a node is not reached, for people. Hello proves nothing (clause 4.1), so what it says here is a hint: nothing is
// decided by it. One entry is kept of each peer and of each authorised name; strangers cost no memory.

// Trouble is why there is no session with a node that ought to have one.
type Trouble uint8

const (
	NoTrouble          Trouble = iota
	TroublePlaintext           // it talks plaintext only, and we encrypted
	TroubleSealed              // it talks encrypted only, and we plaintext
	TroubleOtherKey            // a node of that name says Hello, with another key than the one authorised here
	TroubleWrongKey            // who answers in its place proved another key
	TroubleUnwelcome           // it proved who it is, and does not authorise our key
	TroubleRefused             // it proved who it is, and refused the session for another reason
	TroubleNoAnswer            // it is heard, but does not answer requests for a session
	TroubleNoHandshake         // it answers, but the handshake does not come to an end
)

// NameTrouble is what was heard of a node that calls itself by an authorised name, and is not the one authorised.
type NameTrouble struct {
	Name    string
	Trouble Trouble
	Node    NodeID // who says so
	Link    int    // where it was heard
	Ago     time.Duration
}

// heardWrong is the latest such Hello.
type heardWrong struct {
	trouble Trouble
	node    NodeID
	link    int
	at      mono.Time
}

// maxWrong bounds the names that are remembered: a forger of Hellos can name every authorised peer.
const maxWrong = 64

// note remembers the trouble of an authorised name; of others it remembers nothing.
func (e *Endpoint) note(now mono.Time, i int, h *wire.Hello) {
	peers := e.cfg.Secure.Peers
	who, ok := peers.ByNode(NodeID(h.Node)) // a peer that talks plaintext only may call itself as it likes
	if !ok {
		if who, ok = peers.ByName(string(h.Name)); !ok {
			return
		}
	}
	w := heardWrong{trouble: TroubleOtherKey, node: NodeID(h.Node), link: i, at: now}
	if h.Flags&wire.HelloSecure == 0 {
		w.trouble = TroublePlaintext
	}
	if e.hellos.wrong == nil {
		e.hellos.wrong = map[string]heardWrong{}
	}
	if _, there := e.hellos.wrong[who.Name]; there || len(e.hellos.wrong) < maxWrong {
		e.hellos.wrong[who.Name] = w
	}
}

// wrongNames lists what note remembers.
func (e *Endpoint) wrongNames(now mono.Time) (list []NameTrouble) {
	for name, w := range e.hellos.wrong {
		list = append(list, NameTrouble{Name: name, Trouble: w.trouble, Node: w.node, Link: w.link, Ago: now.Sub(w.at)})
	}
	return list
}

// past is what is remembered of a peer over its sessions.
type past struct {
	trouble   Trouble // the latest, since a session was open
	troubleAt mono.Time
	opens     [flapOpens]mono.Time // when the latest sessions opened, a ring
	sessions  uint64               // opened so far
	epoch     uint64               // of the latest session
	before    uint64               // the latest epoch that was another
	returns   uint64               // times an epoch came back after another: two daemons have one key
	received  uint64               // bytes of its frames with data that were authentic, or intact in plaintext
}

// flapOpens sessions that opened within flapTime are too many: something ends each.
const (
	flapOpens = 4
	flapTime  = time.Minute
)

// troubled remembers why there is no session.
func (p *past) troubled(now mono.Time, t Trouble) { p.trouble, p.troubleAt = t, now }

// opened counts a session. A daemon draws its epoch when it starts, so one that comes back is of a daemon that never
// stopped.
func (p *past) opened(now mono.Time, epoch uint64) {
	p.trouble = NoTrouble
	p.opens[p.sessions%flapOpens] = now
	p.sessions++
	if epoch == p.epoch {
		return
	}
	if epoch == p.before {
		p.returns++
	}
	p.before, p.epoch = p.epoch, epoch
}

// flaps reports whether sessions with the peer keep ending.
func (p *past) flaps(now mono.Time) bool {
	return p.sessions >= flapOpens && now.Sub(p.opens[p.sessions%flapOpens]) < flapTime
}
