package engine_test

import (
	"fmt"
	"math/rand/v2"
	"sort"
	"strings"
	"testing"
	"time"

	"multiedge/internal/engine"
	"multiedge/internal/wire"
)

// permutations returns all orders of 0..n-1, lexically.
func permutations(n int) (all [][]int) {
	var rec func(head, left []int)
	rec = func(head, left []int) {
		if len(left) == 0 {
			all = append(all, append([]int(nil), head...))
		}
		for i, v := range left {
			rest := append(append([]int(nil), left[:i]...), left[i+1:]...)
			rec(append(head, v), rest)
		}
	}
	var ids []int
	for i := range n {
		ids = append(ids, i)
	}
	rec(nil, ids)
	return all
}

// mustPrecede says whether operation i must be applied before any byte of j is placed: clauses 6.5 and 6.6, 5.3 for
// ordered connections.
func mustPrecede(flags []engine.OpFlags, ordered bool, i, j int) bool {
	return i < j && (ordered || flags[j]&engine.BackwardFence != 0 || flags[i]&engine.ForwardFence != 0)
}

// allows reports whether an order of application obeys the fences.
func allows(flags []engine.OpFlags, ordered bool, order []int) bool {
	for at, j := range order {
		for _, i := range order[at+1:] {
			if mustPrecede(flags, ordered, i, j) {
				return false
			}
		}
	}
	return true
}

// flagSets returns every combination of fences of n operations.
func flagSets(n int) (all [][]engine.OpFlags) {
	for v := range 1 << (2 * n) {
		flags := make([]engine.OpFlags, n)
		for i := range flags {
			flags[i] = engine.OpFlags(v>>(2*i)) & (engine.BackwardFence | engine.ForwardFence)
		}
		all = append(all, flags)
	}
	return all
}

func names(flags []engine.OpFlags) string {
	var b strings.Builder
	for _, f := range flags {
		b.WriteString([]string{"-", "B", "F", "BF"}[f&3] + " ")
	}
	return b.String()
}

// fencer submits groups of writes whose frames it delivers in any order.
type fencer struct {
	*rig
	c     [2]engine.ConnID
	mem   []byte
	op    engine.Op // Key
	size  int
	token uint64
	fill  byte
}

func newFencer(t testing.TB, o engine.DialOptions, ops, size int) *fencer {
	f := &fencer{rig: newRig(t, rigOptions{}), size: size}
	f.c = f.connect(o)
	f.mem, f.op.Key = f.export(1, f.c[1], ops*size, both)
	f.settle()
	return f
}

// submitAll submits one write per entry of flags and returns the frames of each, none of them delivered.
func (f *fencer) submitAll(flags []engine.OpFlags) (frames [][]flight) {
	f.fill++
	for i, fl := range flags {
		op := f.op
		op.Kind, op.Flags, op.Imm, op.Token = engine.OpWrite, fl|engine.Notify, uint32(i), f.token
		f.token++
		op.Off, op.Local = uint64(i*f.size), make([]byte, f.size)
		for k := range op.Local {
			op.Local[k] = f.fill
		}
		f.submit(0, f.c[0], op)
		var own []flight
		for _, fr := range f.take(0) {
			if carries(fr.b, wire.KindWrite) {
				own = append(own, fr)
			} else {
				f.give(1, fr) // a probe, a hello, an acknowledgement of what was before
			}
		}
		frames = append(frames, own)
	}
	return frames
}

// check looks at memory after each frame: whatever has a byte in place must have been allowed to, and whatever arrived
// whole (missing counts the frames that each operation still lacks) waits for nothing but what its fences demand.
func (f *fencer) check(flags []engine.OpFlags, ordered bool, missing []int) error {
	touched, whole := make([]bool, len(flags)), make([]bool, len(flags))
	for i := range flags {
		n := 0
		for _, v := range f.mem[i*f.size : (i+1)*f.size] {
			if v == f.fill {
				n++
			}
		}
		touched[i], whole[i] = n > 0, n == f.size
	}
	for j := range flags {
		for i := range j {
			if touched[j] && !whole[i] && mustPrecede(flags, ordered, i, j) {
				return fmt.Errorf("bytes of operation %d are in place and operation %d is not applied", j, i)
			}
		}
		free := missing[j] == 0
		for i := range j {
			free = free && (whole[i] || !mustPrecede(flags, ordered, i, j))
		}
		if free && !whole[j] {
			return fmt.Errorf("operation %d has arrived, no fence forbids it and it is not applied", j)
		}
	}
	return nil
}

