package peering

import (
	"math/bits"
	"weak"

	"multiedge/internal/engine/op"
)

// Probe shows tests and the simulator what an Endpoint keeps.
type Probe struct{ e *Endpoint }

// ProbeOf returns the Probe of e.
func ProbeOf(e *Endpoint) Probe { return Probe{e} }

// Kept is what tables hold: sessions, their numbers, set-up frames that wait to leave, steps that wait to be taken,
// keys that wait to be erased.
type Kept struct{ Sessions, Numbers, Outbox, Steps, Retired int }

// Kept counts it.
func (p Probe) Kept() Kept {
	e := p.e
	k := Kept{Sessions: len(e.Sessions.List), Numbers: len(e.Sessions.ByNumber), Outbox: len(e.Outbox),
		Retired: len(e.shakes.retired)}
	for i := range e.shakes.steps {
		k.Steps += e.shakes.steps[i].Len()
	}
	return k
}

// Overslept reports whether NextTimeout is later than the deadline of a session that is not open.
func (p Probe) Overslept() bool {
	t := &p.e.Sessions
	return t.waitAt > t.earliestWait()
}

// SessionInfo is what tests see of a session.
type SessionInfo struct {
	Local, Remote uint32
	Open          bool
	Handshake     bool // something of its handshake is remembered
	Paths         int
}

// SessionList describes every session, those that are being set up too.
func (p Probe) SessionList() (out []SessionInfo) {
	for _, s := range p.e.Sessions.List {
		out = append(out, SessionInfo{s.local, s.Remote, s.State == SessionOpen, s.Trust.Hs != nil,
			bits.OnesCount64(s.Paths.TxMask)})
	}
	return out
}

// Handshakes counts those that others began and that did not end.
func (p Probe) Handshakes() (n int) {
	for _, s := range p.e.Sessions.List {
		if s.Trust.Hs != nil && !s.Trust.Hs.dialer && s.State == sessionHandshake {
			n++
		}
	}
	return n
}

// Bounds that tests come to: handshakes that others began, and those of a session that asks.
const (
	MaxPending = maxPending
	MaxTries   = maxTries
)

// FillPeers fills the table of peers with ones that have a session, which would take thousands of handshakes.
func (p Probe) FillPeers() {
	p.e.peers.list, p.e.peers.byID = nil, map[peerID]*peer{}
	for i := range maxPeers {
		id := op.NodeID{9, byte(i >> 8), byte(i)}
		p.e.record(id, 0).session = &Session{}
	}
}

// SessionsAlive returns, for each session, a function that tells whether its memory is still in use.
func (p Probe) SessionsAlive() (alive []func() bool) {
	for _, s := range p.e.Sessions.List {
		p := weak.Make(s)
		alive = append(alive, func() bool { return p.Value() != nil })
	}
	return alive
}
