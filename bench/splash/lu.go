package splash

import (
	"math"

	"multiedge/edge/dsm"
)

// block is the number of rows and columns of a block of a matrix.
const block = 16

func luBytes(s, _ int) int { return 8*s*s + s*s/block }

// tile is the rows of a block.
type tile [block]*[block]float64

// matrix is a shared matrix in blocks, which are dealt out to ranks in two dimensions.
type matrix struct {
	m    *dsm.Memory
	a    dsm.Array[float64]
	s    int  // rows and columns
	rows bool // rows of the matrix lie one behind the other; otherwise blocks do
}

// owner is the rank that computes block i, j.
func owner(ranks, i, j int) int {
	down := int(math.Sqrt(float64(ranks)))
	for ranks%down != 0 {
		down--
	}
	return i%down*(ranks/down) + j%(ranks/down)
}

func (x *matrix) mine(i, j int) bool { return owner(x.m.Ranks(), i, j) == x.m.Rank() }

// row is where row r of block i, j is.
func (x *matrix) row(i, j, r int) (lo, hi int) {
	lo = ((i*x.s/block+j)*block + r) * block
	if x.rows {
		lo = (i*block+r)*x.s + j*block
	}
	return lo, lo + block
}

func (x *matrix) read(i, j int) (t tile) {
	for r := range t {
		t[r] = (*[block]float64)(x.a.Read(x.row(i, j, r)))
	}
	return t
}

func (x *matrix) write(i, j int) (t tile) {
	for r := range t {
		t[r] = (*[block]float64)(x.a.Write(x.row(i, j, r)))
	}
	return t
}

func (x *matrix) prefetch(i, j int) {
	for r := range block {
		x.a.Prefetch(x.row(i, j, r))
	}
}

// luContiguous factors a matrix of s rows whose blocks are contiguous, each at home where it is computed, but for the
// second block of a page.
func luContiguous(m *dsm.Memory, s int) (work func(), result func() uint64) {
	homes := func(number, _, ranks int) int {
		b := number * page / (8 * block * block)
		return owner(ranks, b/(s/block), b%(s/block))
	}
	return lu(&matrix{m: m, a: dsm.Alloc[float64](m, s*s, homes), s: s})
}

// luRows factors a matrix of s rows that lie one behind the other.
func luRows(m *dsm.Memory, s int) (work func(), result func() uint64) {
	return lu(&matrix{m: m, a: dsm.Alloc[float64](m, s*s, dsm.Turns), s: s, rows: true})
}

func lu(x *matrix) (work func(), result func() uint64) {
	n := x.s / block
	for i := range n {
		for j := range n {
			if x.mine(i, j) {
				for r, row := range x.write(i, j) {
					for c := range row {
						row[c] = uniform((i*block+r)*x.s + j*block + c)
						if i == j && r == c {
							row[c] += float64(x.s)
						}
					}
				}
			}
		}
	}
	work = func() {
		for k := range n {
			if x.mine(k, k) {
				factor(x.write(k, k))
			}
			x.m.Barrier()
			x.perimeter(k, n)
			x.m.Barrier()
			x.interior(k, n)
		}
	}
	return work, func() (d uint64) {
		for i := range x.s {
			d = sum(d, x.a.Read(i*x.s, (i+1)*x.s))
		}
		return d
	}
}

// perimeter divides the blocks of row and column k by the diagonal block.
func (x *matrix) perimeter(k, n int) {
	for i := k + 1; i < n; i++ {
		if x.mine(i, k) {
			below(x.write(i, k), x.read(k, k))
		}
		if x.mine(k, i) {
			right(x.write(k, i), x.read(k, k))
		}
	}
}

// interior takes the products of column k and row k from the blocks below and to the right.
func (x *matrix) interior(k, n int) {
	for i := k + 1; i < n; i++ {
		for j := k + 1; j < n; j++ {
			if x.mine(i, j) {
				x.prefetch(i, k)
				x.prefetch(k, j)
			}
		}
	}
	for i := k + 1; i < n; i++ {
		for j := k + 1; j < n; j++ {
			if x.mine(i, j) {
				subtract(x.write(i, j), x.read(i, k), x.read(k, j))
			}
		}
	}
}

// factor is the decomposition of a diagonal block.
func factor(d tile) {
	for c := range block {
		for r := c + 1; r < block; r++ {
			d[r][c] /= d[c][c]
			for x := c + 1; x < block; x++ {
				d[r][x] -= d[r][c] * d[c][x]
			}
		}
	}
}

// below solves w = v*U of the diagonal block d.
func below(w, d tile) {
	for r := range block {
		for c := range block {
			v := w[r][c]
			for x := range c {
				v -= w[r][x] * d[x][c]
			}
			w[r][c] = v / d[c][c]
		}
	}
}

// right solves w = L*v of the diagonal block d.
func right(w, d tile) {
	for c := range block {
		for r := range block {
			v := w[r][c]
			for x := range r {
				v -= d[r][x] * w[x][c]
			}
			w[r][c] = v
		}
	}
}

// subtract takes the product of l and u from w.
func subtract(w, l, u tile) {
	for r := range block {
		to := w[r]
		for x, f := range l[r] {
			for c, v := range u[x] {
				to[c] -= f * v
			}
		}
	}
}
