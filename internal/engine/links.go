package engine

import (
	"fmt"
	"math/bits"
	"time"

	"multiedge/internal/engine/peering"
	"multiedge/internal/hist"
	"multiedge/internal/mono"
	"multiedge/internal/wire"
)

// Local links, and what the two ends of a sealed session tell each other of theirs (clause 10.4).

// peerLinks is what a session knows of the peer's links, and the peer of ours.
type peerLinks struct {
	links     [MaxLinks]remoteLink // of the peer, as announced in a sealed session
	announced uint64               // which of them there are; a part of known
	known     uint64               // which there are or were
	seen      [MaxLinks]uint64     // per local link: the peer's links whose frames arrived there
	followed  peering.Ration       // changes of the peer's links
	news      uint64               // links of ours that the peer must be told about
	told      uint32               // the version of our links that our parameters in the handshake had
}

// link is one local interface.
type link struct {
	LinkConfig
	up      bool
	blocked bool
	count   Counters

	roundTrips *hist.Histogram // made with the link: most of MaxLinks are none
	forecast   forecast
}

// SetLink adds link number i or changes it. Paths over a changed link are probed anew. It fails, and the link is not
// used, if its MTU is less than the protocol needs.
func (e *Endpoint) SetLink(now mono.Time, i int, lc LinkConfig) error {
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
	l := &e.links[i]
	if l.Name != lc.Name || l.roundTrips == nil { // the number was another link's
		l.count, l.roundTrips = Counters{}, new(hist.Histogram)
	}
	l.LinkConfig, l.up, l.blocked = lc, true, false
	if e.began == 0 {
		e.began = now
	}
	e.up |= 1 << i
	if e.self.inside &^= 1 << i; lc.Inside {
		e.self.inside |= 1 << i
	} else {
		e.announceLink(i)
		e.greet(now)
	}
	for _, s := range e.sessions.list {
		s.peerLinks.seen[i] = 0
		s.dropPath(now, i, "link changed")
		s.refreshPaths(now)
	}
	return nil
}

// RemoveLink says that link i is down or gone: its paths die at once and what was in flight on them is sent on the
// others.
func (e *Endpoint) RemoveLink(now mono.Time, i int) {
	if e.up&(1<<i) == 0 {
		return
	}
	e.links[i].up = false
	e.up &^= 1 << i
	e.announceLink(i)
	for _, p := range e.peers.list {
		p.heard.Forget(i)
	}
	for _, s := range e.sessions.list {
		s.peerLinks.seen[i] = 0
		s.dropPath(now, i, "link down")
	}
}

// SetLinkBlocked tells that the shell still holds unsent frames of link i: PollTransmit gives no more for it.
func (e *Endpoint) SetLinkBlocked(i int, blocked bool) {
	e.links[i].blocked = blocked
	if blocked || !e.sessions.muted {
		return
	}
	e.sessions.muted = false
	for _, s := range e.sessions.list {
		s.acks.muteTo = 0
	}
}

// linkInfo describes link i to peers; one that is not up has no slots.
func (e *Endpoint) linkInfo(i int) wire.LinkInfo {
	l := &e.links[i]
	in := wire.LinkInfo{Link: uint8(i), Version: e.hellos.linkVersion, MTU: uint32(l.MTU), Joins: l.Super > 0,
		Shuffle: l.Shuffle, Addr: l.Addr}
	if e.up&(1<<i) != 0 {
		in.RxSlots = uint16(min(l.RxSlots, 65535))
	}
	return in
}

// described is the link that a description is of.
func described(l *wire.LinkInfo) remoteLink {
	return remoteLink{addr: l.Addr, mtu: int(l.MTU), joins: l.Joins, slots: int(l.RxSlots), shuffle: l.Shuffle,
		version: l.Version}
}

// changes reports whether a description of one of the peer's links, than which nothing newer is known, is news.
func (s *session) changes(l *wire.LinkInfo) bool {
	was := s.peerLinks.links[l.Link]
	newest := was.version <= l.Version
	was.version = l.Version
	return newest && was != described(l)
}

// setRemoteLink takes what the peer says of one of its links, unless something newer is known (clause 10.4).
func (s *session) setRemoteLink(l *wire.LinkInfo) {
	j := int(l.Link)
	if s.peerLinks.links[j].version > l.Version {
		return
	}
	s.peerLinks.links[j] = described(l)
	s.peerLinks.announced, s.peerLinks.known = s.peerLinks.announced|1<<j, s.peerLinks.known|1<<j
	if l.RxSlots == 0 {
		s.peerLinks.announced &^= 1 << j
	}
}

// mostLinkChanges is how many changes of a peer's links are followed in a second: with each of them a path begins anew,
// and people are told.
const mostLinkChanges = 4 * MaxLinks

// onLink follows a change of one of the peer's links. It reports whether the frame may count as received (clause 3.3).
func (s *session) onLink(now mono.Time, data []byte) bool {
	var l wire.LinkInfo
	if s.trust.opener == nil || l.Decode(data) != nil {
		s.e.Count.RejectedMalformed++
		return false
	}
	news := s.changes(&l)
	if news && !s.peerLinks.followed.Take(now, time.Second, peering.RankPeer, mostLinkChanges) {
		s.e.Count.RejectedNoRoom++
		return false
	}
	s.setRemoteLink(&l)
	if news {
		s.refreshPaths(now)
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
	for _, s := range e.sessions.list {
		if s.trust.sealer != nil {
			s.peerLinks.news |= 1 << i
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

// links appends the news of our links (clause 10.4).
func (w *builder) links() {
	s := w.s
	for ; s.peerLinks.news != 0 && w.room >= 64; s.peerLinks.news &= s.peerLinks.news - 1 {
		i := bits.TrailingZeros64(s.peerLinks.news)
		in := s.e.linkInfo(i)
		w.seg = wire.Segment{Kind: wire.KindLink, Data: in.AppendTo(nil)}
		w.small(&w.seg)
		w.record(recLink, 0, 0, uint64(i), 0, false)
	}
}

// ownLink says what link the frame leaves on, whether that is news or not.
func (w *builder) ownLink() {
	if w.s.trust.sealer == nil {
		return
	}
	in := w.s.e.linkInfo(w.p.link)
	w.seg = wire.Segment{Kind: wire.KindLink, Data: in.AppendTo(nil)}
	w.small(&w.seg)
}
