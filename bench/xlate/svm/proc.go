package svm

import (
	"slices"

	"multiedge/bench/xlate/trace"
	"multiedge/edge/dsm"
)

// Alloc takes new pages, of which the first process tells (dsm.Model).
func (p *proc) Alloc(from int, homes []uint8) {
	for _, home := range homes[min(len(p.w.pages)-from/trace.PageSize, len(homes)):] {
		p.w.pages = append(p.w.pages, page{home: home, valid: 1 << (int(home) / p.w.cfg.Procs)})
	}
}

// started begins the trace, once all processes have set up.
func (p *proc) started() {
	if p.work = 0; p.w.began == 0 {
		p.w.began, p.w.records = p.clock, nil
	}
}

// Touch is an access to bytes from up to to (dsm.Model).
func (p *proc) Touch(how dsm.Access, from, to int) {
	first, end := from/trace.PageSize, (to+trace.PageSize-1)/trace.PageSize
	switch how {
	case dsm.Owning: // whole pages are not fetched
		for i := (from + trace.PageSize - 1) / trace.PageSize; i < to/trace.PageSize; i++ {
			p.w.pages[i].valid |= 1 << p.node
		}
		return
	case dsm.Writing:
		for i := first; i < end; i++ {
			base := i * trace.PageSize
			p.write(i, extent{uint64(max(from-base, 0)), uint64(min(to-base, trace.PageSize))})
		}
	default:
		for i := first; i < end; i++ {
			if p.w.pages[i].valid&(1<<p.node) == 0 {
				p.fault(i)
			}
		}
	}
	if how != dsm.Prefetching {
		took := uint64(to-from) * uint64(p.w.cfg.Work) * operationCost / 8
		p.clock, p.work = p.clock+took, p.work+took
	}
}

// write says that a part of page i is written.
func (p *proc) write(i int, part extent) {
	pg := &p.w.pages[i]
	if pg.valid&(1<<p.node) == 0 {
		p.fault(i)
	}
	away := int(pg.home)/p.w.cfg.Procs != p.node
	if pg.written&(1<<p.id) == 0 {
		pg.written |= 1 << p.id
		p.dirty = append(p.dirty, i)
		if away {
			p.extents[i] = part
		}
	} else if away {
		e := p.extents[i]
		p.extents[i] = extent{min(e.lo, part.lo), max(e.hi, part.hi)}
	}
}

// turn lets all processes go first that are earlier: what follows touches what they share.
func (p *proc) turn(waits func() bool) {
	p.waits = waits
	if !p.yield(struct{}{}) {
		panic(errStopped)
	}
	p.waits = nil
}

// fault fetches page i to the process's node from its home. While it waits for its turn, another process of the node
// may have fetched it.
func (p *proc) fault(i int) {
	p.turn(nil)
	pg := &p.w.pages[i]
	if pg.valid&(1<<p.node) != 0 {
		return
	}
	addr := sharedBase + uint64(i)*trace.PageSize
	if p.w.cfg.Requests {
		p.message(64)
	}
	p.w.record(p.clock, p.id, trace.Fetch, addr, trace.PageSize)
	p.w.record(p.clock, int(pg.home), trace.Serve, addr, trace.PageSize)
	p.clock += fetchCost
	pg.valid |= 1 << p.node
}

// message sends a short message from the process's control page.
func (p *proc) message(n uint64) { p.w.record(p.clock, p.id, trace.Send, controlPage, n) }

// flush sends what the process changed of page i to the home, if that is elsewhere.
func (p *proc) flush(i int) {
	pg := &p.w.pages[i]
	pg.written &^= 1 << p.id
	e, away := p.extents[i]
	if !away {
		return
	}
	delete(p.extents, i)
	addr := sharedBase + uint64(i)*trace.PageSize + e.lo
	p.w.record(p.clock, p.id, trace.Send, addr, e.hi-e.lo)
	p.w.record(p.clock, int(pg.home), trace.Deposit, addr, e.hi-e.lo)
	p.clock += flushCost
}

// release ends the process's interval: its changes go home, and others will learn which pages they are of.
func (p *proc) release() {
	for _, i := range p.dirty {
		if p.w.pages[i].written&(1<<p.id) != 0 {
			p.flush(i)
		}
	}
	p.intervals = append(p.intervals, slices.Clone(p.dirty))
	p.dirty = p.dirty[:0]
	p.w.nodes[p.node].seen[p.id] = len(p.intervals)
}

// Lock takes a lock, and learns what its latest owner knew.
func (p *proc) Lock(n int) {
	l := p.w.locks[n]
	if l == nil {
		l = &lock{vc: make([]int, len(p.w.procs)), node: -1}
		p.w.locks[n] = l
	}
	p.turn(func() bool { return !l.held })
	l.held = true
	p.clock = max(p.clock, l.at)
	if l.node != p.node {
		p.message(64)
		p.clock += lockCost
	}
	p.w.learn(p.node, l.vc)
}

// Unlock gives a lock back.
func (p *proc) Unlock(n int) {
	p.turn(nil)
	p.release()
	l := p.w.locks[n]
	copy(l.vc, p.w.nodes[p.node].seen)
	l.held, l.at, l.node = false, p.clock, p.node
}

// Barrier waits for all processes; then every node knows of every write.
func (p *proc) Barrier() {
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
