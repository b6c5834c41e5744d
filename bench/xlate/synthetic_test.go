package xlate

import (
	"slices"
	"strings"
	"testing"
)

// Cyclic patterns use everything once before any comes again, so that more than a budget always misses; uniform
// ones use all alike; of Zipf's, the first ranks have most uses. The same seed gives the same order.
func TestPatterns(t *testing.T) {
	const n = 64
	uses := func(name string, rounds int) (count [n]int, first []int) {
		next, err := Pattern(name, n, 7)
		must(t, err)
		again, err := Pattern(name, n, 7)
		must(t, err)
		for i := range rounds * n {
			b := next()
			if b != again() {
				t.Fatalf("%s: the same seed gives another order", name)
			}
			if count[b]++; i < n {
				first = append(first, b)
			}
		}
		return count, first
	}
	for _, name := range []string{Cyclic, Permuted} {
		count, first := uses(name, 5)
		if slices.Min(count[:]) != 5 || slices.Max(count[:]) != 5 {
			t.Errorf("%s: things are used %v times", name, count)
		}
		if inOrder := slices.IsSorted(first); inOrder != (name == Cyclic) {
			t.Errorf("%s: in the order of addresses: %v", name, inOrder)
		}
	}
	if count, _ := uses(Uniform, 1000); slices.Min(count[:]) < 800 || slices.Max(count[:]) > 1200 {
		t.Errorf("uniform: things are used %v times", count)
	}
	count, _ := uses(Zipf, 1000)
	slices.Sort(count[:])
	if most := sum(count[n-n/4:]); most < n*1000/2 || count[0] == 0 {
		t.Errorf("zipf: the most used quarter is used %d times of %d, the least %d", most, n*1000, count[0])
	}
	one, err := Pattern(Zipf, 1, 1)
	must(t, err)
	if one() != 0 {
		t.Error("zipf: of one thing another is used")
	}
	if _, err := Pattern("sideways", n, 1); err == nil || !strings.Contains(err.Error(), Permuted) {
		t.Errorf("an unknown pattern: %v", err)
	}
}

func sum(v []int) (n int) {
	for _, x := range v {
		n += x
	}
	return n
}
