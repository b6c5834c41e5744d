package peering

import (
	"slices"

	"multiedge/internal/engine/op"
	"multiedge/internal/engine/path"
	"multiedge/internal/frame"
	"multiedge/internal/mono"
	"multiedge/internal/secure"
	"multiedge/internal/wire"
)

// maxPeers bounds the table of nodes heard of. Past it a new one takes the place of one that nobody has to do with.
const maxPeers = 4096

// peer is a node that was heard on at least one link: what Hello and Init said of it (clause 4.1). It says which of our
// links reach which of its links; it is a hint, and only the session's handshake commits to anything.
type peer struct {
	who     op.Peer
	last    uint8 // of the node's shards, as the open session's handshake proved, else as Hello says
	Links   path.Hints
	session *Session
	sealed  bool      // it said that it talks encrypted only
	up      bool      // EvPeerUp was the latest event
	doubt   *Session  // asks whether the peer still has session (clause 10.8)
	doubtAt mono.Time // not before
	Past    Past
}

// peerID names a peer: a shard of a node.
type peerID struct {
	node  op.NodeID
	shard uint8
}

// hear records what a Hello received on local link i from addr says, and returns the peer; nil if the table is full or
// it is ourselves.
func (e *Endpoint) hear(now mono.Time, i int, addr frame.Addr, h *wire.Hello) *peer {
	id := op.NodeID(h.Node)
	if id == e.cfg.Node {
		if !e.isIP(i) {
			e.claimed(now, i, addr, h.Epoch)
		}
		return nil
	}
	name, known := string(h.Name), true
	if e.cfg.Secure != nil {
		var who secure.Peer
		who, known = e.cfg.Secure.Peers.ByNode(id)
		if !known || h.Flags&wire.HelloSecure == 0 {
			if !e.isIP(i) {
				e.hintFor(h)
				e.note(now, i, h)
			}
			return nil // a stranger costs no memory
		}
		name = who.Name
	}
	p := e.record(id, h.Shard)
	if p == nil {
		return nil
	}
	if !p.settled() && !e.isIP(i) { // over IP the handshake proves it
		p.last = h.Last
	}
	e.peers.shards = max(e.peers.shards, int(h.Last)+1)
	p.who.Name, p.sealed = name, h.Flags&wire.HelloSecure != 0
	if e.isIP(i) {
		return p // where it is, the handshake proves (clause 21.4)
	}
	p.Links.Newest[i] = h.Link
	r := path.Remote{Addr: addr, MTU: int(h.MTU), Joins: h.Joins, Slots: int(h.RxSlots), Shuffle: h.Shuffle}
	news, changed := p.Links.Heard.Note(now, i, h.Link), e.cfg.Secure == nil && p.Links.Remote[h.Link] != r
	p.Links.Named |= 1 << h.Link
	p.Links.Remote[h.Link] = r
	if s := p.session; s != nil && s.State == SessionOpen {
		if changed {
			s.refreshPaths(now)
		}
		if news {
			s.Paths.Shown(now, i, h.Link)
		}
	}
	for _, s := range [...]*Session{p.session, p.doubt} {
		if s != nil {
			s.elsewhere(now, i, addr)
		}
	}
	e.answer(now, p)
	return p
}

// record returns what is kept of a node, nil if there is no room for it.
func (e *Endpoint) record(id op.NodeID, shard uint8) *peer {
	if p := e.peers.byID[peerID{id, shard}]; p != nil {
		return p
	}
	if len(e.peers.list) >= maxPeers && !e.evictPeer() {
		return nil
	}
	p := &peer{who: op.Peer{ID: id, Shard: shard}, Links: path.NewHints(e.cfg.HelloTime)}
	p.Links.Endpoints = shardAt(e.endpoints[id], shard)
	if e.cfg.Secure != nil {
		p.Links.Allow = e.cfg.Secure.Peers.Allow(id)
	}
	e.peers.list = append(e.peers.list, p)
	e.peers.byID[peerID{id, shard}] = p
	return p
}

// evictPeer removes a random peer without session.
func (e *Endpoint) evictPeer() bool {
	for range 16 {
		i := e.rng.IntN(len(e.peers.list))
		if p := e.peers.list[i]; p.session == nil && p.doubt == nil {
			delete(e.peers.byID, peerID{p.who.ID, p.who.Shard})
			e.peers.list = slices.Delete(e.peers.list, i, i+1)
			return true
		}
	}
	return false
}

