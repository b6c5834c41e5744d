package dsm_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"multiedge/edge"
	"multiedge/edge/dsm"
	"multiedge/edge/fabric"
)

var quiet = edge.Config{Log: slog.New(slog.DiscardHandler)}

// together runs f as all ranks of a run, each on a device of its own, and returns how Run ended at each.
func together(t *testing.T, c dsm.Config, ranks int, f func(*dsm.Memory) error) []error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	fab := fabric.New()
	defer fab.Close()
	errs := make([]error, ranks)
	var wg sync.WaitGroup
	for rank := range ranks {
		c := c
		d, err := fab.OpenConfig(ctx, fmt.Sprintf("n%d", rank), quiet)
		if err != nil {
			t.Fatal(err)
		}
		c.Name, c.Rank, c.Ranks, c.Root, c.Device = "test", rank, ranks, "n0", d
		wg.Go(func() { errs[rank] = dsm.Run(ctx, c, f) })
	}
	wg.Wait()
	return errs
}

// sum adds up an array in parts: what doc.go shows.
func sum(m *dsm.Memory) error {
	a := dsm.Alloc[float64](m, 3000, dsm.Blocks)
	total := dsm.Alloc[float64](m, 1, dsm.At(0))
	lo, hi := m.Share(a.Len())
	w := a.Write(lo, hi)
	for i := range w {
		w[i] = float64(lo + i)
	}
	m.Barrier()
	s := 0.0
	for _, v := range a.Read((lo+1500)%3000, (lo+1500)%3000+1) {
		s += v
	}
	for _, v := range a.Read(lo, hi) {
		s += v
	}
	m.Lock(0)
	total.Write(0, 1)[0] += s
	m.Unlock(0)
	m.Barrier()
	want := 3000.0 * 2999 / 2
	for r := range m.Ranks() {
		l, _ := m.ShareOf(r, 3000)
		want += float64((l + 1500) % 3000)
	}
	if got := total.At(0); got != want {
		return fmt.Errorf("rank %d: %v, want %v", m.Rank(), got, want)
	}
	return nil
}

// The whole transport below, for one rank and several, with and without checks.
func TestRun(t *testing.T) {
	for _, c := range []struct {
		ranks   int
		checked bool
	}{{1, false}, {2, false}, {4, false}, {3, true}} {
		for rank, err := range together(t, dsm.Config{Checked: c.checked, Size: 1 << 20}, c.ranks, sum) {
			if err != nil {
				t.Errorf("%+v, rank %d: %v", c, rank, err)
			}
		}
	}
}

// Config.Observe is told the counts at each barrier and at the end; of a run of one rank, at the end.
func TestObserve(t *testing.T) {
	for ranks, calls := range map[int]int{1: 1, 3: 3} { // sum has two barriers
		var mu sync.Mutex
		var seen []dsm.Stats
		c := dsm.Config{Size: 1 << 20, Observe: func(s dsm.Stats) {
			mu.Lock()
			defer mu.Unlock()
			seen = append(seen, s)
		}}
		for rank, err := range together(t, c, ranks, sum) {
			if err != nil {
				t.Errorf("rank %d: %v", rank, err)
			}
		}
		if len(seen) != ranks*calls {
			t.Fatalf("%d ranks: told %d times, want %d", ranks, len(seen), ranks*calls)
		}
		if last := seen[len(seen)-1]; ranks > 1 && (last.Barriers != calls || last.Operations == 0) || last.Total == 0 {
			t.Errorf("%d ranks: %+v", ranks, last)
		}
	}
}

// Several ranks may be on one node.
func TestRanksOfOneNode(t *testing.T) {
	fab := fabric.New()
	defer fab.Close()
	d, err := fab.OpenConfig(t.Context(), "n0", quiet)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for rank := range 3 {
		wg.Go(func() {
			c := dsm.Config{Name: "one", Rank: rank, Ranks: 3, Root: "n0", Device: d, Size: 1 << 20}
			if err := dsm.Run(t.Context(), c, sum); err != nil {
				t.Errorf("rank %d: %v", rank, err)
			}
		})
	}
	wg.Wait()
}

// When the function of a rank fails, all others end with its words.
func TestFailureIsToldToAll(t *testing.T) {
	own := errors.New("no more bananas")
	errs := together(t, dsm.Config{Size: 1 << 16}, 3, func(m *dsm.Memory) error {
		m.Barrier()
		if m.Rank() == 1 {
			return own
		}
		m.Barrier()
		return nil
	})
	for rank, err := range errs {
		switch {
		case rank == 1 && err != own:
			t.Errorf("rank 1: %v", err)
		case rank != 1 && !(errors.Is(err, dsm.ErrRank) && strings.Contains(err.Error(), "rank 1 on n1 failed: no")):
			t.Errorf("rank %d: %v", rank, err)
		}
	}
}

