package engine

import (
	"math/bits"
	"time"

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
}

// Claim describes a Hello of another host with this node's identity.
type Claim struct {
	Link int
	MAC  [6]byte
	Ago  time.Duration
}

// LinkStatus describes one local link.
type LinkStatus struct {
	Number   int
	Name     string
	MAC      [6]byte
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
	Paths       []PathStatus
}

// PathStatus describes one path of a session.
type PathStatus struct {
	Link     int
	PeerLink int
	PeerMAC  [6]byte
	State    string
	MTU      int  // largest frame in use, bytes after the Ethernet header
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
	Outstanding int
	Held        int // segments behind fences
	Notes       int // notifications not taken yet
}

var connStateText = [...]string{"free", "dialing", "incoming", "open", "closing", "last"}

// Snapshot copies the endpoint's state. It takes time proportional to links, peers and connections; not for the packet path.
func (e *Endpoint) Snapshot(now mono.Time) Snapshot {
	out := Snapshot{Counters: e.Count, Latency: e.Latency}
	if out.Counters.IdentityClaims > 0 {
		out.Claim = Claim{Link: e.claim.link, MAC: e.claim.mac, Ago: now.Sub(e.claim.at)}
	}
	for i := range e.links {
		if l := &e.links[i]; l.Name != "" {
			out.Links = append(out.Links, LinkStatus{Number: i, Name: l.Name, MAC: l.MAC, MTU: l.MTU, Weight: l.Weight, Up: l.up, Blocked: l.blocked, Counters: l.count, RoundTrips: *l.roundTrips})
		}
	}
	for _, p := range e.peers {
		out.Peers = append(out.Peers, p.status(now))
	}
	for _, c := range e.conns {
		if c.state == connFree || c.state == connLast {
			continue
		}
		st := ConnStatus{ID: c.id, Peer: c.wantPeer, Service: c.service, State: connStateText[c.state], Ordered: c.ordered, Submitted: uint32(c.sndNext), Outstanding: c.pending, Held: c.held, Notes: c.notes.len()}
		if c.s != nil {
			st.Peer = c.s.peer.name
		}
		out.Connections = append(out.Connections, st)
	}
	return out
}

func (p *peer) status(now mono.Time) PeerStatus {
	st := PeerStatus{ID: p.id, Name: p.name, Shard: int(p.shard)}
	s := p.session
	if s == nil {
		return st
	}
	st.Session, st.Open = true, s.state == sessionOpen
	st.Age, st.Silent = now.Sub(s.born), now.Sub(s.lastHeard)
	st.Connections, st.InFlight, st.Lost, st.Retransmits = s.conns, s.inFlight, s.framesLost, s.framesRetransmitted
	for m := s.txMask; m != 0; m &= m - 1 {
		t := s.tx[bits.TrailingZeros64(m)]
		n, _ := t.ledger.InFlight()
		st.Paths = append(st.Paths, PathStatus{
			Link: t.link, PeerLink: int(t.number), PeerMAC: [6]byte(t.header[:6]), State: t.state.String(), MTU: t.mtu, Joined: t.joined, SRTT: t.rtt.SRTT(), MinRTT: t.rtt.Min(),
			Window: t.cwnd.Frames(), InFlight: n, Counters: t.count,
		})
	}
	return st
}
