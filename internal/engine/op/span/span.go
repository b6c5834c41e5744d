// Package span has sets of numbers as spans: bytes of an operation that are in place, operations that came.
package span

import (
	"cmp"
	"slices"
)

// Span is the half-open interval [lo, hi).
type Span struct{ Lo, Hi uint64 }

// maxSpans bounds the memory that the holes of one set can take; a frame that would need more is left unreceived.
const maxSpans = 4096

// Free is for how many spans a set has memory without being charged for it, and how many it may leave memory for;
// honest peers seldom make more.
const Free = 8

// Cost is what each span beyond those counts as, in bytes.
const Cost = 16

// Set is the set of bytes of one operation that are in place, or of numbers that came: sorted, disjoint, not
// touching. In order of arrival it is one span that grows; striping and loss make a few more.
type Set struct{ Spans []Span }

func (r *Set) Reset() {
	if r.Spans = r.Spans[:0]; cap(r.Spans) > Free {
		r.Spans = nil
	}
}

// Charge is what the set costs of its session's held memory.
func (r *Set) Charge() int { return Cost * max(0, cap(r.Spans)-Free) }

// Covers reports whether every byte of [lo, hi) is in the set.
func (r *Set) Covers(lo, hi uint64) bool {
	i := r.find(lo)
	return lo == hi || i < len(r.Spans) && r.Spans[i].Lo <= lo && hi <= r.Spans[i].Hi
}

// Touches reports whether any byte of [lo, hi) is in the set.
func (r *Set) Touches(lo, hi uint64) bool {
	i := r.find(lo + 1)
	return i < len(r.Spans) && r.Spans[i].Lo < hi
}

// Joins reports whether adding [lo, hi) makes no further span: it fills a hole or lengthens what there is.
func (r *Set) Joins(lo, hi uint64) bool {
	i := r.find(lo)
	return i < len(r.Spans) && r.Spans[i].Lo <= hi
}

// Takes reports whether there is room for [lo, hi).
func (r *Set) Takes(lo, hi uint64) bool { return len(r.Spans) < maxSpans || r.Joins(lo, hi) }

// find returns the index of the first span that ends at or after lo.
func (r *Set) find(lo uint64) int {
	n := len(r.Spans)
	if n < 2 || r.Spans[n-2].Hi < lo { // in order, or nearly
		if n > 0 && r.Spans[n-1].Hi >= lo {
			return n - 1
		}
		return n
	}
	i, _ := slices.BinarySearchFunc(r.Spans, lo, func(s Span, lo uint64) int { return cmp.Compare(s.Hi, lo) })
	return i
}

// Add puts [lo, hi), lo < hi, into the set.
func (r *Set) Add(lo, hi uint64) {
	i := r.find(lo)
	if i == len(r.Spans) {
		r.Spans = append(r.Spans, Span{lo, hi})
		return
	}
	s := &r.Spans[i]
	if hi < s.Lo {
		r.Spans = append(r.Spans, Span{})
		copy(r.Spans[i+1:], r.Spans[i:])
		r.Spans[i] = Span{lo, hi}
		return
	}
	s.Lo, s.Hi = min(s.Lo, lo), max(s.Hi, hi)
	j := i + 1
	for j < len(r.Spans) && r.Spans[j].Lo <= s.Hi {
		s.Hi = max(s.Hi, r.Spans[j].Hi)
		j++
	}
	if j > i+1 {
		r.Spans = append(r.Spans[:i+1], r.Spans[j:]...)
		// what is charged no more shall not stay
		if n := len(r.Spans); cap(r.Spans) > Free && n <= cap(r.Spans)/4 {
			r.Spans = append(make([]Span, 0, max(2*n, Free)), r.Spans...)
		}
	}
}

// Is reports whether the set is exactly [lo, hi).
func (r *Set) Is(lo, hi uint64) bool {
	if lo == hi {
		return len(r.Spans) == 0
	}
	return len(r.Spans) == 1 && r.Spans[0] == Span{lo, hi}
}

// Alike reports whether the byte at lo is in the set, and up to where, hi at most, those behind it are alike.
func (r *Set) Alike(lo, hi uint64) (in bool, end uint64) {
	i := r.find(lo + 1)
	switch {
	case i == len(r.Spans):
		return false, hi
	case r.Spans[i].Lo <= lo:
		return true, min(hi, r.Spans[i].Hi)
	}
	return false, min(hi, r.Spans[i].Lo)
}

// Before returns how many bytes right before at are in the set.
func (r *Set) Before(at uint64) uint64 {
	if i := r.find(at); i < len(r.Spans) && r.Spans[i].Lo < at {
		return at - r.Spans[i].Lo
	}
	return 0
}