// try returns the address that the k-th Init goes to from local link i: over IP those of the configuration and the one
// that was proved last, on Ethernet the one that was proved last and those that
// were heard there in turn, and between them the one heard last: a forger of links must go on forging to keep it there.
func (e *Endpoint) try(p *peer, now mono.Time, i, k int) (addr frame.Addr, ok bool) {
	if e.isIP(i) {
		return p.Links.Candidate(&e.net.Links[i].Addr, i, k)
	}
	m := p.Links.Heard.On(now, i)
	switch was := p.Links.Proved[i]; {
	case was.Known() && (k%3 == 0 || m == 0):
		return was, true
	case m&(1<<p.Links.Newest[i]) != 0 && k%3 == 1:
		return p.Links.Remote[p.Links.Newest[i]].Addr, true
	}
	number, ok := path.Choose(m, i+k-(k+1)/3)
	return p.Links.Remote[number].Addr, ok
}

// forgetShards has the next dial of a node ask its first shard: started anew, it may have fewer than before, and over
// IP nobody listens at the ports of the others.
func (e *Endpoint) forgetShards(id op.NodeID) {
	for shard := range uint8(wire.MaxShards) {
		if p := e.peers.byID[peerID{id, shard}]; p != nil && !p.settled() {
			p.last = 0
		}
	}
}

// findPeer looks a peer up by name or hexadecimal identity. In plaintext the newest of several nodes of one name wins;
// else the name is the one that was given to the peer's key.
//
// If the node has several shards, findPeer returns the one with our number, or the skip-th after it.
func (e *Endpoint) findPeer(name string, skip int) *peer {
	if e.IsSelf(name) {
		return e.findSelf(skip)
	}
	id, ok := e.findNode(name)
	if !ok {
		return nil
	}
	var one *peer // whom we believe how many there are
	for shard := range uint8(wire.MaxShards) {
		if p := e.peers.byID[peerID{id, shard}]; p != nil && (one == nil || p.settled() && !one.settled()) {
			one = p
		}
	}
	if one == nil {
		if one = e.placed(id, 0); one == nil {
			return nil
		}
	}
	which := uint8((e.cfg.Shard + skip) % int(one.last+1))
	p := e.peers.byID[peerID{id, which}]
	if p == nil {
		if p = e.placed(id, which); p != nil {
			p.last = one.last
		}
	}
	return p
}

// settled reports whether the peer has proved what it says of itself: Hello changes none of it any more.
func (p *peer) settled() bool {
	return p.session != nil && p.session.State == SessionOpen && p.session.Trust.Opener != nil
}

func (e *Endpoint) findNode(name string) (op.NodeID, bool) {
	if e.cfg.Secure != nil {
		who, ok := e.authorisedPeer(name)
		return op.NodeID(who.Key.Node()), ok
	}
	if id, ok := op.ParseNodeID(name); ok {
		return id, true
	}
	for i := len(e.peers.list) - 1; i >= 0; i-- {
		if e.peers.list[i].who.Name == name {
			return e.peers.list[i].who.ID, true
		}
	}
	return op.NodeID{}, false
}

// hello returns the Hello body for local link i.
func (e *Endpoint) hello(i int, flags uint8) wire.Hello {
	l := &e.net.Links[i]
	if e.cfg.Secure != nil {
		flags |= wire.HelloSecure
	}
	return wire.Hello{
		Node: e.cfg.Node, Epoch: e.cfg.Epoch, Flags: flags, Link: uint8(i), RxSlots: uint16(min(l.RxSlots, 65535)),
		MTU: uint32(l.MTU), Joins: l.Super > 0,
		Shard: uint8(e.cfg.Shard), Last: uint8(e.cfg.Shards - 1), Shuffle: l.Shuffle, Name: e.nameOn(i),
	}
}

// sendHello says Hello to one shard of whoever listens at dst (clause 1.7).
func (e *Endpoint) sendHello(i int, dst frame.Addr, flags, shard uint8) {
	h := e.hello(i, flags)
	e.queueSetup(Setup{Link: i, Dst: dst, Kind: wire.TypeHello, Sess: uint32(shard), Body: h.AppendTo(nil)})
}

// maxOutbox bounds set-up frames that wait; more are dropped, as the network might.
const maxOutbox = 256

func (e *Endpoint) queueSetup(f Setup) {
	if len(e.Outbox) < maxOutbox {
		e.Outbox = append(e.Outbox, f)
	}
}

// OnHello handles clause 4.1.
func (e *Endpoint) OnHello(now mono.Time, i int, src frame.Addr, body []byte) {
	var h wire.Hello
	if e.isIP(i) || h.Decode(body) != nil {
		e.count.Reject.RejectedMalformed++
		return
	}
	if e.hear(now, i, src, &h) != nil && h.Flags&wire.HelloAnswer != 0 {
		e.sendHello(i, src, 0, h.Shard)
	}
}
