package engine

import (
	"multiedge/internal/engine/peering"
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
	if id, ok := parseNodeID(name); name != e.cfg.Name && (!ok || id != e.cfg.Node) {
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
	return p != nil && p.session != nil && p.session.state == sessionOpen
}

// SelfSession makes one end of a session with a shard of the node, whose link inside the node has that address, and
// returns its number; asks says that it is the end whose requests it carries.
func (e *Endpoint) SelfSession(now mono.Time, shard int, addr frame.Addr, asks bool) uint32 {
	i := uint8(0)
	for e.self.inside&(1<<i) == 0 {
		i++
	}
	p := &peer{id: e.cfg.Node, shard: uint8(shard), last: uint8(e.cfg.Shards - 1), name: e.cfg.Name,
		remote: map[uint8]remoteLink{}, named: 1 << i, up: true, heard: peering.NewHeard(e.cfg.HelloTime)}
	l := &e.links[i]
	p.remote[i] = remoteLink{addr: addr, mtu: l.MTU, slots: l.RxSlots}
	s := e.newSession(now, p, e.cfg.Scheduler)
	s.inside, s.epoch, p.session = true, e.cfg.Epoch, s
	if asks {
		e.self.to[shard] = p
	}
	return s.local
}

// OpenSelf opens one, now that the other end's number is known.
func (e *Endpoint) OpenSelf(now mono.Time, number, remote uint32) {
	s := e.sessions.byNumber[number]
	s.remote = remote
	for i := range e.links {
		if e.self.inside&(1<<i) != 0 {
			s.peerLinks.seen[i] |= s.peer.named
		}
	}
	s.open(now)
}

// comesBy reports whether frames of the session may arrive on link i: those of sessions with the own node come from
// inside it and no others do.
func (s *session) comesBy(i int) bool { return s.inside == (s.e.self.inside&(1<<i) != 0) }

// findSelf returns the shard of the own node with our number, or the skip-th after it.
func (e *Endpoint) findSelf(skip int) *peer {
	if p := e.self.to[(e.cfg.Shard+skip)%e.cfg.Shards]; p != nil && p.session != nil {
		return p
	}
	return nil
}

// InsideToken is the Token of EvIncoming where a shard of this node asks, whose connection has that number there. It is
// not zero.
func InsideToken(shard int, id ConnID) uint64 { return uint64(shard+1)<<32 | uint64(id) }
