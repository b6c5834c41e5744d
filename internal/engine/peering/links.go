package peering

import (
	"fmt"
	"time"

	"multiedge/internal/engine/count"
	"multiedge/internal/engine/path"
	"multiedge/internal/hist"
	"multiedge/internal/mono"
	"multiedge/internal/wire"
)

// Local links, and what the two ends of a sealed session tell each other of theirs (clause 10.4).

// peerLinks is what the two ends of a sealed session tell each other of their links.
type peerLinks struct {
	followed Ration // changes of the peer's links
	News     uint64 // links of ours that the peer must be told about
	told     uint32 // the version of our links that our parameters in the handshake had
}

// SetLink adds link number i or changes it. Paths over a changed link are probed anew. It fails, and the link is not
// used, if its MTU is less than the protocol needs.
func (e *Endpoint) SetLink(now mono.Time, i int, lc path.LinkConfig) error {
	if lc.MTU < wire.MinFrame {
		return fmt.Errorf("engine: link %s has MTU %d; at least %d is needed: ip link set %s mtu 9000, or 1500",
			lc.Name, lc.MTU, wire.MinFrame, lc.Name)
	}
	if lc.Weight <= 0 {
		lc.Weight = 1
	}
	if lc.RxSlots <= 0 {
		lc.RxSlots = 256
	}
	lc.MTU = min(lc.MTU, 65535)
	l := &e.net.Links[i]
	if l.Name != lc.Name || l.RoundTrips == nil { // the number was another link's
		l.Count, l.RoundTrips = count.Counters{}, new(hist.Histogram)
	}
	l.LinkConfig, l.Up, l.Blocked = lc, true, false
	if e.began == 0 {
		e.began = now
	}
	e.net.Up |= 1 << i
	if e.self.inside &^= 1 << i; lc.Inside {
		e.self.inside |= 1 << i
	} else {
		e.announceLink(i)
		e.greet(now)
	}
	for _, s := range e.Sessions.List {
		s.Paths.Seen[i] = 0
		s.Paths.Drop(now, i, "link changed")
		s.refreshPaths(now)
	}
	e.net.ForgetPorts(i)
	return nil
}

// RemoveLink says that link i is down or gone: its paths die at once and what was in flight on them is sent on the
// others.
func (e *Endpoint) RemoveLink(now mono.Time, i int) {
	if e.net.Up&(1<<i) == 0 {
		return
	}
	e.net.Links[i].Up = false
	e.net.Up &^= 1 << i
	e.announceLink(i)
	for _, p := range e.peers.list {
		p.Links.Heard.Forget(i)
	}
	for _, s := range e.Sessions.List {
		s.Paths.Seen[i] = 0
		s.Paths.Drop(now, i, "link down")
	}
}

// SetLinkBlocked tells that the shell still holds unsent frames of link i: PollTransmit gives no more for it.
func (e *Endpoint) SetLinkBlocked(i int, blocked bool) {
	e.net.Links[i].Blocked = blocked
	if blocked || !e.Sessions.muted {
		return
	}
	e.Sessions.muted = false
	for _, s := range e.Sessions.List {
		s.Acks.muteTo = 0
	}
}

// linkInfo describes link i to peers; one that is not up has no slots.
func (e *Endpoint) linkInfo(i int) wire.LinkInfo {
	l := &e.net.Links[i]
	in := wire.LinkInfo{Link: uint8(i), Version: e.hellos.changed[i], MTU: uint32(l.MTU), Joins: l.Super > 0,
		Shuffle: l.Shuffle, Addr: l.Addr}
	if e.net.Up&(1<<i) != 0 {
		in.RxSlots = uint16(min(l.RxSlots, 65535))
	}
	return in
}

// mostLinkChanges is how many changes of a peer's links are followed in a second: with each of them a path begins anew,
// and people are told.
const mostLinkChanges = 4 * path.MaxLinks

// OnLink follows a change of one of the peer's links, of which local link i heard. It reports whether the frame may
// count as received (clause 3.3).
func (s *Session) OnLink(now mono.Time, i int, data []byte) bool {
	var l wire.LinkInfo
	if s.Trust.Opener == nil || l.Decode(data) != nil {
		s.e.count.Reject.RejectedMalformed++
		return false
	}
	news := s.Paths.Changes(&l)
	if news && !s.PeerLinks.followed.Take(now, time.Second, RankPeer, mostLinkChanges) {
		s.e.count.Reject.RejectedNoRoom++
		return false
	}
	s.Paths.SetRemoteLink(&l)
	if news {
		s.refreshPaths(now)
	}
	if s.State == SessionOpen && s.Paths.HeardFrom == l.Link {
		s.Paths.Reopened(now, i, l.Link)
	}
	return true
}

// announceLink queues news of a link for every sealed session: its parameters named the links of that time. In
// plaintext Hello carries the news.
func (e *Endpoint) announceLink(i int) {
	if e.self.inside&(1<<i) != 0 {
		return
	}
	e.hellos.linkVersion++
	e.hellos.changed[i] = e.hellos.linkVersion
	for _, s := range e.Sessions.List {
		if s.Trust.Sealer != nil {
			s.PeerLinks.News |= 1 << i
		}
	}
}

// changedSince are the links of ours that changed after version told.
func (e *Endpoint) changedSince(told uint32) (m uint64) {
	for i, v := range e.hellos.changed {
		if v > told {
			m |= 1 << i
		}
	}
	return m
}
