package peering

import (
	"time"

	"multiedge/internal/engine/op"
	"multiedge/internal/mono"
	"multiedge/internal/wire"
)

// Why a node is not reached, for people. Hello proves nothing (clause 4.1), so what it says here is a hint: nothing is
// decided by it. One entry is kept of each peer and of each authorised name; strangers cost no memory.

// NameTrouble is what was heard of a node that calls itself by an authorised name, and is not the one authorised.
type NameTrouble struct {
	Name    string
	Trouble Trouble
	Node    op.NodeID // who says so
	Link    int       // where it was heard
	Ago     time.Duration
}

// heardWrong is the latest such Hello.
type heardWrong struct {
	trouble Trouble
	node    op.NodeID
	link    int
	at      mono.Time
}

// maxWrong bounds the names that are remembered: a forger of Hellos can name every authorised peer.
const maxWrong = 64

// note remembers the trouble of an authorised name; of others it remembers nothing.
func (e *Endpoint) note(now mono.Time, i int, h *wire.Hello) {
	peers := e.cfg.Secure.Peers
	who, ok := peers.ByNode(op.NodeID(h.Node)) // a peer that talks plaintext only may call itself as it likes
	if !ok {
		if who, ok = peers.ByName(string(h.Name)); !ok {
			return
		}
	}
	w := heardWrong{trouble: TroubleOtherKey, node: op.NodeID(h.Node), link: i, at: now}
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

// WrongNames lists what note remembers.
func (e *Endpoint) WrongNames(now mono.Time) (list []NameTrouble) {
	for name, w := range e.hellos.wrong {
		list = append(list, NameTrouble{Name: name, Trouble: w.trouble, Node: w.node, Link: w.link, Ago: now.Sub(w.at)})
	}
	return list
}
