package flowctl

import (
	"slices"
	"testing"

	"multiedge/internal/mono"

	"pgregory.net/rapid"
)

func TestTrackerTable(t *testing.T) {
	for _, c := range []struct {
		name    string
		arrive  []uint64
		gaps    int
		floor   uint64
		missing int
		check   map[uint64]Verdict
	}{
		{"nothing", nil, 0, 0, 0, map[uint64]Verdict{0: New, 1 << 40: New, MaxPN: New, MaxPN + 1: TooOld,
			1<<64 - 2: TooOld, 1<<64 - 1: TooOld}},
		{"in order", []uint64{0, 1, 2}, 0, 3, 0, map[uint64]Verdict{0: Duplicate, 2: Duplicate, 3: New}},
		{"first is not zero", []uint64{2}, 1, 0, 2, map[uint64]Verdict{0: New, 2: Duplicate}},
		{"hole filled", []uint64{0, 2, 1}, 1, 3, 0, map[uint64]Verdict{1: Duplicate}},
		{"hole open", []uint64{0, 2, 3}, 1, 1, 1, map[uint64]Verdict{1: New}},
		{"window slides over a hole", []uint64{0, 2, WindowBits + 1}, 2, 3, WindowBits - 2,
			map[uint64]Verdict{0: TooOld, 1: TooOld, 2: Duplicate, 3: New}},
		{"jump beyond the window", []uint64{0, 5 * WindowBits}, 1, 4*WindowBits + 1, WindowBits - 1,
			map[uint64]Verdict{0: TooOld, 4 * WindowBits: TooOld, 4*WindowBits + 1: New}},
		{"the last number", []uint64{0, MaxPN}, 1, MaxPN + 1 - WindowBits, WindowBits - 1,
			map[uint64]Verdict{MaxPN - 1: New, MaxPN: Duplicate, MaxPN + 1: TooOld}},
	} {
		var tr Tracker
		gaps := 0
		for i, pn := range c.arrive {
			if v := tr.Check(pn); v != New {
				t.Fatalf("%s: Check(%d) = %v", c.name, pn, v)
			}
			if gap, _ := tr.Commit(pn, 7); gap {
				gaps++
			}
			if largest, at, ok := tr.Largest(); !ok || at != 7 || i == len(c.arrive)-1 && c.gaps == 0 && largest != pn {
				t.Errorf("%s: Largest = %d, %d, %v", c.name, largest, at, ok)
			}
		}
		if gaps != c.gaps || tr.Floor() != c.floor || tr.Missing() != c.missing {
			t.Errorf("%s: gaps %d floor %d missing %d, want %d %d %d", c.name, gaps, tr.Floor(), tr.Missing(), c.gaps,
				c.floor, c.missing)
		}
		if floor, words := tr.AckBits(nil, 2); tr.next > 0 && !(&Block{Largest: tr.next - 1, Floor: floor,
			Bits: words}).Acked(tr.next-1) {
			t.Errorf("%s: AckBits = %d, %x does not acknowledge the largest", c.name, floor, words)
		}
		for pn, want := range c.check {
			if got := tr.Check(pn); got != want {
				t.Errorf("%s: Check(%d) = %v, want %v", c.name, pn, got, want)
			}
		}
	}
}

// naiveTracker is Tracker's specification.
type naiveTracker struct {
	seen map[uint64]bool
	next uint64
}

func (n *naiveTracker) low() uint64 { return n.next - min(n.next, WindowBits) }

func (n *naiveTracker) check(pn uint64) Verdict {
	switch {
	case pn < n.low():
		return TooOld
	case n.seen[pn]:
		return Duplicate
	}
	return New
}

func (n *naiveTracker) floor() uint64 {
	f := n.low()
	for n.seen[f] {
		f++
	}
	return f
}

func (n *naiveTracker) missing() (holes int) {
	for pn := n.floor(); pn < n.next; pn++ {
		if !n.seen[pn] {
			holes++
		}
	}
	return holes
}

// drawPN draws a number near the edges that matter: just above, in the window, around its lower edge, far above.
func drawPN(t *rapid.T, next uint64) uint64 {
	switch rapid.IntRange(0, 9).Draw(t, "kind") {
	case 0:
		return next + rapid.Uint64Range(0, 300).Draw(t, "above")
	case 1:
		return next - min(next, rapid.Uint64Range(WindowBits-70, WindowBits+70).Draw(t, "edge"))
	case 2:
		return next - min(next, rapid.Uint64Range(0, WindowBits).Draw(t, "within"))
	case 3:
		return next + rapid.Uint64Range(0, 3*WindowBits).Draw(t, "far")
	case 4, 5:
		return next - min(next, rapid.Uint64Range(0, 130).Draw(t, "below"))
	}
	return next
}

func TestTrackerAgainstMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var tr Tracker
		model := naiveTracker{seen: map[uint64]bool{}}
		revealed := uint64(0) // every hole below it
		for range rapid.IntRange(1, 15).Draw(t, "steps") {
			pn := drawPN(t, model.next)
			for range rapid.IntRange(1, 90).Draw(t, "run") {
				want := model.check(pn)
				if got := tr.Check(pn); got != want {
					t.Fatalf("Check(%d) = %v, want %v (next %d)", pn, got, want, model.next)
				}
				if want == New {
					gap, reordered := tr.Commit(pn, 1)
					if gap != (pn > model.next) || reordered != (pn < model.next) {
						t.Fatalf("Commit(%d) = %v, %v with next %d", pn, gap, reordered, model.next)
					}
					model.seen[pn] = true
					model.next = max(model.next, pn+1)
				}
				compareHole(t, &tr, &model, revealed)
				pn++
			}
			revealed = model.next
			compareTracker(t, &tr, &model, rapid.IntRange(0, 300).Draw(t, "words"))
		}
	})
}

// compareHole compares the hole that is not revealed, and what a block below it says.
func compareHole(t *rapid.T, tr *Tracker, model *naiveTracker, revealed uint64) {
	want := revealed
	for want < model.next && model.seen[want] {
		want++
	}
	first, _, open := tr.Hole()
	if model.next-want >= WindowBits {
		return // the window has slid over it
	}
	if open != (want < model.next) || open && first != want {
		t.Fatalf("Hole = %d, %v; want %d below %d", first, open, want, model.next)
	}
	if !open || first == 0 {
		return
	}
	floor, words := tr.AckBitsBelow(nil, 4)
	b := Block{Largest: first - 1, Floor: floor, Bits: words}
	for pn := max(model.low(), floor); pn < first+70; pn++ {
		if got := b.Acked(pn); got != (pn < first && model.seen[pn]) {
			t.Fatalf("a block below the hole %d: Acked(%d) = %v", first, pn, got)
		}
	}
}

func compareTracker(t *rapid.T, tr *Tracker, model *naiveTracker, maxWords int) {
	if got, want := tr.Floor(), model.floor(); got != want {
		t.Fatalf("Floor = %d, want %d", got, want)
	}
	if got, want := tr.Missing(), model.missing(); got != want {
		t.Fatalf("Missing = %d, want %d", got, want)
	}
	floor, words := tr.AckBits(nil, maxWords)
	if len(words) > max(maxWords, 1) {
		t.Fatalf("%d words, at most %d allowed", len(words), maxWords)
	}
	raised := floor != tr.Floor()
	if raised && int(model.next-floor) <= (max(maxWords, 1)-1)*64 && words[0]&1 == 0 {
		t.Fatalf("floor %d raised without need or mark", floor)
	}
	b := Block{Largest: model.next - 1, Floor: floor, Bits: words}
	for pn := model.low(); pn < model.next+70; pn++ {
		want := model.seen[pn] && !(raised && pn < floor) || pn < model.floor() && !raised
		if got := b.Acked(pn); got != want {
			t.Fatalf("Acked(%d) = %v, want %v; floor %d raised %v", pn, got, want, floor, raised)
		}
	}
}

// A run is what its numbers one by one are, whatever came before.
func TestCommitRun(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var one, run Tracker
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			largest, _, any := one.Largest()
			pn, now := largest+1, mono.Time(rapid.Int64Range(1, 1000).Draw(t, "now"))
			if !any {
				pn = 0
			}
			n := rapid.SampledFrom([]int{1, 2, 32, 63, 64, 65, 130}).Draw(t, "n")
			if rapid.Bool().Draw(t, "run") {
				for k := range n {
					if gap, reordered := one.Commit(pn+uint64(k), now); gap || reordered {
						t.Fatalf("%d of a run from %d: gap %v, reordered %v", k, pn, gap, reordered)
					}
				}
				run.CommitRun(pn, n, now)
			} else if pn += rapid.Uint64Range(0, 1<<15).Draw(t, "jump"); pn > 100 && rapid.Bool().Draw(t, "back") {
				if pn -= 90; one.Check(pn) != New {
					continue
				}
				one.Commit(pn, now)
				run.Commit(pn, now)
			} else {
				one.Commit(pn, now)
				run.Commit(pn, now)
			}
			a, x := one.AckBits(nil, 1<<10)
			b, y := run.AckBits(nil, 1<<10)
			if one.next != run.next || one.floor != run.floor || one.missing != run.missing || one.at != run.at ||
				a != b || !slices.Equal(x, y) {
				t.Fatalf("next %d %d, floor %d %d, missing %d %d", one.next, run.next, one.floor, run.floor,
					one.missing, run.missing)
			}
		}
	})
}
