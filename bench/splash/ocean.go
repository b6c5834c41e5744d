package splash

import (
	"math"

	"multiedge/edge/dsm"
)

const oceanSweeps = 20

func oceanBytes(s, ranks int) int { return (s+2)*8*stride(s) + ranks*page }

// stride is from one row of a grid to the next: rows begin at pages, so that no two ranks write to one.
func stride(s int) int { return (8*(s+2) + page - 1) / page * page / 8 }

// ocean relaxes a grid of s rows and columns and a border, red and black points in turn. Each rank keeps its greatest
// change of each sweep on a page of its own, and rank 0 finds the greatest of all, as its version by hand does.
func ocean(m *dsm.Memory, s int) (work func(), result func() uint64) {
	width, apart := s+2, stride(s)
	g := dsm.Alloc[float64](m, width*apart, func(number, _, ranks int) int {
		row := min(max(number*page/8/apart-1, 0), s-1) // the border is with the row beside it
		return ((row+1)*ranks - 1) / s
	})
	change := dsm.Alloc[float64](m, m.Ranks()*page/8, dsm.Turns)
	lo, hi := m.Share(s)
	lo, hi = lo+1, hi+1
	g.Follow((lo-1)*apart, (lo-1)*apart+width) // of the ranks beside this one
	g.Follow(hi*apart, hi*apart+width)
	from, to := lo, hi
	if from == 1 {
		from = 0
	}
	if to == s+1 {
		to = width
	}
	for r := from; r < to; r++ {
		for i, w := 0, g.Write(r*apart, r*apart+width); i < width; i++ {
			w[i] = uniform(r*width + i)
		}
	}
	work = func() {
		for sweep := range oceanSweeps {
			greatest := 0.0
			for colour := range 2 {
				greatest = max(greatest, relax(g, width, apart, lo, hi, colour))
				m.Barrier()
			}
			change.Set(m.Rank()*page/8+sweep, greatest)
		}
	}
	return work, func() (d uint64) {
		for i := range width {
			d = sum(d, g.Read(i*apart, i*apart+width))
		}
		for sweep := range oceanSweeps {
			greatest := 0.0
			for rank := range m.Ranks() {
				greatest = max(greatest, change.At(rank*page/8+sweep))
			}
			d = sum(d, []float64{greatest})
		}
		return d
	}
}

// relax computes the points of a colour in rows lo up to hi, and returns the greatest change.
func relax(g dsm.Array[float64], width, apart, lo, hi, colour int) float64 {
	g.Prefetch((lo-1)*apart, (lo-1)*apart+width)
	g.Prefetch(hi*apart, hi*apart+width)
	rows := make([][]float64, 0, hi-lo+2)
	rows = append(rows, g.Read((lo-1)*apart, (lo-1)*apart+width))
	for i := lo; i < hi; i++ {
		rows = append(rows, g.Write(i*apart, i*apart+width))
	}
	rows = append(rows, g.Read(hi*apart, hi*apart+width))
	return sweepRows(rows, lo, colour)
}

// sweepRows computes the points of a colour in all rows but the first and the last; the second is row lo of the grid.
func sweepRows(rows [][]float64, lo, colour int) (greatest float64) {
	for i := 1; i < len(rows)-1; i++ {
		above, row, under := rows[i-1], rows[i], rows[i+1]
		for j := 1 + (lo+i+colour)%2; j < len(row)-1; j += 2 {
			before := row[j]
			row[j] = 0.2 * (row[j] + row[j-1] + row[j+1] + above[j] + under[j])
			greatest = max(greatest, math.Abs(row[j]-before))
		}
	}
	return greatest
}
