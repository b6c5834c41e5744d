// Package svm makes traces of programs on shared memory (package dsm), as the founding papers took them from SPLASH-2:
// the programs run, and each access that they declare goes through a model of a home-based release-consistent shared
// virtual memory (UTLB §6) of nodes with several processes each, which edge/dsm itself does not have.
//
// A world has nodes of several processes that share memory in hardware. Every page has a home process; its node always
// has the page. Another node fetches the page from there when one of its processes touches it, and may use its copy
// until it learns that somebody on another node wrote the page: at a barrier, or with a lock (lazy release consistency
// with vector clocks). Who writes a page that is at home elsewhere sends what changed to the home when it releases a
// lock or arrives at a barrier.
//
// Processes are coroutines on virtual clocks, on one memory; whoever is earliest runs. So a program always has the same
// trace.
package svm

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"math/bits"
	"slices"

	"multiedge/bench/xlate/trace"
	"multiedge/edge/dsm"
)

// Config is the shape of a cluster.
type Config struct {
	Nodes, Procs int // UTLB: 4 nodes of 4; DHL: 4 of 2
	// Requests: a page is asked for by a message from a control page, as in UTLB's system; else by a remote read alone,
	// as in DHL's.
	Requests bool
	Work     int // what the program computes for each word of 8 bytes that it reads or writes, in operations
}

// Costs of the model in nanoseconds, of the order of the papers' machines: they order the processes' accesses, and give
// the time of a run.
const (
	operationCost = 8       // an arithmetic operation with its memory accesses
	fetchCost     = 110_000 // a page fault and the fetch of a page over the network
	flushCost     = 30_000  // finding what changed in a page and sending it
	lockCost      = 60_000  // a lock that another node had
	barrierCost   = 200_000
)

// Where memory is. All processes have the shared pages at the same addresses, which is why caches without an offset
// suffer (UTLB §3.2).
const (
	sharedBase  = 0x4000_0000
	controlPage = 0x1000_0000 // messages are sent from here
)

// maxBodies bounds processes: a page has a bit for each.
const maxBodies = 32

// world is a cluster at work.
type world struct {
	cfg      Config
	pages    []page
	procs    []*proc
	nodes    []node
	locks    map[int]*lock
	began    uint64 // when the program had set up; 0: it has not yet
	records  []trace.Record
	arrived  int
	barriers []uint64 // when each ended
}

// page is what is known of a shared page.
type page struct {
	valid   uint32 // by node
	written uint32 // by process, in its current interval
	home    uint8  // process
}

type node struct {
	seen []int // intervals of each process that this node has heard of
}

type lock struct {
	vc   []int // intervals that the latest owner knew
	held bool
	at   uint64 // when it was released
	node int    // that had it last
}

// proc is a process of the cluster.
type proc struct {
	id, node  int
	w         *world
	clock     uint64
	work      uint64 // of the clock since the program had set up, what was computing
	yield     func(struct{}) bool
	resume    func() (struct{}, bool)
	stop      func()
	waits     func() bool // what it waits for; nil: nothing
	done      bool
	err       error
	dirty     []int // pages written in this interval
	extents   map[int]extent
	intervals [][]int // pages written in each of its intervals
}

// extent is what changed of a page, in bytes.
type extent struct{ lo, hi uint64 }

// newWorld returns a cluster without memory.
func newWorld(cfg Config) (*world, error) {
	n := cfg.Nodes * cfg.Procs
	if cfg.Nodes < 1 || cfg.Procs < 1 || n > maxBodies {
		return nil, fmt.Errorf("svm: %d nodes of %d processes; at most %d processes in all", cfg.Nodes, cfg.Procs,
			maxBodies)
	}
	w := &world{cfg: cfg, nodes: make([]node, cfg.Nodes), locks: map[int]*lock{}}
	for i := range w.nodes {
		w.nodes[i].seen = make([]int, n)
	}
	for i := range n {
		w.procs = append(w.procs, &proc{id: i, node: i / cfg.Procs, w: w, extents: map[int]extent{}})
	}
	return w, nil
}