// deliver gives frames of all operations to node 1 in the order of arrival (frame k is part k%frags of operation
// k/frags) and returns the order of application. Then everything is completed.
func (f *fencer) deliver(own [][]flight, arrival []int, flags []engine.OpFlags, ordered bool) (order []int, err error) {
	b := f.n[1]
	b.notes = b.notes[:0]
	frags := len(arrival) / len(flags)
	missing := make([]int, len(flags))
	for i := range missing {
		if missing[i] = frags; len(own[i]) != frags {
			return nil, fmt.Errorf("operation %d took %d frames, want %d", i, len(own[i]), frags)
		}
	}
	for _, k := range arrival {
		f.give(1, own[k/frags][k%frags])
		missing[k/frags]--
		if e := f.check(flags, ordered, missing); e != nil && err == nil {
			err = e
		}
	}
	b.takeNotes(f.c[1])
	for _, n := range b.notes {
		order = append(order, int(n.Imm))
	}
	if !f.until(time.Second, f.all(0, int(f.token))) {
		return order, fmt.Errorf("%d of %d operations completed within a second", len(f.n[0].done), f.token)
	}
	b.takeNotes(f.c[1])
	if len(b.notes) != len(flags) && err == nil {
		err = fmt.Errorf("%d notifications of %d operations", len(b.notes), len(flags))
	}
	f.n[0].events, b.events = nil, nil
	return order, err
}

// Clauses 6.5 to 6.7, exhaustively: of three and four writes, one frame each, under every combination of fences and
// every order of arrival, the order of application obeys the fences; and over all orders of arrival it takes every
// order that the fences leave free.
func TestFencesExhaustive(t *testing.T) {
	for _, ops := range []int{3, 4} {
		for _, how := range []engine.DialOptions{anyOrder, inOrder, overlaps} {
			t.Run(fmt.Sprintf("ops=%d,ordered=%v,overlap=%v", ops, how.Ordered, how.Overlap), func(t *testing.T) {
				t.Parallel()
				const size = 40
				f, ordered := newFencer(t, how, ops, size), how.Ordered
				perms := permutations(ops)
				for _, flags := range flagSets(ops) {
					seen := map[string]bool{}
					for _, arrival := range perms {
						order, err := f.deliver(f.submitAll(flags), arrival, flags, ordered)
						if err != nil || len(order) != ops || !allows(flags, ordered, order) {
							t.Fatalf("fences %s arrival %v: applied %v: %v", names(flags), arrival, order, err)
						}
						seen[fmt.Sprint(order)] = true
					}
					var want, got []string
					for _, p := range perms {
						if allows(flags, ordered, p) {
							want = append(want, fmt.Sprint(p))
						}
					}
					for o := range seen {
						got = append(got, o)
					}
					sort.Strings(got)
					if fmt.Sprint(got) != fmt.Sprint(want) {
						t.Fatalf("fences %s allow the orders %v, seen were %v", names(flags), want, got)
					}
				}
				if held := f.n[1].e.HeldMemory(); held != 0 {
					t.Errorf("%d bytes of held segments are still accounted for", held)
				}
			})
		}
	}
}

// The same with operations of several frames: two of three frames each in every arrival, three of two frames each in
// arrivals drawn by seed.
func TestFencesFragments(t *testing.T) {
	for _, c := range []struct {
		ops, frags, runs int // runs 0: all
	}{{2, 3, 0}, {3, 2, 40}} {
		for _, how := range []engine.DialOptions{anyOrder, inOrder, overlaps} {
			name := fmt.Sprintf("ops=%d,frames=%d,ordered=%v,overlap=%v", c.ops, c.frags, how.Ordered, how.Overlap)
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				f, ordered := newFencer(t, how, c.ops, 1100*c.frags+600), how.Ordered
				perms := permutations(c.ops * c.frags)
				for v, flags := range flagSets(c.ops) {
					rng := rand.New(rand.NewPCG(uint64(v), 5))
					runs := len(perms)
					if c.runs > 0 {
						runs = c.runs
					} else if ordered || testing.Short() {
						runs = 120
					}
					for k := range runs {
						arrival := perms[k]
						if runs < len(perms) {
							arrival = perms[rng.IntN(len(perms))]
						}
						order, err := f.deliver(f.submitAll(flags), arrival, flags, ordered)
						if err != nil || len(order) != c.ops || !allows(flags, ordered, order) {
							t.Fatalf("fences %s arrival %v (frame = operation*%d + part): applied %v: %v", names(flags),
								arrival, c.frags, order, err)
						}
					}
				}
			})
		}
	}
}
