package peering

import (
	"multiedge/internal/engine/op"
	"multiedge/internal/engine/path"
	"multiedge/internal/frame"
	"multiedge/internal/mono"
	"multiedge/internal/wire"
)

// Connections of a node with itself (clause 19). Each shard has, towards each shard of its own node and itself, a
// session that carries the connections it asks for, and one for those that it is asked for: two ends of one session may
// thus be in one endpoint. Their only link leads to the shards of the node and to nobody else, so there is no
// handshake: who makes the sessions tells each end the other's number. From there on they are sessions as any other.

// selves are the ways to the shards of the own node.
type selves struct {
	inside uint64                // links that lead nowhere else: LinkConfig.Inside
	to     [wire.MaxShards]*peer // with the sessions of our requests; in no other table
}

// IsSelf reports whether a peer that is dialled by that name is this node. An authorised peer of the same name is
// not.
func (e *Endpoint) IsSelf(name string) bool {
	if id, ok := op.ParseNodeID(name); name != e.cfg.Name && (!ok || id != e.cfg.Node) {
		return false
	}
	if e.cfg.Secure == nil {
		return true
	}
	_, other := e.authorisedPeer(name)
	return !other
}

// HasSelf reports whether there is a session for requests to a shard of the node.
func (e *Endpoint) HasSelf(shard int) bool {
	p := e.self.to[shard]
	return p != nil && p.session != nil && p.session.State == SessionOpen
}

// SelfSession makes one end of a session with a shard of the node, whose link inside the node has that address, and
// returns its number; asks says that it is the end whose requests it carries.
func (e *Endpoint) SelfSession(now mono.Time, shard int, addr frame.Addr, asks bool) uint32 {
	i := uint8(0)
	for e.self.inside&(1<<i) == 0 {
		i++
	}
	p := &peer{who: op.Peer{ID: e.cfg.Node, Name: e.cfg.Name, Shard: uint8(shard)}, last: uint8(e.cfg.Shards - 1),
		Links: path.NewHints(e.cfg.HelloTime), up: true}
	p.Links.Named = 1 << i
	l := &e.net.Links[i]
	p.Links.Remote[i] = path.Remote{Addr: addr, MTU: l.MTU, Slots: l.RxSlots}
	s := e.newSession(now, p, e.cfg.Scheduler)
	s.Inside, s.Ops.Inside, s.epoch, p.session = true, true, e.cfg.Epoch, s
	if asks {
		e.self.to[shard] = p
	}
	return s.local
}

// OpenSelf opens one, now that the other end's number is known.
func (e *Endpoint) OpenSelf(now mono.Time, number, remote uint32) {
	s := e.Sessions.ByNumber[number]
	s.Remote = remote
	for i := range e.net.Links {
		if e.self.inside&(1<<i) != 0 {
			s.Paths.Seen[i] |= s.Peer.Links.Named
		}
	}
	s.open(now)
}

// ComesBy reports whether frames of the session may arrive on link i: those of sessions with the own node come from
// inside it and no others do.
func (s *Session) ComesBy(i int) bool { return s.Inside == (s.e.self.inside&(1<<i) != 0) }

// findSelf returns the shard of the own node with our number, or the skip-th after it.
func (e *Endpoint) findSelf(skip int) *peer {
	if p := e.self.to[(e.cfg.Shard+skip)%e.cfg.Shards]; p != nil && p.session != nil {
		return p
	}
	return nil
}