// A rank whose transport dies is lost for all others, whatever they wait for.
func TestRankIsLost(t *testing.T) {
	for name, wait := range map[string]func(m *dsm.Memory){
		"barrier": func(m *dsm.Memory) { m.Barrier() },
		"lock":    func(m *dsm.Memory) { m.Lock(5) },
		"fetch": func(m *dsm.Memory) {
			a := dsm.Alloc[byte](m, 1<<15, dsm.At(1))
			for {
				a.Set(0, a.At(0)+1)
				m.Lock(m.Rank())
				m.Unlock(m.Rank())
			}
		},
	} {
		t.Run(name, func(t *testing.T) { lose(t, wait) })
	}
}

// lose runs three ranks of which rank 1 disappears while the others wait.
func lose(t *testing.T, wait func(m *dsm.Memory)) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	fab := fabric.New()
	defer fab.Close()
	var devs []*edge.Device
	for rank := range 3 {
		d, err := fab.OpenConfig(ctx, fmt.Sprintf("n%d", rank), quiet)
		if err != nil {
			t.Fatal(err)
		}
		devs = append(devs, d)
	}
	errs := make([]error, 3)
	var wg sync.WaitGroup
	for rank, d := range devs {
		c := dsm.Config{Name: "test", Rank: rank, Ranks: 3, Root: "n0", Device: d, Size: 1 << 16}
		wg.Go(func() {
			errs[rank] = dsm.Run(ctx, c, func(m *dsm.Memory) error {
				if rank == 1 {
					m.Lock(5)
				}
				m.Barrier()
				if rank == 1 {
					d.Close()
					return errors.New("gone")
				}
				wait(m)
				return nil
			})
		})
	}
	wg.Wait()
	for _, rank := range []int{0, 2} {
		if err := errs[rank]; !errors.Is(err, dsm.ErrRank) || !strings.Contains(err.Error(), "rank 1") {
			t.Errorf("rank %d: %v", rank, err)
		}
	}
}

// Mistakes of a program end the run with an error that says what to do.
func TestMistakes(t *testing.T) {
	for want, f := range map[string]func(m *dsm.Memory) error{
		"this rank has the lock": func(m *dsm.Memory) error { m.Lock(1); m.Lock(1); return nil },
		"does not have the lock": func(m *dsm.Memory) error { m.Unlock(1); return nil },
		"unlock it first":        func(m *dsm.Memory) error { m.Lock(m.Rank()); return nil },
		"lock 5000":              func(m *dsm.Memory) error { m.Lock(5000); return nil },
		"is an address":          func(m *dsm.Memory) error { dsm.Alloc[[2][]int](m, 1, dsm.Turns); return nil },
		"set Config.Size":        func(m *dsm.Memory) error { dsm.Alloc[int](m, 1<<30, dsm.Turns); return nil },
		"elements 3 to 11": func(m *dsm.Memory) error {
			dsm.Alloc[int](m, 10, dsm.Turns).Read(3, 11)
			return nil
		},
		"different calls": func(m *dsm.Memory) error {
			dsm.Alloc[int](m, 1+600*m.Rank(), dsm.Turns)
			m.Barrier()
			return nil
		},
		"wait for different": func(m *dsm.Memory) error {
			if m.Rank() == 0 {
				m.Barrier()
			}
			return nil
		},
		"at home at rank 7 of 2": func(m *dsm.Memory) error { dsm.Alloc[int](m, 1, dsm.At(7)); return nil },
	} {
		found := false
		for _, err := range together(t, dsm.Config{Size: 1 << 16}, 2, f) {
			if err == nil {
				t.Errorf("%q: a rank ends well", want)
				continue
			}
			found = found || strings.Contains(err.Error(), want)
		}
		if !found {
			t.Errorf("no rank says %q", want)
		}
	}
}

// With Checked an access that was not declared ends the run with the element's name.
func TestCheckedNamesTheElement(t *testing.T) {
	for want, f := range map[string]func(m *dsm.Memory, a dsm.Array[uint64]){
		"rank 1 writes element 512 of allocation 0, of uint64": func(m *dsm.Memory, a dsm.Array[uint64]) {
			a.Read(0, 1024)[512] = 1
		},
		"rank 1 reads or writes element 3 of allocation 0": func(m *dsm.Memory, a dsm.Array[uint64]) {
			r := a.Read(0, 512)
			m.Barrier() // rank 0 wrote it
			_ = fmt.Sprint(r[3])
		},
		"rank 1 writes element 1 of allocation 0": func(m *dsm.Memory, a dsm.Array[uint64]) {
			w := a.Write(0, 2)
			m.Lock(0)
			m.Unlock(0)
			w[1] = 5
		},
	} {
		errs := together(t, dsm.Config{Size: 1 << 16, Checked: true}, 2, func(m *dsm.Memory) error {
			a := dsm.Alloc[uint64](m, 1024, dsm.Turns)
			if m.Rank() == 1 {
				f(m, a)
				return nil
			}
			a.Set(0, 1)
			m.Barrier()
			m.Barrier()
			return nil
		})
		for rank, err := range errs {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("rank %d: %v, want %q", rank, err, want)
			}
		}
	}
}
