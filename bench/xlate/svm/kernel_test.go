package svm

import (
	"context"
	"math"
	"reflect"
	"slices"
	"testing"

	"multiedge/bench/xlate/trace"
)

var small = Config{Nodes: 2, Procs: 2, Seed: 7, Requests: true}

func world(t *testing.T, cfg Config) *World {
	t.Helper()
	w, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func run(t *testing.T, w *World, body func(*Proc)) *Result {
	t.Helper()
	r, err := w.Run(context.Background(), body)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestRadixSorts(t *testing.T) {
	w := world(t, small)
	r := newRadix(w, MinScale)
	want := slices.Clone(r.keys[0])
	slices.Sort(want)
	run(t, w, r.run)
	if !slices.Equal(r.keys[radixPasses%2], want) {
		t.Error("the keys are not sorted")
	}
}

func TestBarnesForcesAreNearTheSum(t *testing.T) {
	w := world(t, small)
	b := newBarnes(w, MinScale)
	run(t, w, func(p *Proc) {
		if p.ID == 0 {
			b.sort()
		}
		p.Barrier()
		b.build(p)
		p.Barrier()
		lo, hi := share(p.ID, w.P(), b.n)
		for _, i := range b.order[lo:hi] {
			b.acc[i] = b.force(p, i)
		}
	})
	mass := 0.0
	for _, c := range b.roots {
		mass += b.cell[c].mass
	}
	if mass != float64(b.n) {
		t.Fatalf("%g of %d bodies are in the tree", mass, b.n)
	}
	off, size := 0.0, 0.0
	for i := range b.n {
		var sum vec
		for j := range b.n {
			d := vec{b.pos[j][0] - b.pos[i][0], b.pos[j][1] - b.pos[i][1], b.pos[j][2] - b.pos[i][2]}
			r2 := d[0]*d[0] + d[1]*d[1] + d[2]*d[2] + 1e-6
			for k := range 3 {
				sum[k] += d[k] / (r2 * math.Sqrt(r2))
			}
		}
		for k := range 3 {
			off, size = off+math.Abs(sum[k]-b.acc[i][k]), size+math.Abs(sum[k])
		}
	}
	if off > 0.05*size {
		t.Errorf("forces are off by %.1f %% on average", 100*off/size)
	}
}

func TestWaterForcesReachAllNeighbours(t *testing.T) {
	w := world(t, small)
	s := newWater(w, MinScale)
	run(t, w, func(p *Proc) {
		for b := range s.in {
			if s.owner(b, w.P()) == p.ID {
				s.forces(p, b)
			}
		}
	})
	got := slices.Clone(s.force)
	for i := range s.n {
		s.force[i] = vec{}
		for j := range s.n {
			if i != j {
				s.attract(i, j)
			}
		}
		for k := range 3 {
			if math.Abs(got[i][k]-s.force[i][k]) > 1e-12 {
				t.Fatalf("molecule %d: %v, of all pairs %v", i, got[i], s.force[i])
			}
		}
	}
}

func TestKernelsRepeatAndAreLegal(t *testing.T) {
	for _, name := range Names() {
		var runs []*Result
		for range 2 {
			cfg := Config{Nodes: 4, Procs: 2, Seed: 3}
			r, problem, err := Generate(context.Background(), name, cfg, MinScale)
			if err != nil || problem == "" {
				t.Fatal(name, problem, err)
			}
			if err := r.Trace.Check(); err != nil {
				t.Error(name, err)
			}
			runs = append(runs, r)
		}
		if len(runs[0].Trace.Records) < 50 || runs[0].Work == 0 || runs[0].Time == 0 {
			t.Errorf("%s: %d records, %d ns of work in %d "+
				"ns", name, len(runs[0].Trace.Records), runs[0].Work, runs[0].Time)
		}
		if !reflect.DeepEqual(runs[0], runs[1]) {
			t.Errorf("%s: with the same seed the trace is another", name)
		}
	}
	for _, bad := range []struct {
		name  string
		cfg   Config
		scale float64
	}{{"sudoku", small, 1}, {"fft", small, 0}, {"fft", small, math.NaN()}, {"fft", Config{Nodes: 9, Procs: 9}, 1},
		{"fft", Config{}, 1}} {
		if _, _, err := Generate(context.Background(), bad.name, bad.cfg, bad.scale); err == nil {
			t.Errorf("accepted: %+v", bad)
		}
	}
}

// script runs one body for each process of two nodes of two and returns what happened on pages, without messages.
func script(t *testing.T, bodies [4]func(p *Proc, at uint64, lock int)) (got []string) {
	w := world(t, Config{Nodes: 2, Procs: 2, Seed: 1})
	at, lock := w.Alloc(4096, func(int, int) int { return 0 }), w.Locks(1) // a page, at home with process 0
	r := run(t, w, func(p *Proc) { bodies[p.ID](p, at, lock) })
	for _, x := range r.Trace.Records {
		if x.Addr >= sharedBase {
			got = append(got, string('0'+x.Node*2+x.Process)+" "+x.Op.String())
		}
	}
	return got
}

func TestCoherence(t *testing.T) {
	type bodies = [4]func(p *Proc, at uint64, lock int)
	barrier := func(p *Proc, _ uint64, _ int) { p.Barrier() }
	twice := func(p *Proc, _ uint64, _ int) { p.Barrier(); p.Barrier() }
	for _, c := range []struct {
		name   string
		bodies bodies
		want   []string
	}{
		{"a home reads and writes for " +
			"nothing", bodies{func(p *Proc, at uint64, _ int) { p.Read(at, 8); p.Write(at, 8); p.Barrier() }, barrier,
			barrier, barrier}, nil},
		{"a node fetches a page once for both processes", bodies{barrier, barrier,
			func(p *Proc, at uint64, _ int) { p.Work(1); p.Read(at, 8); p.Barrier() },
			func(p *Proc, at uint64, _ int) { p.Read(at, 8); p.Barrier() }}, []string{"3 fetch", "0 serve"}},
		{"a write at home invalidates copies at the barrier", bodies{
			func(p *Proc, at uint64, _ int) { p.Barrier(); p.Write(at, 8); p.Barrier() }, twice,
			func(p *Proc, at uint64, _ int) { p.Read(at, 8); p.Barrier(); p.Read(at, 8); p.Barrier(); p.Read(at, 8) },
			twice},
			[]string{"2 fetch", "0 serve", "2 fetch", "0 serve"}},
		{"changes go home at a barrier, which always has the page", bodies{
			func(p *Proc, at uint64, _ int) { p.Barrier(); p.Read(at, 8) }, barrier,
			func(p *Proc, at uint64, _ int) { p.Write(at+8, 8); p.Write(at+32, 8); p.Barrier(); p.Read(at, 8) },
			barrier},
			[]string{"2 fetch", "0 serve", "2 send", "0 deposit"}},
		{"a lock tells of a write, and only who takes it", bodies{
			func(p *Proc, at uint64, lock int) { p.Work(1 << 20); p.Lock(lock); p.Write(at, 8); p.Unlock(lock) },
			func(*Proc, uint64, int) {},
			func(p *Proc, at uint64, lock int) {
				p.Read(at, 8)
				p.Work(1 << 22)
				p.Read(at, 8) // written by now, but nobody said so
				p.Lock(lock)
				p.Read(at, 8)
				p.Unlock(lock)
			}, func(*Proc, uint64, int) {}},
			[]string{"2 fetch", "0 serve", "2 fetch", "0 serve"}},
		{"what changed of a page that is taken away goes home before", bodies{
			func(p *Proc, at uint64, lock int) { p.Work(1 << 20); p.Lock(lock); p.Write(at, 8); p.Unlock(lock) },
			func(*Proc, uint64, int) {},
			func(p *Proc, at uint64, lock int) {
				p.Write(at+64, 8)
				p.Work(1 << 22)
				p.Lock(lock)
				p.Write(at+64, 8)
				p.Unlock(lock)
			},
			func(*Proc, uint64, int) {}},
			[]string{"2 fetch", "0 serve", "2 send", "0 deposit", "2 fetch", "0 serve", "2 send", "0 deposit"}},
	} {
		if got := script(t, c.bodies); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

func TestDiffsHaveTheExtentOfTheWrites(t *testing.T) {
	w := world(t, Config{Nodes: 2, Procs: 1, Seed: 1})
	at := w.Alloc(8192, func(int, int) int { return 0 })
	r := run(t, w, func(p *Proc) {
		if p.ID == 1 {
			p.Write(at+4000, 200)
			p.Write(at+100, 1)
		}
		p.Barrier()
	})
	var got [][2]uint64
	for _, x := range r.Trace.Records {
		if x.Op == trace.Deposit {
			got = append(got, [2]uint64{x.Addr - at, uint64(x.Length)})
		}
	}
	if want := [][2]uint64{{100, 3996}, {4096, 104}}; !slices.Equal(got, want) {
		t.Errorf("sent home: %v, want %v", got, want)
	}
}

func TestARunCanBeGivenUp(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, _, err := Generate(ctx, "lu", small, MinScale); err != context.Canceled {
		t.Error(err)
	}
}
