package engine

import (
	"cmp"
	"slices"
)

// span is the half-open interval [lo, hi).
type span struct{ lo, hi uint64 }

// maxSpans bounds the memory that the holes of one set can take; a frame that would need more is left unreceived.
const maxSpans = 4096

// freeSpans is for how many spans a set has memory without being charged for it, and how many it may leave memory for;
// honest peers seldom make more.
const freeSpans = 8

// ranges is the set of bytes of one operation that are in place, or of numbers that came: sorted, disjoint, not
// touching. In order of arrival it is one span that grows; striping and loss make a few more.
type ranges struct{ spans []span }

func (r *ranges) reset() {
	if r.spans = r.spans[:0]; cap(r.spans) > freeSpans {
		r.spans = nil
	}
}

// charge is what the set costs of its session's held memory.
func (r *ranges) charge() int { return spanCost * max(0, cap(r.spans)-freeSpans) }

// covers reports whether every byte of [lo, hi) is in the set.
func (r *ranges) covers(lo, hi uint64) bool {
	i := r.find(lo)
	return lo == hi || i < len(r.spans) && r.spans[i].lo <= lo && hi <= r.spans[i].hi
}

// touches reports whether any byte of [lo, hi) is in the set.
func (r *ranges) touches(lo, hi uint64) bool {
	i := r.find(lo + 1)
	return i < len(r.spans) && r.spans[i].lo < hi
}

// joins reports whether adding [lo, hi) makes no further span: it fills a hole or lengthens what there is.
func (r *ranges) joins(lo, hi uint64) bool {
	i := r.find(lo)
	return i < len(r.spans) && r.spans[i].lo <= hi
}

// takes reports whether there is room for [lo, hi).
func (r *ranges) takes(lo, hi uint64) bool { return len(r.spans) < maxSpans || r.joins(lo, hi) }

// find returns the index of the first span that ends at or after lo.
func (r *ranges) find(lo uint64) int {
	n := len(r.spans)
	if n < 2 || r.spans[n-2].hi < lo { // in order, or nearly
		if n > 0 && r.spans[n-1].hi >= lo {
			return n - 1
		}
		return n
	}
	i, _ := slices.BinarySearchFunc(r.spans, lo, func(s span, lo uint64) int { return cmp.Compare(s.hi, lo) })
	return i
}

// add puts [lo, hi), lo < hi, into the set.
func (r *ranges) add(lo, hi uint64) {
	i := r.find(lo)
	if i == len(r.spans) {
		r.spans = append(r.spans, span{lo, hi})
		return
	}
	s := &r.spans[i]
	if hi < s.lo {
		r.spans = append(r.spans, span{})
		copy(r.spans[i+1:], r.spans[i:])
		r.spans[i] = span{lo, hi}
		return
	}
	s.lo, s.hi = min(s.lo, lo), max(s.hi, hi)
	j := i + 1
	for j < len(r.spans) && r.spans[j].lo <= s.hi {
		s.hi = max(s.hi, r.spans[j].hi)
		j++
	}
	if j > i+1 {
		r.spans = append(r.spans[:i+1], r.spans[j:]...)
		// what is charged no more shall not stay
		if n := len(r.spans); cap(r.spans) > freeSpans && n <= cap(r.spans)/4 {
			r.spans = append(make([]span, 0, max(2*n, freeSpans)), r.spans...)
		}
	}
}

// is reports whether the set is exactly [lo, hi).
func (r *ranges) is(lo, hi uint64) bool {
	if lo == hi {
		return len(r.spans) == 0
	}
	return len(r.spans) == 1 && r.spans[0] == span{lo, hi}
}

// alike reports whether the byte at lo is in the set, and up to where, hi at most, those behind it are alike.
func (r *ranges) alike(lo, hi uint64) (in bool, end uint64) {
	i := r.find(lo + 1)
	switch {
	case i == len(r.spans):
		return false, hi
	case r.spans[i].lo <= lo:
		return true, min(hi, r.spans[i].hi)
	}
	return false, min(hi, r.spans[i].lo)
}

// before returns how many bytes right before at are in the set.
func (r *ranges) before(at uint64) uint64 {
	if i := r.find(at); i < len(r.spans) && r.spans[i].lo < at {
		return at - r.spans[i].lo
	}
	return 0
}
