package svm

import (
	"slices"

	"multiedge/bench/xlate/trace"
)

// Work says that the process computes, for a number of arithmetic operations.
func (p *Proc) Work(operations int) {
	p.clock += uint64(operations) * operationCost
	p.work += uint64(operations) * operationCost
}

// Read says that the process reads n bytes at addr.
func (p *Proc) Read(addr uint64, n int) {
	first := int((addr - sharedBase) / trace.PageSize)
	last := int((addr - sharedBase + uint64(n) - 1) / trace.PageSize)
	for i := first; i <= last; i++ {
		if p.w.pages[i].valid&(1<<p.Node) == 0 {
			p.fault(i)
		}
	}
}

// Write says that the process writes n bytes at addr.
func (p *Proc) Write(addr uint64, n int) {
	off := addr - sharedBase
	for end := off + uint64(n); off < end; {
		i := int(off / trace.PageSize)
		next := min(end, uint64(i+1)*trace.PageSize)
		p.write(i, off%trace.PageSize, off%trace.PageSize+next-off)
		off = next
	}
}

// write says that the bytes from lo to hi of page i are written.
func (p *Proc) write(i int, lo, hi uint64) {
	pg := &p.w.pages[i]
	if pg.valid&(1<<p.Node) == 0 {
		p.fault(i)
	}
	away := int(pg.home)/p.w.cfg.Procs != p.Node
	if pg.written&(1<<p.ID) == 0 {
		pg.written |= 1 << p.ID
		p.dirty = append(p.dirty, i)
		if away {
			p.extents[i] = extent{lo, hi}
		}
	} else if away {
		e := p.extents[i]
		p.extents[i] = extent{min(e.lo, lo), max(e.hi, hi)}
	}
}

// turn lets all processes go first that are earlier: what follows touches what they share.
func (p *Proc) turn(waits func() bool) {
	p.waits = waits
	if !p.yield(struct{}{}) {
		panic(errStopped)
	}
	p.waits = nil
}

// fault fetches page i to the process's node from its home. While it waits for its turn, another process of the node
// may have fetched it.
func (p *Proc) fault(i int) {
	p.turn(nil)
	pg := &p.w.pages[i]
	if pg.valid&(1<<p.Node) != 0 {
		return
	}
	addr := sharedBase + uint64(i)*trace.PageSize
	if p.w.cfg.Requests {
		p.message(64)
	}
	p.w.record(p.clock, p.ID, trace.Fetch, addr, trace.PageSize)
	p.w.record(p.clock, int(pg.home), trace.Serve, addr, trace.PageSize)
	p.clock += fetchCost
	pg.valid |= 1 << p.Node
}

// message sends a short message from the process's control page.
func (p *Proc) message(n uint64) { p.w.record(p.clock, p.ID, trace.Send, controlPage, n) }

// flush sends what the process changed of page i to the home, if that is elsewhere.
func (p *Proc) flush(i int) {
	pg := &p.w.pages[i]
	pg.written &^= 1 << p.ID
	e, away := p.extents[i]
	if !away {
		return
	}
	delete(p.extents, i)
	addr := sharedBase + uint64(i)*trace.PageSize + e.lo
	p.w.record(p.clock, p.ID, trace.Send, addr, e.hi-e.lo)
	p.w.record(p.clock, int(pg.home), trace.Deposit, addr, e.hi-e.lo)
	p.clock += flushCost
}

// release ends the process's interval: its changes go home, and others will learn which pages they are of.
func (p *Proc) release() {
	for _, i := range p.dirty {
		if p.w.pages[i].written&(1<<p.ID) != 0 {
			p.flush(i)
		}
	}
	p.intervals = append(p.intervals, slices.Clone(p.dirty))
	p.dirty = p.dirty[:0]
	p.w.nodes[p.Node].seen[p.ID] = len(p.intervals)
}

// Lock takes a lock, and learns what its latest owner knew.
func (p *Proc) Lock(n int) {
	l := &p.w.locks[n]
	p.turn(func() bool { return !l.held })
	l.held = true
	p.clock = max(p.clock, l.at)
	if l.node != p.Node {
		p.message(64)
		p.clock += lockCost
	}
	p.w.learn(p.Node, l.vc)
}

// Unlock gives a lock back.
func (p *Proc) Unlock(n int) {
	p.turn(nil)
	p.release()
	l := &p.w.locks[n]
	copy(l.vc, p.w.nodes[p.Node].seen)
	l.held, l.at, l.node = false, p.clock, p.Node
}

// Barrier waits for all processes; then every node knows of every write.
func (p *Proc) Barrier() {
	p.turn(nil)
	p.release()
	p.message(64)
	w := p.w
	if w.arrived++; w.arrived < len(w.procs) {
		round := len(w.barriers)
		p.turn(func() bool { return len(w.barriers) > round })
		p.clock = w.barriers[round]
		return
	}
	w.arrived = 0
	at, vc := uint64(0), make([]int, len(w.procs))
	for i, q := range w.procs {
		at, vc[i] = max(at, q.clock), len(q.intervals)
	}
	for n := range w.nodes {
		w.learn(n, vc)
	}
	w.barriers = append(w.barriers, at+barrierCost)
	p.clock = at + barrierCost
}
