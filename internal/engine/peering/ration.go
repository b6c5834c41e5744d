package peering

import (
	"time"

	"multiedge/internal/mono"
)

// Rank says how much is known about the sender of a request for a handshake. Each rank has its own share of the
// computing.
type Rank uint8

const (
	RankPeer     Rank = iota // ours, and that of an address of a peer's open session
	RankHeard                // a node of that identity said Hello from the address
	RankStranger             // all others
	Ranks
)

// Ration counts what was done lately, for each rank.
type Ration struct {
	from mono.Time
	used [Ranks]int
}

// Take reports whether less than most was done in the present span.
func (r *Ration) Take(now mono.Time, span time.Duration, who Rank, most int) bool {
	if now-r.from > mono.Time(span) {
		*r = Ration{from: now}
	}
	r.used[who]++
	return r.used[who] <= most
}
