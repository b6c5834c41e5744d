package svm

import (
	"fmt"
	"math"
)

const (
	oceanGrids  = 12 // of which a step sweeps over all
	oceanSteps  = 3
	oceanSweeps = 4 // of the relaxation, on every level
)

// ocean relaxes grids by red-black sweeps on several levels. Every process has a rectangle of each grid that is
// contiguous in memory, and reads the borders of its four
// neighbours: rows lie together, columns in as many places as there are rows. Accesses do not depend on data.
type ocean struct {
	n          int // points of a side, without the border
	rows, cols int
	grids      []uint64 // the finest, all alike
	levels     []oceanLevel
	lock       int
	sum        uint64
}

// oceanLevel is a grid of the multigrid solver.
type oceanLevel struct {
	n  int
	at uint64
}

func buildOcean(w *World, scale float64) (func(*Proc), string) {
	o := &ocean{n: powerOfTwo(1024*math.Sqrt(scale), 4*w.P())}
	o.rows, o.cols = grid(w.P())
	for range oceanGrids {
		o.grids = append(o.grids, w.Alloc(8*o.n*o.n, w.Blocks))
	}
	for n := o.n; n >= 4*max(o.rows, o.cols); n /= 2 {
		o.levels = append(o.levels, oceanLevel{n, w.Alloc(8*n*n, w.Blocks)})
	}
	o.lock, o.sum = w.Locks(1), w.Alloc(4096, w.Blocks)
	return o.run, fmt.Sprintf("%d x %d grid, %d of them, %d steps", o.n+2, o.n+2, oceanGrids, oceanSteps)
}

func (o *ocean) run(p *Proc) {
	for range oceanSteps {
		for g, at := range o.grids { // the terms of the equations: each grid from another
			o.sweep(p, oceanLevel{o.n, o.grids[(g+1)%len(o.grids)]}, at)
			p.Barrier()
		}
		for _, l := range o.levels { // down
			o.relax(p, l)
		}
		for i := len(o.levels) - 1; i >= 0; i-- { // and up again
			o.relax(p, o.levels[i])
		}
		p.Lock(o.lock)
		p.Write(o.sum, 8)
		p.Unlock(o.lock)
		p.Barrier()
	}
}

func (o *ocean) relax(p *Proc, l oceanLevel) {
	for range oceanSweeps {
		for range 2 { // red, black
			o.sweep(p, l, l.at)
			p.Barrier()
		}
	}
}

// sweep computes the process's part of the grid at dst of its part of l and the neighbours' borders.
func (o *ocean) sweep(p *Proc, l oceanLevel, dst uint64) {
	h, w := l.n/o.rows, l.n/o.cols
	r, c := p.ID/o.cols, p.ID%o.cols
	part := func(r, c int) uint64 { return l.at + uint64(8*h*w*(r*o.cols+c)) }
	if r > 0 {
		p.Read(part(r-1, c)+uint64(8*w*(h-1)), 8*w)
	}
	if r < o.rows-1 {
		p.Read(part(r+1, c), 8*w)
	}
	for i := range h {
		if c > 0 {
			p.Read(part(r, c-1)+uint64(8*(i*w+w-1)), 8)
		}
		if c < o.cols-1 {
			p.Read(part(r, c+1)+uint64(8*i*w), 8)
		}
	}
	p.Read(part(r, c), 8*h*w)
	p.Write(dst+uint64(8*h*w*p.ID), 8*h*w)
	p.Work(6 * h * w)
}
