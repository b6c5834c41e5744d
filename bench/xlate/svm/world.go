// Package svm makes the traces that the founding papers took from SPLASH-2 programs: kernels of our own, on a model of
// a home-based release-consistent shared virtual memory (UTLB §6), with every access tracked by page.
//
// A World has nodes of several processes that share memory in hardware. Every page has a home process; its node always
// has the page. Another node fetches the page from there when one of its processes touches it, and may use its copy
// until it learns that somebody on another node wrote the page: at a barrier, or with a lock (lazy release consistency
// with vector clocks). Who writes a page that is at home elsewhere sends what changed to the home when it releases a
// lock or arrives at a barrier.
//
// Processes are coroutines on virtual clocks; whoever is earliest runs. The same seed gives the same trace.
package svm

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"math/bits"
	"math/rand/v2"
	"slices"

	"multiedge/bench/xlate/trace"
)

// Config is the shape of a cluster.
type Config struct {
	Nodes, Procs int // UTLB: 4 nodes of 4; DHL: 4 of 2
	Seed         uint64
	// Requests: a page is asked for by a message from a control page, as in UTLB's system; else by a remote read alone,
	// as in DHL's.
	Requests bool
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

// World is a cluster at work.
type World struct {
	cfg      Config
	pages    []page
	procs    []*Proc
	nodes    []node
	locks    []lock
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

// Proc is a process of the cluster: what a kernel's body runs as.
type Proc struct {
	ID, Node  int
	Rand      *rand.Rand
	w         *World
	clock     uint64
	work      uint64 // of the clock, what was computing
	yield     func(struct{}) bool
	resume    func() (struct{}, bool)
	stop      func()
	waits     func() bool // what it waits for; nil: nothing
	done      bool
	dirty     []int // pages written in this interval
	extents   map[int]extent
	intervals [][]int // pages written in each of its intervals
}

// extent is what changed of a page, in bytes.
type extent struct{ lo, hi uint64 }

// New returns a cluster without memory.
func New(cfg Config) (*World, error) {
	if n := cfg.Nodes * cfg.Procs; cfg.Nodes < 1 || cfg.Procs < 1 || n > maxBodies {
		return nil, fmt.Errorf("svm: %d nodes of %d processes; at most %d processes in "+
			"all", cfg.Nodes, cfg.Procs, maxBodies)
	}
	w := &World{cfg: cfg, nodes: make([]node, cfg.Nodes)}
	for i := range w.nodes {
		w.nodes[i].seen = make([]int, cfg.Nodes*cfg.Procs)
	}
	for i := range cfg.Nodes * cfg.Procs {
		w.procs = append(w.procs, &Proc{
			ID: i, Node: i / cfg.Procs, w: w, extents: map[int]extent{},
			Rand: rand.New(rand.NewPCG(cfg.Seed, uint64(i))),
		})
	}
	return w, nil
}

// P returns the number of processes.
func (w *World) P() int { return len(w.procs) }

// Alloc returns the address of bytes of shared memory, from a page's start. home says which process each page of it is
// at home with.
func (w *World) Alloc(bytes int, home func(page, pages int) int) uint64 {
	addr := sharedBase + uint64(len(w.pages))*trace.PageSize
	n := (bytes + trace.PageSize - 1) / trace.PageSize
	for i := range n {
		h := home(i, n)
		w.pages = append(w.pages, page{home: uint8(h), valid: 1 << (h / w.cfg.Procs)})
	}
	return addr
}

// Blocks is the distribution that gives each process a contiguous part.
func (w *World) Blocks(page, pages int) int { return page * w.P() / pages }

// Locks returns the number of the first of n locks.
func (w *World) Locks(n int) int {
	first := len(w.locks)
	for range n {
		w.locks = append(w.locks, lock{vc: make([]int, w.P()), node: -1})
	}
	return first
}

// Result is what a run left.
type Result struct {
	Trace *trace.Trace
	Time  uint64 // nanoseconds until the last process ended
	Work  uint64 // nanoseconds of computing, of all processes
	Pages int    // of shared memory
}

// Run runs body as every process and returns the trace.
func (w *World) Run(ctx context.Context, body func(*Proc)) (*Result, error) {
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
			body(p)
			p.release()
		})
	}
	for steps := 0; ; steps++ {
		if steps%1024 == 0 && ctx.Err() != nil {
			return nil, ctx.Err()
		}
		p, left := w.earliest()
		if left == 0 {
			break
		}
		if p == nil {
			return nil, fmt.Errorf("BUG: svm: %d processes wait for each other", left)
		}
		p.resume()
	}
	return w.result(), nil
}

// errStopped ends the coroutine of a run that was given up.
var errStopped = fmt.Errorf("svm: stopped")

// earliest returns the runnable process whose clock is lowest, and how many have not ended.
func (w *World) earliest() (first *Proc, left int) {
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

func (w *World) result() *Result {
	slices.SortStableFunc(w.records, func(a, b trace.Record) int { return cmp.Compare(a.Time, b.Time) })
	r := &Result{Pages: len(w.pages), Trace: &trace.Trace{Nodes: w.cfg.Nodes, Processes: w.cfg.Procs,
		Records: w.records}}
	for _, p := range w.procs {
		r.Time, r.Work = max(r.Time, p.clock), r.Work+p.work
	}
	return r
}

// record adds what process id touched.
func (w *World) record(at uint64, id int, op trace.Op, addr, n uint64) {
	w.records = append(w.records, trace.Record{
		Time: at, Node: uint8(id / w.cfg.Procs), Process: uint8(id % w.cfg.Procs), Op: op, Addr: addr,
		Length: uint32(n),
	})
}

// invalidate takes a page from a node that learnt of a write elsewhere. What its own processes changed goes home first.
func (w *World) invalidate(i, node int) {
	pg := &w.pages[i]
	if int(pg.home)/w.cfg.Procs == node || pg.valid&(1<<node) == 0 {
		return
	}
	for m := pg.written; m != 0; m &= m - 1 {
		if p := w.procs[bits.TrailingZeros32(m)]; p.Node == node {
			p.flush(i)
		}
	}
	pg.valid &^= 1 << node
}

// learn tells a node of all intervals up to vc.
func (w *World) learn(n int, vc []int) {
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
