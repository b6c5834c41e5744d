package path

import (
	"multiedge/internal/frame"
	"multiedge/internal/mono"
)

// Where a peer may be, by configuration (`allow`, clause 21.10). Only addresses that no path leads to yet are looked
// up in it: an allowed one costs a frame nothing.

// Allows reports whether the peer may be at an address.
func (h *Hints) Allows(at *frame.Addr) bool { return len(h.Allow) == 0 || !at.IsIP() || at.In(h.Allow) }

// Confine forgets addresses where the peer may not be any more.
func (h *Hints) Confine() {
	for i := range h.Proved {
		if !h.Allows(&h.Proved[i]) {
			h.Proved[i] = frame.Addr{}
		}
	}
}

// Confine drops the paths that lead to such addresses. They come back once the peer is heard elsewhere.
func (s *Set) Confine(now mono.Time) {
	for at, to := range s.places {
		if !s.Hints.Allows(&to) {
			delete(s.places, at)
		}
	}
	for i, p := range s.Tx {
		if p == nil || s.Hints.Allows(&p.To) {
			continue
		}
		s.Drop(now, i, "the peer may not be at "+p.To.String()+" any more")
		s.Seen[i] = 0
		p.direct(frame.Addr{})
	}
}
