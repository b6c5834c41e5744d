package peering

import (
	"math/bits"
	"time"

	"multiedge/internal/engine/op"
	"multiedge/internal/engine/path"
	"multiedge/internal/frame"
	"multiedge/internal/mono"
)

// Claim describes a Hello of another host with this node's identity.
type Claim struct {
	Link int
	Addr frame.Addr
	Ago  time.Duration
}

// PeerStatus describes one node that was heard, and the session with it if there is one.
type PeerStatus struct {
	ID          op.NodeID
	Name        string
	Shard       int // of the node
	Session     bool
	Open        bool
	Age         time.Duration // of the session
	Silent      time.Duration // since its last frame
	Connections int
	InFlight    int // frames
	Lost        uint64
	Retransmits uint64
	Received    uint64        // bytes of frames with data, in all sessions
	Trouble     Trouble       // why there is no session, if that is known
	TroubleAgo  time.Duration // how long that was ago
	Sessions    uint64        // opened so far
	Flaps       bool          // the latest of them keep ending
	Twins       uint64        // times that a run of the peer's came back after another: its key is used twice
	Paths       []PathStatus
}

// PathStatus describes one path of a session.
type PathStatus struct {
	Link     int
	PeerLink int
	PeerAddr frame.Addr
	SeenAs   frame.Addr // of an IP link: where the peer sees this node
	State    string
	MTU      int  // largest frame in use, bytes after the Ethernet header
	PeerMTU  int  // of the peer's link, as it says
	Joined   bool // frames travel in datagrams
	SRTT     time.Duration
	MinRTT   time.Duration
	Window   float64 // frames
	Control  string  // of congestion, as flowctl.Controller.Kind names it
	Marks    string  // off, tested, good, failed: whether routers' marks (ECN) get through
	InFlight int
	Counters path.Counters
}

// SnapshotPeers appends the state of at most n peers, from the place from on, and returns the place to go on from: 0 at
// the end. A peer that comes or goes between two calls may be seen twice or missed.
func (e *Endpoint) SnapshotPeers(now mono.Time, out []PeerStatus, from, n int) (_ []PeerStatus, next int) {
	end := min(from+n, len(e.peers.list))
	for i := from; i < end; i++ {
		st := e.peers.list[i].status(now)
		if e.peers.list[i].sealed && e.cfg.Secure == nil {
			st.Trouble = TroubleSealed
		}
		out = append(out, st)
	}
	if end >= len(e.peers.list) {
		end = 0
	}
	return out, end
}

func (p *peer) status(now mono.Time) PeerStatus {
	st := PeerStatus{
		ID: p.who.ID, Name: p.who.Name, Shard: int(p.who.Shard), Received: p.Past.Received, Trouble: p.Past.Trouble,
		TroubleAgo: now.Sub(p.Past.TroubleAt),
		Sessions:   p.Past.Sessions, Flaps: p.Past.Flaps(now), Twins: p.Past.Returns,
	}
	s := p.session
	if s == nil {
		return st
	}
	st.Session, st.Open = true, s.State == SessionOpen
	st.Age, st.Silent = now.Sub(s.born), now.Sub(s.LastHeard)
	st.Connections, st.InFlight, st.Lost, st.Retransmits = s.Ops.Conns, s.Paths.InFlight, s.Paths.FramesLost,
		s.FramesRetransmitted
	for m := s.Paths.TxMask; m != 0; m &= m - 1 {
		t := s.Paths.Tx[bits.TrailingZeros64(m)]
		n, _ := t.Ledger.InFlight()
		st.Paths = append(st.Paths, PathStatus{
			Link: t.Link, PeerLink: int(t.Number), PeerAddr: t.To, SeenAs: t.SeenAs,
			State: t.State.String(),
			MTU:   t.PMTU.MTU, PeerMTU: t.Set.RemoteLink(t.Number).MTU,
			Joined: t.PMTU.Joined, SRTT: t.RTT.SRTT(), MinRTT: t.RTT.Min(),
			Window: t.Cwnd.Frames(), Control: t.Cwnd.Kind(), InFlight: n, Counters: t.Count, Marks: t.Marking.State(),
		})
	}
	return st
}

// LatestClaim describes the latest Hello of another host with this node's identity, if there was one.
func (e *Endpoint) LatestClaim(now mono.Time) Claim {
	return Claim{Link: e.hellos.claim.link, Addr: e.hellos.claim.addr, Ago: now.Sub(e.hellos.claim.at)}
}
