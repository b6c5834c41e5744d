package sim

import (
	"time"

	"multiedge/internal/engine"
	"multiedge/internal/mono"
	"multiedge/regmem"
)

// Misses says how memory comes and goes: in the worlds that have it each area has pages, which are absent at first,
// come a while after they are asked for, and go again later. Some never come.
type Misses struct {
	Delay time.Duration // until a page comes, at most; 0: all memory is always there
	Life  time.Duration // until it goes again, at most; at least half as long
	Stuck int           // one of so many pages never comes; 0: none
	Drop  bool          // frames that find no memory are left unreceived
}

// pages is the backing of an area.
type pages struct {
	w    *World
	area *area
	page []page
	bits int
}

type page struct {
	until mono.Time // resident until then
	asked bool
	stuck bool
}

func newPages(w *World, a *area, stuck bool) *pages {
	p := &pages{w: w, area: a, bits: 10 + w.memory.IntN(4)}
	p.page = make([]page, a.size>>p.bits+1)
	for i := range p.page {
		p.page[i].stuck = stuck && w.opt.Misses.Stuck > 0 && w.memory.IntN(w.opt.Misses.Stuck) == 0
	}
	return p
}

// Touch implements regmem.Backing.
func (p *pages) Touch(off, n, follows uint64, _ regmem.Site) (missing uint64, ok bool) {
	if off+n+follows > uint64(p.area.size) {
		p.w.fault("%s: bytes %d to %d were touched, of %d", p.area.name, off, off+n+follows, p.area.size)
		return 0, true
	}
	ok = true
	for i := off >> p.bits; i<<p.bits < off+n+follows; i++ {
		if p.page[i].until > p.w.Now {
			continue
		}
		p.ask(i)
		if ok && n > 0 && i<<p.bits < off+n {
			missing, ok = i, false
		}
	}
	if !ok {
		p.w.Tally.Missed++
	}
	return missing, ok
}

// Ask implements regmem.Backing.
func (p *pages) Ask(i uint64) (resident, busy bool) {
	p.ask(i)
	return p.page[i].until > p.w.Now, false
}

func (p *pages) ask(i uint64) {
	at := &p.page[i]
	if at.asked || at.stuck {
		return
	}
	at.asked = true
	n, m := p.area.node, p.w.opt.Misses
	e := n.E
	p.w.After(1+time.Duration(p.w.memory.Int64N(int64(m.Delay))), func() {
		at.asked, at.until = false, p.w.Now.Add(m.Life/2+time.Duration(p.w.memory.Int64N(int64(m.Life/2))))
		if !n.Down && n.E == e {
			e.Resident(p.w.Now, regmem.Wait{Back: p, Page: i})
		}
	})
}

// stuck reports whether a page that never comes has a byte of the slot.
func (s *slot) stuck() bool {
	if s == nil || s.area.pages == nil {
		return false
	}
	return s.area.pages.anyStuck(s.off, s.n)
}

func (p *pages) anyStuck(off, n int) bool {
	for i := off >> p.bits; i<<p.bits < off+n; i++ {
		if p.page[i].stuck {
			return true
		}
	}
	return false
}

// memoryFailed says whether an operation may end with StatusMemory.
func (o *operation) memoryFailed(st engine.Status) bool {
	return st == engine.StatusMemory && (o.near.stuck() || o.far.stuck() || o.bad)
}
