package shard

import (
	"multiedge/internal/mono"
	"multiedge/regmem"
)

// Look is told of memory that operations use, and whose it is.
type Look func(pid int32, r *regmem.Region, off, n uint64, site regmem.Site)

// owners remembers which process a region is of, while lookups are traced.
type owners map[*regmem.Region]int32

// mostOwners bounds owners, which begins anew when it is full.
const mostOwners = 1 << 12

// SetLook has f be told from now on; nil: nobody. It runs by Do.
func (s *Shard) SetLook(_ mono.Time, f Look) {
	if f == nil {
		s.eng.Observe(nil)
		return
	}
	of := owners{}
	s.eng.Observe(func(r *regmem.Region, off, n uint64, site regmem.Site) {
		f(of.find(s, r), r, off, n, site)
	})
}

// find returns the process that registered a region.
func (o owners) find(s *Shard, r *regmem.Region) int32 {
	pid, known := o[r]
	if known {
		return pid
	}
	if len(o) == mostOwners {
		clear(o)
	}
	for _, c := range s.clients.list {
		if c != nil && c.regions.any(r.ID) == r {
			pid = c.label.PID
		}
	}
	o[r] = pid
	return pid
}
