package remap

// extent is a run of the region being received into the pool.
type extent struct {
	op    Op
	space *Space
	at, n int     // of the region
	slot  int     // where in the pool
	base  uintptr // of the region's bytes
	round uint64  // the latest in which a place in it was given out
	spans [maxSpans]stretch
	parts int // of spans, that are used
	size  int // bytes in them
	clean int // payloads that needed no copy
}

// stretch is the half-open interval [lo, hi) of an extent that was received.
type stretch struct{ lo, hi int }

const (
	maxSpans = 16   // holes of an extent that can be kept track of; with more it is settled
	stale    = 4096 // rounds after which an extent gives way to another
)

// bytes is the extent's part of the pool.
func (x *extent) bytes() []byte { return x.space.pool[x.slot : x.slot+x.n] }

// place is the extent's part of the region.
func (x *extent) place() []byte { return x.space.view[x.at : x.at+x.n] }

// add notes that [lo, hi) was received. It reports false, and nothing has happened, when there is no room for another
// hole.
func (x *extent) add(lo, hi int) bool {
	s := x.spans[:x.parts]
	i := 0
	for i < len(s) && s[i].hi < lo {
		i++
	}
	j := i
	for j < len(s) && s[j].lo <= hi {
		lo, hi = min(lo, s[j].lo), max(hi, s[j].hi)
		x.size -= s[j].hi - s[j].lo
		j++
	}
	if i == j {
		if x.parts == maxSpans {
			return false
		}
		copy(x.spans[i+1:x.parts+1], x.spans[i:x.parts])
		x.parts++
	} else {
		copy(x.spans[i+1:], x.spans[j:x.parts])
		x.parts -= j - i - 1
	}
	x.spans[i] = stretch{lo, hi}
	x.size += hi - lo
	return true
}
