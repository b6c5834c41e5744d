package mono

import "time"

// Patience is how long one who waits polls before it sleeps. Work that comes soon after it fell asleep doubles it, up to mostPatience times Base: a
// wake-up costs more than such a wait. Work that takes longer to come makes it Base again. Linux's halt polling for virtual machines does the same.
type Patience struct {
	Base  time.Duration
	grown time.Duration // zero: Base
}

const mostPatience = 4

// Limit is for how long to poll now.
func (p *Patience) Limit() time.Duration { return max(p.Base, p.grown) }

// Slept says that work ended a sleep of length d.
func (p *Patience) Slept(d time.Duration) {
	if most := mostPatience * p.Base; d < most {
		p.grown = min(most, 2*p.Limit())
	} else {
		p.grown = 0
	}
}
