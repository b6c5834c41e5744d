package peering

import (
	"crypto/hmac"
	"crypto/sha256"
	"math"
	"math/bits"
	"net/netip"
	"slices"
	"strings"

	"multiedge/internal/engine/op"
	"multiedge/internal/frame"
	"multiedge/internal/mono"
	"multiedge/internal/secure"
	"multiedge/internal/wire"
)

// Peers over IP (clause 21): where they are by configuration, and what a node says to those who do not know it, which
// is nothing.

// isIP reports whether local link i is an IP link.
func (e *Endpoint) isIP(i int) bool { return e.net.Links[i].Addr.IsIP() }

// nameOn is what Hello and Init say of our name on link i: over IP nothing, since whoever is on the way would read it.
func (e *Endpoint) nameOn(i int) []byte {
	if e.isIP(i) {
		return nil
	}
	return []byte(e.cfg.Name)
}

// SetEndpoints replaces the addresses of a peer's IP links by configuration. The endpoint keeps at, which must not be
// changed any more.
func (e *Endpoint) SetEndpoints(now mono.Time, id op.NodeID, at []frame.Addr) {
	if e.endpoints == nil {
		e.endpoints = map[op.NodeID][]frame.Addr{}
	}
	if e.endpoints[id] = at; len(at) == 0 {
		delete(e.endpoints, id)
	}
	for shard := range uint8(wire.MaxShards) {
		p := e.peers.byID[peerID{id, shard}]
		if p == nil {
			continue
		}
		p.Links.Endpoints = shardAt(at, shard)
		if s := p.session; s != nil {
			s.refreshPaths(now)
		}
	}
	if len(at) == 0 || !e.ops.AnyWished() {
		return
	}
	if p := e.placed(id, 0); p != nil {
		if who, ok := e.cfg.Secure.Peers.ByNode(id); ok {
			p.who.Name = who.Name
		}
		e.answer(now, p)
	}
}

// shardAt returns where a shard of a node is whose first shard is at those addresses: each has the port behind that of
// the one before (clause 21.11).
func shardAt(at []frame.Addr, shard uint8) (out []frame.Addr) {
	if shard == 0 {
		return at
	}
	for i := range at {
		if ap := at[i].AddrPort(); int(ap.Port())+int(shard) <= math.MaxUint16 {
			out = append(out, frame.IP(netip.AddrPortFrom(ap.Addr(), ap.Port()+uint16(shard))))
		}
	}
	return out
}

// placed returns the shard of a peer of which nothing was heard, and whose address the configuration has; nil: it has
// none.
func (e *Endpoint) placed(id op.NodeID, shard uint8) *peer {
	if !e.reaches(e.endpoints[id]) {
		return nil
	}
	p := e.record(id, shard)
	if p != nil && e.cfg.Secure != nil {
		if who, ok := e.cfg.Secure.Peers.ByNode(id); ok {
			p.who.Name, p.sealed = who.Name, true
		}
	}
	return p
}

// askedAt says at which addresses a peer was asked, for people; empty: at none of the configuration.
func (e *Endpoint) askedAt(p *peer) (text string) {
	for _, at := range p.Links.Endpoints {
		if e.reaches([]frame.Addr{at}) {
			text += ", " + at.String()
		}
	}
	return strings.TrimPrefix(text, ", ")
}

// anyIP reports whether there is an IP link.
func (e *Endpoint) anyIP() bool {
	for m := e.net.Up; m != 0; m &= m - 1 {
		if e.isIP(bits.TrailingZeros64(m)) {
			return true
		}
	}
	return false
}

// reaches reports whether a link that is up leads to one of some addresses.
func (e *Endpoint) reaches(at []frame.Addr) bool {
	for m := e.net.Up; m != 0; m &= m - 1 {
		from := &e.net.Links[bits.TrailingZeros64(m)].Addr
		if from.IsIP() && slices.ContainsFunc(at, func(to frame.Addr) bool { return from.Reaches(&to) }) {
			return true
		}
	}
	return false
}

// mayBeAt reports whether a node may be at an address, by configuration. A frame from elsewhere is counted, and nothing
// else may come of it (clause 21.10).
func (e *Endpoint) mayBeAt(id op.NodeID, at *frame.Addr) bool {
	if !at.IsIP() || e.cfg.Secure == nil {
		return true
	}
	if allow := e.cfg.Secure.Peers.Allow(id); len(allow) == 0 || at.In(allow) {
		return true
	}
	e.count.Reject.RejectedPlace++
	return false
}

// mayBeAt reports it of the peer, or of the node that the peer says it is.
func (s *Session) mayBeAt(at *frame.Addr) bool {
	if s.Trust.claimed != (op.NodeID{}) && s.State != SessionOpen {
		return s.e.mayBeAt(s.Trust.claimed, at)
	}
	return s.e.mayBeAt(s.Peer.who.ID, at)
}

// confine has peers and their sessions follow changes of where they may be.
func (e *Endpoint) confine(now mono.Time) {
	for _, p := range e.peers.list {
		p.Links.Allow = e.cfg.Secure.Peers.Allow(p.who.ID)
		p.Links.Confine()
	}
	for _, s := range e.Sessions.List {
		if s.State == SessionOpen && !s.Inside {
			s.Paths.Confine(now)
			s.refreshPaths(now)
		}
	}
}

// Found reports whether there is an open session with a shard of a node.
func (e *Endpoint) Found(id op.NodeID) bool {
	for shard := range uint8(wire.MaxShards) {
		p := e.peers.byID[peerID{id, shard}]
		if p != nil && p.session != nil && p.session.State == SessionOpen {
			return true
		}
	}
	return false
}

// InitProof is the proof of clause 21.3 that the sender of an Init knows the public key of the node that it asks.
func InitProof(of secure.PublicKey, body []byte) []byte {
	key := sha256.Sum256(append([]byte("multiedge init"), of[:]...))
	proof := hmac.New(sha256.New, key[:])
	proof.Write(body)
	return proof.Sum(nil)[:wire.ProofLen]
}

// signInit appends the proof to the body of an Init to a node.
func (e *Endpoint) signInit(body []byte, to op.NodeID) []byte {
	who, _ := e.cfg.Secure.Peers.ByNode(to)
	return append(body, InitProof(who.Key, body)...)
}

// mostInit is more bytes than the body of an Init has over IP. Longer ones cost a stranger more than they cost us.
const mostInit = 256

// knowsUs returns the body of an Init without its proof, if that is right.
func (e *Endpoint) knowsUs(body []byte) ([]byte, bool) {
	n := len(body) - wire.ProofLen
	if n < 0 || n > mostInit || e.cfg.Secure == nil {
		return nil, false
	}
	return body[:n], hmac.Equal(body[n:], InitProof(e.cfg.Secure.Public, body[:n]))
}

// doubtSilence asks whether a peer that is silent still has the session, if it is reached over IP alone: there a node
// that was started anew says nothing to those it does not know (clause 21.3).
func (s *Session) doubtSilence(now mono.Time) {
	if s.Trust.Opener == nil || s.Inside || s.Paths.TxMask == 0 || now.Sub(s.LastHeard) < 2*s.e.cfg.KeepAlive {
		return
	}
	for i := range s.e.net.Links {
		if s.Paths.TxMask&(1<<i) != 0 && !s.e.isIP(i) {
			return
		}
	}
	s.doubt(now)
}
