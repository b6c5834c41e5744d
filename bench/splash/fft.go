package splash

import (
	"math"
	"math/bits"
	"math/cmplx"

	"multiedge/edge/dsm"
)

func fftBytes(s, _ int) int { return 2 * 16 * s * s }

// fft transforms s*s points in six steps: transpose, transform rows and twiddle, transpose, transform rows, transpose.
// Rows are dealt out in blocks.
func fft(m *dsm.Memory, s int) (work func(), result func() uint64) {
	x, y := dsm.Alloc[complex128](m, s*s, dsm.Blocks), dsm.Alloc[complex128](m, s*s, dsm.Blocks)
	lo, hi := m.Share(s)
	w := x.Own(lo*s, hi*s)
	for i := range w {
		w[i] = complex(uniform(2*(lo*s+i)), uniform(2*(lo*s+i)+1))
	}
	work = func() {
		transpose(m, x, y, s)
		for r := lo; r < hi; r++ {
			row := y.Write(r*s, (r+1)*s)
			transform(row)
			twiddle(row, r, s)
		}
		m.Barrier()
		transpose(m, y, x, s)
		for r := lo; r < hi; r++ {
			transform(x.Write(r*s, (r+1)*s))
		}
		m.Barrier()
		transpose(m, x, y, s)
	}
	return work, func() (d uint64) {
		for r := range s {
			for _, v := range y.Read(r*s, (r+1)*s) {
				d = sum(d, []float64{real(v), imag(v)})
			}
		}
		return d
	}
}

// twiddle turns the points of row r, of s, between both transforms.
func twiddle(row []complex128, r, s int) {
	for j := range row {
		row[j] *= cmplx.Rect(1, -2*math.Pi*float64(r)*float64(j)/float64(s*s))
	}
}

// transpose makes this rank's rows of to from the columns of from, beginning with those of the next rank so that not
// all read of one.
func transpose(m *dsm.Memory, from, to dsm.Array[complex128], s int) {
	lo, hi := m.Share(s)
	for k := range m.Ranks() {
		first, last := m.ShareOf((m.Rank()+k)%m.Ranks(), s)
		if 16*s <= page { // something of each page is wanted
			from.Prefetch(first*s, last*s)
			continue
		}
		for j := first; j < last; j++ {
			from.Prefetch(j*s+lo, j*s+hi)
		}
	}
	rows := to.Own(lo*s, hi*s)
	for k := range m.Ranks() {
		first, last := m.ShareOf((m.Rank()+k)%m.Ranks(), s)
		for j := first; j < last; j++ {
			for i, v := range from.Read(j*s+lo, j*s+hi) {
				rows[i*s+j] = v
			}
		}
	}
}

// transform is the transform of a row, in place.
func transform(a []complex128) {
	n := len(a)
	shift := 64 - bits.Len(uint(n-1))
	for i := range a {
		if j := int(bits.Reverse64(uint64(i)) >> shift); i < j {
			a[i], a[j] = a[j], a[i]
		}
	}
	for size := 2; size <= n; size *= 2 {
		step := cmplx.Rect(1, -2*math.Pi/float64(size))
		for at := 0; at < n; at += size {
			root := complex(1, 0)
			for i := at; i < at+size/2; i++ {
				e, o := a[i], root*a[i+size/2]
				a[i], a[i+size/2] = e+o, e-o
				root *= step
			}
		}
	}
}
