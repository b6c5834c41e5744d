package svm

import (
	"fmt"
	"math"
	"math/bits"
	"math/cmplx"
)

// fft is the six-step transform of m x m complex numbers: transpositions between matrices that lie in blocks of rows by
// process, and transforms
// of whole rows between them. Communication is in the transpositions alone. It transforms forward and back, as the
// program's self-test does.
type fft struct {
	m          int
	x, t, u    uint64 // addresses of the data, its transpose and the roots
	data, flip []complex128
	rowCost    int
}

// rowPad is what rows are longer than they need be, in numbers: a line of a processor's cache, so that columns do not
// meet there.
const rowPad = 4

// at is the address of number j of row i.
func (f *fft) at(base uint64, i, j int) uint64 { return base + uint64(16*(i*(f.m+rowPad)+j)) }

func buildFFT(w *World, scale float64) (func(*Proc), string) {
	f := newFFT(w, scale)
	return func(p *Proc) { f.transform(p, 1); f.transform(p, -1) }, fmt.Sprintf("%d points, there and back", f.m*f.m)
}

func newFFT(w *World, scale float64) *fft {
	f := &fft{m: powerOfTwo(2048*math.Sqrt(scale), max(16, w.P()))}
	n := f.m * f.m
	for _, at := range []*uint64{&f.x, &f.t, &f.u} {
		*at = w.Alloc(16*(n+f.m*rowPad), w.Blocks)
	}
	f.rowCost = 5 * f.m * bits.Len(uint(f.m-1))
	if w.cfg.Arithmetic {
		f.data, f.flip = make([]complex128, n), make([]complex128, n)
	}
	return f
}

// transform leaves the transform of data in data.
func (f *fft) transform(p *Proc, sign float64) {
	lo, hi := share(p.ID, p.w.P(), f.m)
	f.transpose(p, f.x, f.t, f.data, f.flip)
	for r := lo; r < hi; r++ {
		f.row(p, f.t, f.flip, r, sign)
		f.twiddle(p, r, sign)
	}
	p.Barrier()
	f.transpose(p, f.t, f.x, f.flip, f.data)
	for r := lo; r < hi; r++ {
		f.row(p, f.x, f.data, r, sign)
	}
	p.Barrier()
	f.transpose(p, f.x, f.t, f.data, f.flip)
	p.Barrier()
	for r := lo; r < hi; r++ { // back to where it came from
		p.Read(f.at(f.t, r, 0), 16*f.m)
		p.Write(f.at(f.x, r, 0), 16*f.m)
		if f.data != nil {
			copy(f.data[r*f.m:(r+1)*f.m], f.flip[r*f.m:(r+1)*f.m])
		}
	}
	p.Barrier()
}

// transpose fills the process's rows of to with columns of from, beginning with the part that the next process has, so
// that not all ask the first.
func (f *fft) transpose(p *Proc, from, to uint64, src, dst []complex128) {
	lo, hi := share(p.ID, p.w.P(), f.m)
	for k := range p.w.P() {
		qlo, qhi := share((p.ID+1+k)%p.w.P(), p.w.P(), f.m)
		for j := qlo; j < qhi; j++ {
			p.Read(f.at(from, j, lo), 16*(hi-lo))
			if src != nil {
				for i := lo; i < hi; i++ {
					dst[i*f.m+j] = src[j*f.m+i]
				}
			}
		}
		for i := lo; i < hi; i++ {
			p.Write(f.at(to, i, qlo), 16*(qhi-qlo))
		}
		p.Work(2 * (hi - lo) * (qhi - qlo))
	}
}

// row transforms row r in place.
func (f *fft) row(p *Proc, base uint64, data []complex128, r int, sign float64) {
	p.Read(f.u, 16*f.m)
	p.Read(f.at(base, r, 0), 16*f.m)
	p.Write(f.at(base, r, 0), 16*f.m)
	p.Work(f.rowCost)
	if data != nil {
		transformRow(data[r*f.m:(r+1)*f.m], sign)
	}
}

// twiddle multiplies row r by its roots of unity.
func (f *fft) twiddle(p *Proc, r int, sign float64) {
	p.Read(f.at(f.u, r, 0), 16*f.m)
	p.Work(6 * f.m)
	if f.flip != nil {
		for j := range f.m {
			f.flip[r*f.m+j] *= cmplx.Rect(1, -sign*2*math.Pi*float64(r)*float64(j)/float64(f.m*f.m))
		}
	}
}

// transformRow is the iterative transform of a power of two, without scaling.
func transformRow(a []complex128, sign float64) {
	n := len(a)
	shift := 64 - bits.Len(uint(n-1))
	for i := range a {
		if j := int(bits.Reverse64(uint64(i)) >> shift); i < j {
			a[i], a[j] = a[j], a[i]
		}
	}
	for size := 2; size <= n; size *= 2 {
		step := cmplx.Rect(1, -sign*2*math.Pi/float64(size))
		for at := 0; at < n; at += size {
			root := complex(1, 0)
			for i := at; i < at+size/2; i++ {
				even, odd := a[i], root*a[i+size/2]
				a[i], a[i+size/2] = even+odd, even-odd
				root *= step
			}
		}
	}
}
