package svm

import (
	"fmt"
	"math"
	"math/bits"
)

// fft touches the memory of the six-step transform of m x m complex numbers: transpositions between matrices that lie
// in blocks of rows by process, and transforms of whole rows between them. Communication is in the transpositions
// alone. It transforms forward and back, as the program's self-test does. Accesses do not depend on data, so nothing is
// computed; the program in bench/splash computes.
type fft struct {
	m       int
	x, t, u uint64 // addresses of the data, its transpose and the roots
	rowCost int
}

// rowPad is what rows are longer than they need be, in numbers: a line of a processor's cache, so that columns do not
// meet there.
const rowPad = 4

// at is the address of number j of row i.
func (f *fft) at(base uint64, i, j int) uint64 { return base + uint64(16*(i*(f.m+rowPad)+j)) }

func buildFFT(w *World, scale float64) (func(*Proc), string) {
	f := &fft{m: powerOfTwo(2048*math.Sqrt(scale), max(16, w.P()))}
	n := f.m * f.m
	for _, at := range []*uint64{&f.x, &f.t, &f.u} {
		*at = w.Alloc(16*(n+f.m*rowPad), w.Blocks)
	}
	f.rowCost = 5 * f.m * bits.Len(uint(f.m-1))
	return func(p *Proc) { f.transform(p); f.transform(p) }, fmt.Sprintf("%d points, there and back", n)
}

// transform leaves the transform of x in x. There and back cost the same.
func (f *fft) transform(p *Proc) {
	lo, hi := share(p.ID, p.w.P(), f.m)
	f.transpose(p, f.x, f.t)
	for r := lo; r < hi; r++ {
		f.row(p, f.t, r)
		p.Read(f.at(f.u, r, 0), 16*f.m) // its roots of unity
		p.Work(6 * f.m)
	}
	p.Barrier()
	f.transpose(p, f.t, f.x)
	for r := lo; r < hi; r++ {
		f.row(p, f.x, r)
	}
	p.Barrier()
	f.transpose(p, f.x, f.t)
	p.Barrier()
	for r := lo; r < hi; r++ { // back to where it came from
		p.Read(f.at(f.t, r, 0), 16*f.m)
		p.Write(f.at(f.x, r, 0), 16*f.m)
	}
	p.Barrier()
}

// transpose fills the process's rows of to with columns of from, beginning with the part that the next process has, so
// that not all ask the first.
func (f *fft) transpose(p *Proc, from, to uint64) {
	lo, hi := share(p.ID, p.w.P(), f.m)
	for k := range p.w.P() {
		qlo, qhi := share((p.ID+1+k)%p.w.P(), p.w.P(), f.m)
		for j := qlo; j < qhi; j++ {
			p.Read(f.at(from, j, lo), 16*(hi-lo))
		}
		for i := lo; i < hi; i++ {
			p.Write(f.at(to, i, qlo), 16*(qhi-qlo))
		}
		p.Work(2 * (hi - lo) * (qhi - qlo))
	}
}

// row transforms row r in place.
func (f *fft) row(p *Proc, base uint64, r int) {
	p.Read(f.u, 16*f.m)
	p.Read(f.at(base, r, 0), 16*f.m)
	p.Write(f.at(base, r, 0), 16*f.m)
	p.Work(f.rowCost)
}
