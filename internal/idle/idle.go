// Package idle is what daemon and clients know of waiting well on shared cores: how long to poll before sleeping,
// whether giving way between two looks is affordable, and when the runtime is to be given its turn. It reads no clock.
package idle

import (
	"time"

	"multiedge/internal/mono"
)

// Patience is how long one who waits polls before it sleeps. Work that comes soon after it fell asleep doubles it, up
// to mostPatience times Base: a wake-up costs more than such a wait. Work that takes longer to come makes it Base
// again. Linux's halt polling for virtual machines does the same.
type Patience struct {
	Base  time.Duration
	grown time.Duration // zero: Base
}

const mostPatience = 4

// Limit is for how long to poll now.
func (p *Patience) Limit() time.Duration { return max(p.Base, p.grown) }

// Most is the longest that Limit can be.
func (p *Patience) Most() time.Duration { return mostPatience * p.Base }

// Slept says that work ended a sleep of length d.
func (p *Patience) Slept(d time.Duration) {
	if most := p.Most(); d < most {
		p.grown = min(most, 2*p.Limit())
	} else {
		p.grown = 0
	}
}

// Contention tells by the length of yields whether somebody else needs the core: then yielding is too slow, and polling
// without it takes from others.
type Contention struct {
	until mono.Time
	pause time.Duration
}

const (
	slowYield  = 200 * time.Microsecond // a yield that took longer found a busy core
	leastPause = time.Millisecond       // without yields, after one slow yield: it may have been chance
	mostPause  = 128 * time.Millisecond // after many in a row
)

// Yielded says that a yield that ended now took so long.
func (c *Contention) Yielded(now mono.Time, took time.Duration) {
	if took <= slowYield {
		return
	}
	if now.Sub(c.until) < c.pause { // again, soon after the last pause
		c.pause = min(2*c.pause, mostPause)
	} else {
		c.pause = leastPause
	}
	c.until = now.Add(c.pause)
}

// At reports whether the core is taken to be contended at that time.
func (c *Contention) At(now mono.Time) bool { return now < c.until }

// Turn tells a thread that sleeps in system calls when to go through Go's scheduler. Of a goroutine that has not for 10
// ms the runtime takes the processor (its P) away whenever its monitor finds it in a system call; the monitor then
// looks every 20 us, and is woken by each return. That cost a client a third of its time.
type Turn struct{ last mono.Time }

// turnEach is how long a thread keeps its turn.
const turnEach = 5 * time.Millisecond

// Due reports whether the turn is over, and begins the next one if so.
func (t *Turn) Due(now mono.Time) bool {
	if now.Sub(t.last) < turnEach {
		return false
	}
	t.last = now
	return true
}
