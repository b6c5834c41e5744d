package splash

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"sync"
	"testing"
	"time"

	"multiedge/bench/kit"
	"multiedge/bench/report"
	"multiedge/edge"
	"multiedge/edge/dsm"
	"multiedge/edge/fabric"
)

// small are sizes of a few milliseconds.
var small = map[string]int{"fft": 32, "lu": 96, "lu-rows": 64, "radix": 3000, "ocean": 30, "barnes": 120, "water": 20,
	"water-cells": 100}

// alone is the digest of the sequential run.
func alone(t *testing.T, k *Kernel, size int) (digest uint64) {
	err := dsm.Run(t.Context(), dsm.Config{Ranks: 1, Size: k.Memory(size, 1)}, func(m *dsm.Memory) error {
		digest, _ = k.Run(m, size)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return digest
}

// together is the digest of a run on several ranks, over the whole transport.
func together(t *testing.T, k *Kernel, size, ranks int, checked bool) (digest uint64) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	fab := fabric.New()
	defer fab.Close()
	var wg sync.WaitGroup
	for rank := range ranks {
		d, err := fab.OpenConfig(ctx, fmt.Sprintf("n%d", rank), edge.Config{Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		c := dsm.Config{Name: k.Name, Rank: rank, Ranks: ranks, Root: "n0", Device: d, Checked: checked,
			Size: k.Memory(size, ranks)}
		wg.Go(func() {
			err := dsm.Run(ctx, c, func(m *dsm.Memory) error {
				d, _ := k.Run(m, size)
				if rank == 0 {
					digest = d
				}
				return nil
			})
			if err != nil {
				t.Errorf("%s, rank %d: %v", k.Name, rank, err)
			}
		})
	}
	wg.Wait()
	return digest
}

// The versions with hand-written messages compute the same results as the kernels that they are compared with.
func TestByHand(t *testing.T) {
	const s, ranks = 32, 3
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	fab := fabric.New()
	defer fab.Close()
	hosts := []string{"n0", "n1", "n2"}
	var points [ranks][]complex128
	var rows [ranks][]float64
	var change []float64
	var wg sync.WaitGroup
	for rank, host := range hosts {
		d, err := fab.OpenConfig(ctx, host, edge.Config{Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		wg.Go(func() {
			j := &job{Rank: rank, Ranks: ranks, Hosts: hosts}
			err := kit.Try(func() {
				points[rank], _ = fftByHand(ctx, j, d, s)
				list, found, _ := oceanByHand(ctx, j, d, s)
				rows[rank] = list
				if rank == 0 {
					change = found
				}
			})
			if err != nil {
				t.Errorf("rank %d: %v", rank, err)
			}
		})
	}
	wg.Wait()
	var transformed, grid uint64
	for _, v := range slices.Concat(points[:]...) {
		transformed = sum(transformed, []float64{real(v), imag(v)})
	}
	for i := range s + 2 { // the border stays as it was
		grid = add(grid, math.Float64bits(uniform(i)))
	}
	grid = sum(grid, slices.Concat(rows[:]...))
	for i := range s + 2 {
		grid = add(grid, math.Float64bits(uniform((s+1)*(s+2)+i)))
	}
	grid = sum(grid, change)
	for name, got := range map[string]uint64{"fft": transformed, "ocean": grid} {
		if k, _ := Named(name); got != alone(t, &k, s) {
			t.Errorf("%s has other bits by hand", name)
		}
	}
}

// Ranks that a user starts by hand compare their results with the sequential run at rank 0.
func TestHere(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	fab := fabric.New()
	defer fab.Close()
	spec := Spec{Tasks: []Task{{"radix", small["radix"]}, {"ocean", small["ocean"]}}}
	var results [2]*Result
	var wg sync.WaitGroup
	for rank := range results {
		d, err := fab.OpenConfig(ctx, fmt.Sprintf("n%d", rank), edge.Config{Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		wg.Go(func() {
			var err error
			if results[rank], err = Here(ctx, d, spec, fmt.Sprintf("job,%d,2,n0", rank)); err != nil {
				t.Errorf("rank %d: %v", rank, err)
			}
		})
	}
	wg.Wait()
	for rank, r := range results {
		if r == nil || len(r.Rows) != 2 {
			t.Fatalf("rank %d: %+v", rank, r)
		}
		for _, row := range r.Rows {
			if row.Stats[0].Operations == 0 || rank == 0 && (!row.Same || row.Alone <= 0) {
				t.Errorf("rank %d: %+v", rank, row)
			}
		}
		if goals := len(r.Study(report.Head{}).Trends); goals != 1-rank {
			t.Errorf("rank %d judges %d goals", rank, goals)
		}
	}
	for _, place := range []string{"job", "job,x,2,n0", "job,0,1,n0"} {
		if _, err := Here(ctx, nil, spec, place); err == nil {
			t.Errorf("%q is taken for a place", place)
		}
	}
}

// Each kernel has the bits of its sequential run, and declares every access.
func TestKernels(t *testing.T) {
	for _, k := range Kernels {
		t.Run(k.Name, func(t *testing.T) {
			size := small[k.Name]
			want := alone(t, &k, size)
			for _, ranks := range []int{2, 3, 4} {
				if got := together(t, &k, size, ranks, ranks == 3); got != want {
					t.Errorf("on %d ranks: %x, want %x", ranks, got, want)
				}
			}
		})
	}
}

// Each contender works a given number of times in its turn. begins returns the first times of each turn, also of a
// shorter last one.
func TestTurns(t *testing.T) {
	order := ""
	do := func(name string, step time.Duration) func(int) time.Duration {
		return func(round int) time.Duration { order += name; return step * time.Duration(round) }
	}
	times := inTurn(7, 3, do("a", 1), do("b", 10))
	if order != "aaabbbaaabbbab" {
		t.Errorf("done in the order %s", order)
	}
	if got := begins(times[1], 3, 2); !slices.Equal(got, []time.Duration{0, 10, 30, 40, 60}) {
		t.Errorf("turns begin with %v", got)
	}
}
