package svm

import (
	"context"
	"slices"
	"strings"
	"testing"

	"multiedge/bench/xlate/trace"
	"multiedge/edge/dsm"
)

// testWorld is a cluster with some pages, all at home with process 0.
func testWorld(t *testing.T, cfg Config, pages int) *world {
	t.Helper()
	w, err := newWorld(cfg)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range w.procs {
		p.Alloc(0, make([]uint8, pages))
	}
	return w
}

func run(t *testing.T, w *world, body func(*proc)) *Result {
	t.Helper()
	r, err := w.run(t.Context(), func(p *proc) error { body(p); return nil })
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// What bodies of tests do.
func (p *proc) read(at, n int)        { p.Touch(dsm.Reading, at, at+n) }
func (p *proc) write8(at int)         { p.Touch(dsm.Writing, at, at+8) }
func (p *proc) compute(n int)         { p.clock += uint64(n) * operationCost }
func barrier(p *proc)                 { p.Barrier() }
func twice(p *proc)                   { p.Barrier(); p.Barrier() }
func nothing(*proc)                   {}
func lockedWrite(p *proc)             { p.compute(1 << 20); p.Lock(0); p.write8(0); p.Unlock(0) }
func after(f func(*proc)) func(*proc) { return func(p *proc) { f(p); p.Barrier() } }

// script runs one body for each process of two nodes of two and returns what happened on pages, without messages. There
// is one page, at home with process 0.
func script(t *testing.T, bodies [4]func(p *proc)) (got []string) {
	r := run(t, testWorld(t, Config{Nodes: 2, Procs: 2}, 1), func(p *proc) { bodies[p.id](p) })
	for _, x := range r.Trace.Records {
		if x.Addr >= sharedBase {
			got = append(got, string('0'+x.Node*2+x.Process)+" "+x.Op.String())
		}
	}
	return got
}

func TestCoherence(t *testing.T) {
	for name, c := range map[string]struct {
		bodies [4]func(p *proc)
		want   string
	}{
		"a home reads and writes for nothing": {[4]func(*proc){
			after(func(p *proc) { p.read(0, 8); p.write8(0) }), barrier, barrier, barrier}, ""},
		"a node fetches a page once for both processes": {[4]func(*proc){barrier, barrier,
			after(func(p *proc) { p.compute(1); p.read(0, 8) }), after(func(p *proc) { p.read(0, 8) })},
			"3 fetch, 0 serve"},
		"a write at home invalidates copies at the barrier": {[4]func(*proc){
			func(p *proc) { p.Barrier(); p.write8(0); p.Barrier() }, twice,
			func(p *proc) { p.read(0, 8); p.Barrier(); p.read(0, 8); p.Barrier(); p.read(0, 8) }, twice},
			"2 fetch, 0 serve, 2 fetch, 0 serve"},
		"changes go home at a barrier, which always has the page": {[4]func(*proc){
			func(p *proc) { p.Barrier(); p.read(0, 8) }, barrier,
			func(p *proc) { p.write8(8); p.write8(32); p.Barrier(); p.read(0, 8) }, barrier},
			"2 fetch, 0 serve, 2 send, 0 deposit"},
		"an owned page is not fetched": {[4]func(*proc){barrier, barrier,
			after(func(p *proc) { p.Touch(dsm.Owning, 0, 4096); p.Touch(dsm.Writing, 0, 4096) }), barrier},
			"2 send, 0 deposit"},
		"a part of a page is, though it is owned": {[4]func(*proc){barrier, barrier,
			after(func(p *proc) { p.Touch(dsm.Owning, 8, 4096); p.Touch(dsm.Writing, 8, 4096) }), barrier},
			"2 fetch, 0 serve, 2 send, 0 deposit"},
		"a lock tells of a write, and only who takes it": {[4]func(*proc){lockedWrite, nothing, func(p *proc) {
			p.read(0, 8)
			p.compute(1 << 22)
			p.read(0, 8) // written by now, but nobody said so
			p.Lock(0)
			p.read(0, 8)
			p.Unlock(0)
		}, nothing}, "2 fetch, 0 serve, 2 fetch, 0 serve"},
		"what changed of a page that is taken away goes home before": {[4]func(*proc){lockedWrite, nothing,
			func(p *proc) {
				p.write8(64)
				p.compute(1 << 22)
				p.Lock(0)
				p.write8(64)
				p.Unlock(0)
			}, nothing}, "2 fetch, 0 serve, 2 send, 0 deposit, 2 fetch, 0 serve, 2 send, 0 deposit"},
	} {
		if got := strings.Join(script(t, c.bodies), ", "); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestDiffsHaveTheExtentOfTheWrites(t *testing.T) {
	r := run(t, testWorld(t, Config{Nodes: 2, Procs: 1}, 2), func(p *proc) {
		if p.id == 1 {
			p.Touch(dsm.Writing, 4000, 4200)
			p.Touch(dsm.Writing, 100, 101)
		}
		p.Barrier()
	})
	var got [][2]uint64
	for _, x := range r.Trace.Records {
		if x.Op == trace.Deposit {
			got = append(got, [2]uint64{x.Addr - sharedBase, uint64(x.Length)})
		}
	}
	if want := [][2]uint64{{100, 3996}, {4096, 104}}; !slices.Equal(got, want) {
		t.Errorf("sent home: %v, want %v", got, want)
	}
}

// counter adds one to a number under a lock, as every rank, and returns what is there in the end.
func counter(ctx context.Context, cfg Config) (r *Result, sum int, err error) {
	r, err = Trace(ctx, cfg, 1<<16, func(m *dsm.Memory, started func()) {
		dsm.Alloc[int](m, 1, dsm.At(1))
		a := dsm.Alloc[int](m, 600, dsm.At(0))
		a.Read(0, 600) // before the trace
		m.Barrier()
		started()
		a.Prefetch(0, 1) // computes nothing
		m.Lock(3)
		a.Set(599, a.At(599)+1)
		m.Unlock(3)
		m.Barrier()
		sum = a.At(599)
	})
	return r, sum, err
}

// Ranks of a program go on in the order that locks and barriers allow. Its trace begins where it says so.
func TestTrace(t *testing.T) {
	cfg := Config{Nodes: 3, Procs: 2, Requests: true, Work: 5}
	r, sum, err := counter(t.Context(), cfg)
	if err != nil || sum != 6 || r.Trace.Check() != nil || r.Pages != 3 {
		t.Fatal(sum, err, r)
	}
	fetched := map[uint64]int{}
	for _, x := range r.Trace.Records {
		if x.Op == trace.Fetch {
			fetched[x.Addr-sharedBase]++
		}
	}
	// Page 2 has the number. Both other nodes fetch it when their first process gets the lock from a node that wrote
	// it, and one of them, after the barrier, what the other wrote last.
	if len(fetched) != 1 || fetched[2*4096] != 3 {
		t.Errorf("fetched: %v", fetched)
	}
	if want := uint64(6 * 3 * 5 * operationCost); r.Work != want || r.Time < 3*lockCost+2*barrierCost-barrierCost {
		t.Errorf("%d ns of work, want %d; %d ns in all", r.Work, want, r.Time)
	}
	if r.Trace.Records[0].Time > lockCost {
		t.Errorf("the first record is of %d ns", r.Trace.Records[0].Time)
	}
}

func TestTracesThatEnd(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := counter(ctx, Config{Nodes: 2, Procs: 2}); err != context.Canceled {
		t.Error(err)
	}
	for _, cfg := range []Config{{Nodes: 9, Procs: 9}, {}} {
		if _, _, err := counter(t.Context(), cfg); err == nil {
			t.Errorf("accepted: %+v", cfg)
		}
	}
	_, err := Trace(t.Context(), Config{Nodes: 2, Procs: 2}, 1<<16, func(m *dsm.Memory, _ func()) {
		if dsm.Alloc[int](m, 1, dsm.Turns); m.Rank() == 2 {
			m.Unlock(1)
		}
		m.Barrier()
	})
	if err == nil || !strings.Contains(err.Error(), "does not have the lock") {
		t.Error(err)
	}
}
