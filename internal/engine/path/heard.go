package path

import (
	"time"

	"multiedge/internal/mono"
)

// maxLinks is how many links a node can have (clause 2.2).
const maxLinks = 64

// Heard are the peer's links that Hello named on each of our links lately.
type Heard struct {
	latest, before [maxLinks]uint64
	since          mono.Time     // when latest began
	span           time.Duration // after which latest becomes before
}

// hearFor is for how many periods of Hello a link is remembered at least: some may be lost.
const hearFor = 5

// NewHeard returns one for a peer, of which nothing was heard yet, with a period of Hello.
func NewHeard(period time.Duration) Heard { return Heard{span: hearFor * period} }

func (h *Heard) age(now mono.Time) {
	past := now.Sub(h.since)
	if past < h.span {
		return
	}
	h.before = [maxLinks]uint64{}
	if past < 2*h.span {
		h.before = h.latest
	}
	h.latest, h.since = [maxLinks]uint64{}, now
}

// On are the links heard on local link i.
func (h *Heard) On(now mono.Time, i int) uint64 {
	h.age(now)
	return h.latest[i] | h.before[i]
}

// Note remembers that the peer's link j was heard on i. It reports whether that is the first time in this span.
func (h *Heard) Note(now mono.Time, i int, j uint8) bool {
	h.age(now)
	was := h.latest[i]
	h.latest[i] |= 1 << j
	return h.latest[i] != was
}

// Forget forgets what was heard on local link i.
func (h *Heard) Forget(i int) { h.latest[i], h.before[i] = 0, 0 }
