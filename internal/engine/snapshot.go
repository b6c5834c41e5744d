package engine

import (
	"math/bits"
	"time"

	"multiedge/internal/engine/peering"
	"multiedge/internal/frame"
	"multiedge/internal/hist"
	"multiedge/internal/mono"
)

// Snapshot is the endpoint's state for people and metrics: a copy that shares nothing with it.
type Snapshot struct {
	Counters    Counters
	Latency     Latency
	Links       []LinkStatus
	Peers       []PeerStatus
	Connections []ConnStatus
	Claim       Claim // the latest, if Counters.IdentityClaims is not 0
	Wrong       []NameTrouble
}

// Claim describes a Hello of another host with this node's identity.
type Claim struct {
	Link int
	Addr frame.Addr
	Ago  time.Duration
}

// LinkStatus describes one local link.
type LinkStatus struct {
	Number   int
	Name     string
	Addr     frame.Addr
	MTU      int
	Weight   float64
	Up       bool
	Blocked  bool
	Counters Counters // frames and bytes only

	RoundTrips hist.Histogram // what the RTT of its paths took for samples
}

// PeerStatus describes one node that was heard, and the session with it if there is one.
type PeerStatus struct {
	ID          NodeID
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
	Received    uint64          // bytes of frames with data, in all sessions
	Trouble     peering.Trouble // why there is no session, if that is known
	TroubleAgo  time.Duration   // how long that was ago
	Sessions    uint64          // opened so far
	Flaps       bool            // the latest of them keep ending
	Twins       uint64          // times that a run of the peer's came back after another: its key is used twice
	Paths       []PathStatus
}

// PathStatus describes one path of a session.
type PathStatus struct {
	Link     int
	PeerLink int
	PeerAddr frame.Addr
	State    string
	MTU      int  // largest frame in use, bytes after the Ethernet header
	PeerMTU  int  // of the peer's link, as it says
	Joined   bool // frames travel in datagrams
	SRTT     time.Duration
	MinRTT   time.Duration
	Window   float64 // frames
	InFlight int
	Counters PathCounters
}

// ConnStatus describes one connection.
type ConnStatus struct {
	ID          ConnID
	Peer        string
	Service     string
	State       string
	Ordered     bool
	Submitted   uint32 // operations so far, modulo 2^32
	BytesIn     uint64 // of operations that succeeded
	BytesOut    uint64
	Outstanding int
	Held        int // segments behind fences
	Notes       int // notifications not taken yet

	Waiting  int // operations that wait for a buffer at the peer, or behind one that does
	Credit   int // messages that the peer has buffers for
	Receives int // buffers posted for the peer's messages, those that are being filled too
	Sharing  int // connections that take from the same queue as this one; 0: it has its own
}

var connStateText = [...]string{"free", "dialing", "incoming", "open", "closing", "last"}

// Snapshot copies the endpoint's state. It takes time proportional to links, peers and connections; not for the packet
// path.
func (e *Endpoint) Snapshot(now mono.Time) Snapshot {
	out := e.SnapshotHead(now)
	out.Peers, _ = e.SnapshotPeers(now, nil, 0, len(e.peers.list))
	out.Connections, _ = e.SnapshotConns(nil, 0, len(e.conns.byIndex))
	return out
}

// SnapshotHead is Snapshot without peers and connections: what takes no longer the more of them there are.
func (e *Endpoint) SnapshotHead(now mono.Time) Snapshot {
	out := Snapshot{Counters: e.Count, Latency: e.Latency, Wrong: e.wrongNames(now)}
	if out.Counters.IdentityClaims > 0 {
		out.Claim = Claim{Link: e.hellos.claim.link, Addr: e.hellos.claim.addr, Ago: now.Sub(e.hellos.claim.at)}
	}
	for i := range e.links {
		if l := &e.links[i]; l.Name != "" && !l.Inside {
			out.Links = append(out.Links, LinkStatus{Number: i, Name: l.Name, Addr: l.Addr, MTU: l.MTU,
				Weight: l.Weight,
				Up:     l.up, Blocked: l.blocked, Counters: l.count, RoundTrips: *l.roundTrips})
		}
	}
	return out
}

// SnapshotPeers appends the state of at most n peers, from the place from on, and returns the place to go on from: 0 at
// the end. A peer that comes or goes between two calls may be seen twice or missed.
func (e *Endpoint) SnapshotPeers(now mono.Time, out []PeerStatus, from, n int) (_ []PeerStatus, next int) {
	end := min(from+n, len(e.peers.list))
	for i := from; i < end; i++ {
		st := e.peers.list[i].status(now)
		if e.peers.list[i].sealed && e.cfg.Secure == nil {
			st.Trouble = peering.TroubleSealed
		}
		out = append(out, st)
	}
	if end >= len(e.peers.list) {
		end = 0
	}
	return out, end
}

// SnapshotConns looks at n places of connections as SnapshotPeers does at peers.
func (e *Endpoint) SnapshotConns(out []ConnStatus, from, n int) (_ []ConnStatus, next int) {
	end := min(from+n, len(e.conns.byIndex))
	for i := from; i < end; i++ {
		if c := e.conns.byIndex[i]; c.state != connFree && c.state != connLast {
			out = append(out, c.describe())
		}
	}
	if end >= len(e.conns.byIndex) {
		end = 0
	}
	return out, end
}

func (c *conn) describe() ConnStatus {
	st := ConnStatus{
		ID: c.id, Peer: c.dial.peer, Service: c.dial.service, State: connStateText[c.state], Ordered: c.ordered,
		Submitted: uint32(c.send.next),
		BytesIn:   c.bytesIn, BytesOut: c.bytesOut, Outstanding: c.send.pending, Held: c.recv.held,
		Notes: c.recv.notes.Len(),
	}
	if c.s != nil {
		st.Peer = c.s.peer.name
	}
	if m := c.msgs; m != nil {
		st.Waiting, st.Credit = m.out.queue.Len(), max(0, int(int32(m.out.credits-m.out.next)))
		if q := m.in.from; q != nil {
			st.Receives = int(m.in.begun-m.in.base) + q.posted.Len()
			if q.id != 0 {
				st.Sharing = len(q.takers)
			}
		}
	}
	return st
}

func (p *peer) status(now mono.Time) PeerStatus {
	st := PeerStatus{
		ID: p.id, Name: p.name, Shard: int(p.shard), Received: p.past.Received, Trouble: p.past.Trouble,
		TroubleAgo: now.Sub(p.past.TroubleAt),
		Sessions:   p.past.Sessions, Flaps: p.past.Flaps(now), Twins: p.past.Returns,
	}
	s := p.session
	if s == nil {
		return st
	}
	st.Session, st.Open = true, s.state == sessionOpen
	st.Age, st.Silent = now.Sub(s.born), now.Sub(s.lastHeard)
	st.Connections, st.InFlight, st.Lost, st.Retransmits = s.members.conns, s.paths.inFlight, s.framesLost,
		s.framesRetransmitted
	for m := s.paths.txMask; m != 0; m &= m - 1 {
		t := s.paths.tx[bits.TrailingZeros64(m)]
		n, _ := t.ledger.InFlight()
		st.Paths = append(st.Paths, PathStatus{
			Link: t.link, PeerLink: int(t.number), PeerAddr: t.to, State: t.state.String(),
			MTU: t.pmtu.mtu, PeerMTU: t.s.remoteLink(t.number).mtu,
			Joined: t.pmtu.joined, SRTT: t.rtt.SRTT(), MinRTT: t.rtt.Min(),
			Window: t.cwnd.Frames(), InFlight: n, Counters: t.count,
		})
	}
	return st
}