// Result is what a run left.
type Result struct {
	Trace *trace.Trace
	Time  uint64 // nanoseconds until the last process ended
	Work  uint64 // nanoseconds of computing, of all processes
	Pages int    // of shared memory
}

// Trace runs a program on a cluster, with so many bytes of memory. What it does until it calls started, which all ranks
// do behind a barrier, is not in the trace.
func Trace(ctx context.Context, cfg Config, memory int, program func(m *dsm.Memory, started func())) (*Result, error) {
	w, err := newWorld(cfg)
	if err != nil {
		return nil, err
	}
	shared := make([]byte, memory)
	return w.run(ctx, func(p *proc) error {
		return dsm.RunModel(dsm.Config{Rank: p.id, Ranks: len(w.procs)}, shared, p, func(m *dsm.Memory) error {
			program(m, p.started)
			return nil
		})
	})
}

// run runs body as every process and returns the trace.
func (w *world) run(ctx context.Context, body func(*proc) error) (*Result, error) {
	defer func() {
		for _, p := range w.procs {
			p.stop()
		}
	}()
	for _, p := range w.procs {
		p.resume, p.stop = iter.Pull(func(yield func(struct{}) bool) {
			defer func() {
				if v := recover(); v != nil && v != errStopped {
					panic(v)
				}
				p.done = true
			}()
			p.yield = yield
			p.err = body(p)
			p.release()
		})
	}
	for steps := 0; ; steps++ {
		if steps%1024 == 0 && ctx.Err() != nil {
			return nil, ctx.Err()
		}
		p, left := w.earliest()
		if left == 0 {
			return w.result(), nil
		}
		if p == nil {
			return nil, fmt.Errorf("BUG: svm: %d processes wait for each other", left)
		}
		if p.resume(); p.err != nil {
			return nil, p.err
		}
	}
}

// errStopped ends the coroutine of a run that was given up.
var errStopped = fmt.Errorf("svm: stopped")

// earliest returns the runnable process whose clock is lowest, and how many have not ended.
func (w *world) earliest() (first *proc, left int) {
	for _, p := range w.procs {
		if p.done {
			continue
		}
		left++
		if (p.waits == nil || p.waits()) && (first == nil || p.clock < first.clock) {
			first = p
		}
	}
	return first, left
}

func (w *world) result() *Result {
	slices.SortStableFunc(w.records, func(a, b trace.Record) int { return cmp.Compare(a.Time, b.Time) })
	r := &Result{Pages: len(w.pages), Trace: &trace.Trace{Nodes: w.cfg.Nodes, Processes: w.cfg.Procs,
		Records: w.records}}
	for _, p := range w.procs {
		r.Time, r.Work = max(r.Time, p.clock-w.began), r.Work+p.work
	}
	return r
}

// record adds what process id touched.
func (w *world) record(at uint64, id int, op trace.Op, addr, n uint64) {
	w.records = append(w.records, trace.Record{
		Time: at - w.began, Node: uint8(id / w.cfg.Procs), Process: uint8(id % w.cfg.Procs), Op: op, Addr: addr,
		Length: uint32(n),
	})
}

// invalidate takes a page from a node that learnt of a write elsewhere. What its own processes changed goes home first.
func (w *world) invalidate(i, node int) {
	pg := &w.pages[i]
	if int(pg.home)/w.cfg.Procs == node || pg.valid&(1<<node) == 0 {
		return
	}
	for m := pg.written; m != 0; m &= m - 1 {
		if p := w.procs[bits.TrailingZeros32(m)]; p.node == node {
			p.flush(i)
		}
	}
	pg.valid &^= 1 << node
}

// learn tells a node of all intervals up to vc.
func (w *world) learn(n int, vc []int) {
	seen := w.nodes[n].seen
	for id, upto := range vc {
		for _, pages := range w.procs[id].intervals[min(seen[id], upto):upto] {
			if id/w.cfg.Procs == n {
				break // the same hardware: it saw the writes
			}
			for _, i := range pages {
				w.invalidate(i, n)
			}
		}
		seen[id] = max(seen[id], upto)
	}
}
