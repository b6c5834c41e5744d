package span

import (
	"math/rand/v2"
	"testing"
)

// model is a set of small numbers, one by one.
type model [64]bool

func (m *model) all(lo, hi uint64, in bool) bool {
	for i := lo; i < hi; i++ {
		if m[i] != in {
			return false
		}
	}
	return true
}

// spans counts the runs of members.
func (m *model) spans() (n int) {
	for i, in := range m {
		if in && (i == 0 || !m[i-1]) {
			n++
		}
	}
	return n
}

// Whatever is added in whatever order, a Set says what a list of its members says.
func TestSetIsASet(t *testing.T) {
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 1))
		var s Set
		var m model
		draw := func() (lo, hi uint64) {
			lo = rng.Uint64N(60)
			return lo, lo + 1 + rng.Uint64N(4)
		}
		for range 40 {
			lo, hi := draw()
			before, joins := m.spans(), s.Joins(lo, hi)
			s.Add(lo, hi)
			for i := lo; i < hi; i++ {
				m[i] = true
			}
			if more := m.spans() > before; more == joins || len(s.Spans) != m.spans() {
				t.Fatalf("seed %d: adding [%d, %d): %v, %d spans after %d, joins %v", seed, lo, hi, s.Spans, m.spans(),
					before, joins)
			}
			lo, hi = draw()
			if s.Covers(lo, hi) != m.all(lo, hi, true) || s.Touches(lo, hi) == m.all(lo, hi, false) {
				t.Fatalf("seed %d: %v, [%d, %d): covers %v, touches %v", seed, s.Spans, lo, hi, s.Covers(lo, hi),
					s.Touches(lo, hi))
			}
			if in, end := s.Alike(lo, hi); in != m[lo] || !m.all(lo, end, in) || end < hi && m[end] == in {
				t.Fatalf("seed %d: %v, from %d up to %d: %v up to %d", seed, s.Spans, lo, hi, in, end)
			}
			if n := s.Before(hi); !m.all(hi-n, hi, true) || n < hi && m[hi-n-1] {
				t.Fatalf("seed %d: %v, %d before %d", seed, s.Spans, n, hi)
			}
		}
	}
}

// A set that is charged for memory gives it back.
func TestChargeEnds(t *testing.T) {
	var s Set
	for i := range uint64(4 * Free) {
		s.Add(2*i, 2*i+1)
	}
	if s.Charge() < 3*Free*Cost {
		t.Errorf("%d spans are charged %d bytes", len(s.Spans), s.Charge())
	}
	s.Add(0, 8*Free)
	if !s.Is(0, 8*Free) || s.Charge() != 0 {
		t.Errorf("%v is charged %d bytes", s.Spans, s.Charge())
	}
	if s.Reset(); !s.Is(0, 0) {
		t.Errorf("not empty: %v", s.Spans)
	}
}
