package engine

import (
	"multiedge/internal/frame"
	"multiedge/internal/mono"
	"multiedge/internal/secure"
)

// Peers, links and sessions, for the owner. peering.Endpoint does it, and says more of each.

// Dial asks for a connection to a service of a peer, named by node name or identity in hexadecimal.
func (e *Endpoint) Dial(now mono.Time, peer, service string, o DialOptions) (ConnID, error) {
	return e.nodes.Dial(now, peer, service, o)
}

// SetPeers replaces the authorised peers.
func (e *Endpoint) SetPeers(now mono.Time, peers *secure.Peers) { e.nodes.SetPeers(now, peers) }

// SetEndpoints replaces the addresses of a peer's IP links by configuration.
func (e *Endpoint) SetEndpoints(now mono.Time, id NodeID, at []frame.Addr) {
	e.nodes.SetEndpoints(now, id, at)
}

// Found reports whether there is an open session with a node.
func (e *Endpoint) Found(id NodeID) bool { return e.nodes.Found(id) }

// RenewKeys makes every sealed session begin an exchange of fresh keys now.
func (e *Endpoint) RenewKeys(now mono.Time) { e.nodes.RenewKeys(now) }

// SetLink adds link number i or changes it.
func (e *Endpoint) SetLink(now mono.Time, i int, lc LinkConfig) error {
	return e.nodes.SetLink(now, i, lc)
}

// Drawn takes a lane of which another port is to be drawn (linkdrv.Redrawer), and which of its sockets; ok is false if
// there is none. It may say more after HandleTimeout.
func (e *Endpoint) Drawn() (link int, socket uint8, ok bool) { return e.net.Drawn() }

// RemoveLink says that link i is down or gone: its paths die at once and what was in flight on them is sent on the
// others.
func (e *Endpoint) RemoveLink(now mono.Time, i int) { e.nodes.RemoveLink(now, i) }

// SetLinkBlocked tells that the shell still holds unsent frames of link i: PollTransmit gives no more for it.
func (e *Endpoint) SetLinkBlocked(i int, blocked bool) { e.nodes.SetLinkBlocked(i, blocked) }

// Stop ends what runs beside the owner's thread: the goroutines of handshakes, with Config.Deferred in the steps that
// there are then.
func (e *Endpoint) Stop() { e.nodes.Stop() }

// NextTimeout returns when HandleTimeout must be called at the latest, if nothing else happens.
func (e *Endpoint) NextTimeout() mono.Time { return e.nodes.NextTimeout() }

// HandleTimeout runs every timer that is due.
func (e *Endpoint) HandleTimeout(now mono.Time) { e.nodes.HandleTimeout(now) }

// NewReader returns a Reader of the endpoint's frames.
func (e *Endpoint) NewReader() *Reader { return e.nodes.NewReader() }

// SnapshotPeers appends the state of at most n peers, from the place from on, and returns the place to go on from: 0
// at the end.
func (e *Endpoint) SnapshotPeers(now mono.Time, out []PeerStatus, from, n int) (_ []PeerStatus, next int) {
	return e.nodes.SnapshotPeers(now, out, from, n)
}

// IsSelf reports whether a peer that is dialled by that name is this node.
func (e *Endpoint) IsSelf(name string) bool { return e.nodes.IsSelf(name) }

// HasSelf reports whether there is a session for requests to a shard of the node.
func (e *Endpoint) HasSelf(shard int) bool { return e.nodes.HasSelf(shard) }

// SelfSession makes one end of a session with a shard of the node, whose link inside the node has that address, and
// returns its number; asks says that it is the end whose requests it carries.
func (e *Endpoint) SelfSession(now mono.Time, shard int, addr frame.Addr, asks bool) uint32 {
	return e.nodes.SelfSession(now, shard, addr, asks)
}

// OpenSelf opens one, now that the other end's number is known.
func (e *Endpoint) OpenSelf(now mono.Time, number, remote uint32) {
	e.nodes.OpenSelf(now, number, remote)
}

// StepWaits reports whether NextStep would return one.
func (e *Endpoint) StepWaits(strangers bool) bool { return e.nodes.StepWaits(strangers) }

// NextStep takes a step that is to be computed, nil if there is none: one of strangers, else of ours and of peers.
func (e *Endpoint) NextStep(strangers bool) *Step { return e.nodes.NextStep(strangers) }

// Stepped takes the result of a step.
func (e *Endpoint) Stepped(now mono.Time, st *Step) { e.nodes.Stepped(now, st) }
