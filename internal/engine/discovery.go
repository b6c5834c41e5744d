package engine

import (
	"math/bits"

	"multiedge/internal/mono"
	"multiedge/internal/wire"
)

var broadcast = [6]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}

// maxPeers bounds the table of nodes heard of. Past it a new one takes the place of one that nobody has to do with.
const maxPeers = 4096

// peer is a node that was heard on at least one link: what Hello and Init said of it (clause 4.1). It says which of our links reach which
// of its links; it is a hint, and only the session's handshake commits to anything.
type peer struct {
	id      NodeID
	name    string
	heard   [MaxLinks]uint64     // per local link: the peer's links heard there
	remote  map[uint8]remoteLink // the peer's links by their number
	session *session
}

// remoteLink is one link of a peer as it announced it.
type remoteLink struct {
	mac     [6]byte
	mtu     int
	slots   int
	shuffle uint16
}

// hear records what a Hello received on local link i from mac says, and returns the peer; nil if the table is full or it is ourselves.
func (e *Endpoint) hear(now mono.Time, i int, mac [6]byte, h *wire.Hello) *peer {
	id := NodeID(h.Node)
	if id == e.cfg.Node {
		return nil
	}
	p := e.peerByID[id]
	if p == nil {
		if len(e.peers) >= maxPeers && !e.evictPeer() {
			return nil
		}
		p = &peer{id: id, remote: map[uint8]remoteLink{}}
		e.peers = append(e.peers, p)
		e.peerByID[id] = p
	}
	if p.name != string(h.Name) {
		p.name = string(h.Name)
	}
	r := remoteLink{mac: mac, mtu: int(h.MTU), slots: int(h.RxSlots), shuffle: h.Shuffle}
	known := p.heard[i]&(1<<h.Link) != 0 && p.remote[h.Link] == r
	if !known {
		p.heard[i] |= 1 << h.Link
		p.remote[h.Link] = r
		if p.session != nil {
			p.session.refreshPaths(now)
		}
	}
	for _, c := range e.dials {
		if c.s == nil {
			e.tryDial(now, c)
		}
	}
	return p
}

// evictPeer removes a random peer without session.
func (e *Endpoint) evictPeer() bool {
	for range 16 {
		i := e.rng.IntN(len(e.peers))
		if p := e.peers[i]; p.session == nil {
			delete(e.peerByID, p.id)
			e.peers = append(e.peers[:i], e.peers[i+1:]...)
			return true
		}
	}
	return false
}

func (p *peer) forgetLink(i int) { p.heard[i] = 0 }

// reach returns the peer's link that local link i uses (clause 4.2).
func (p *peer) reach(i int) (number uint8, r remoteLink, ok bool) {
	m := p.heard[i]
	if m == 0 {
		return 0, r, false
	}
	for range i % bits.OnesCount64(m) {
		m &= m - 1
	}
	number = uint8(bits.TrailingZeros64(m))
	return number, p.remote[number], true
}

// findPeer looks a peer up by name or hexadecimal identity. The newest of several nodes of one name wins.
func (e *Endpoint) findPeer(name string) *peer {
	if id, ok := parseNodeID(name); ok {
		return e.peerByID[id]
	}
	for i := len(e.peers) - 1; i >= 0; i-- {
		if e.peers[i].name == name {
			return e.peers[i]
		}
	}
	return nil
}

// hello returns the Hello body for local link i.
func (e *Endpoint) hello(i int, flags uint8) wire.Hello {
	l := &e.links[i]
	return wire.Hello{
		Node: e.cfg.Node, Epoch: e.cfg.Epoch, Flags: flags, Link: uint8(i), RxSlots: uint16(min(l.RxSlots, 65535)), MTU: uint32(l.MTU),
		Shuffle: l.Shuffle, Name: []byte(e.cfg.Name),
	}
}

func (e *Endpoint) sendHello(i int, dst [6]byte, flags uint8) {
	h := e.hello(i, flags)
	e.queueSetup(outFrame{link: i, dst: dst, kind: wire.TypeHello, body: h.AppendTo(nil)})
}

// maxOutbox bounds set-up frames that wait; more are dropped, as the network might.
const maxOutbox = 256

func (e *Endpoint) queueSetup(f outFrame) {
	if len(e.outbox) < maxOutbox {
		e.outbox = append(e.outbox, f)
	}
}

// onHello handles clause 4.1.
func (e *Endpoint) onHello(now mono.Time, i int, src [6]byte, body []byte) {
	var h wire.Hello
	if h.Decode(body) != nil {
		e.Count.RejectedMalformed++
		return
	}
	if e.hear(now, i, src, &h) != nil && h.Flags&wire.HelloAnswer != 0 {
		e.sendHello(i, src, 0)
	}
}
