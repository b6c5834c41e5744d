package engine

import (
	"math"

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

// Snapshot copies the endpoint's state. It takes time proportional to links, peers and connections; not for the packet
// path.
func (e *Endpoint) Snapshot(now mono.Time) Snapshot {
	out := e.SnapshotHead(now)
	out.Peers, _ = e.SnapshotPeers(now, nil, 0, math.MaxInt)
	out.Connections, _ = e.SnapshotConns(nil, 0, math.MaxInt)
	return out
}

// SnapshotHead is Snapshot without peers and connections: what takes no longer the more of them there are.
func (e *Endpoint) SnapshotHead(now mono.Time) Snapshot {
	out := Snapshot{Counters: e.Count, Latency: e.Latency, Wrong: e.nodes.WrongNames(now)}
	if out.Counters.Trust.IdentityClaims > 0 {
		out.Claim = e.nodes.LatestClaim(now)
	}
	for i := range e.net.Links {
		if l := &e.net.Links[i]; l.Name != "" && !l.Inside {
			out.Links = append(out.Links, LinkStatus{Number: i, Name: l.Name, Addr: l.Addr, MTU: l.MTU,
				Weight: l.Weight,
				Up:     l.Up, Blocked: l.Blocked, Counters: l.Count, RoundTrips: *l.RoundTrips})
		}
	}
	return out
}
