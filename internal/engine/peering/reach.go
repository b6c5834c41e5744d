package peering

import (
	"crypto/hmac"
	"crypto/sha256"
	"math/bits"
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
		p.Links.Endpoints = at
		if s := p.session; s != nil {
			s.refreshPaths(now)
		}
	}
	if len(at) == 0 || !e.ops.AnyWished() {
		return
	}
	if p := e.placed(id); p != nil {
		if who, ok := e.cfg.Secure.Peers.ByNode(id); ok {
			p.who.Name = who.Name
		}
		e.answer(now, p)
	}
}

// placed returns the peer of which nothing was heard, and whose address the configuration has; nil: it has none.
func (e *Endpoint) placed(id op.NodeID) *peer {
	if !e.reaches(e.endpoints[id]) {
		return nil
	}
	p := e.record(id, 0)
	if p != nil && e.cfg.Secure != nil {
		if who, ok := e.cfg.Secure.Peers.ByNode(id); ok {
			p.who.Name, p.sealed = who.Name, true
		}
	}
	return p
}

// askedAt says at which addresses a peer was asked, for people; empty: at none of the configuration.
func (e *Endpoint) askedAt(id op.NodeID) (text string) {
	for _, at := range e.endpoints[id] {
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

// Found reports whether there is an open session with a node.
func (e *Endpoint) Found(id op.NodeID) bool {
	p := e.peers.byID[peerID{id, 0}]
	return p != nil && p.session != nil && p.session.State == SessionOpen
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
