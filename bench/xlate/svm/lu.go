package svm

import (
	"fmt"
	"math"
)

// luBlock is the side of a block: 2 KiB of contiguous memory.
const luBlock = 16

// lu factors a dense matrix in blocks that are contiguous in memory and scattered over a grid of processes, which own
// them: step k factors the diagonal
// block, then its row and column, then what is right of and below them.
type lu struct {
	blocks     int // of a side
	rows, cols int // of processes
	at         uint64
	a          []float64 // block by block
}

func buildLU(w *World, scale float64) (func(*Proc), string) {
	l := newLU(w, scale)
	n := l.blocks * luBlock
	return l.run, fmt.Sprintf("%d x %d matrix", n, n)
}

func newLU(w *World, scale float64) *lu {
	l := &lu{blocks: max(4, int(math.Round(256*math.Sqrt(scale))))}
	l.rows, l.cols = grid(w.P())
	bytes := l.blocks * l.blocks * luBlock * luBlock * 8
	// Blocks lie in memory by owner, so that a page is of one.
	l.at = w.Alloc(bytes+w.P()*l.slot(), func(page, _ int) int { return min(page*4096/l.slot(), w.P()-1) })
	if w.cfg.Arithmetic {
		l.a = make([]float64, l.blocks*l.blocks*luBlock*luBlock)
	}
	return l
}

const luBytes = luBlock * luBlock * 8

// slot is the room for the blocks of one process, in whole pages.
func (l *lu) slot() int {
	up := ((l.blocks + l.rows - 1) / l.rows) * ((l.blocks + l.cols - 1) / l.cols) * luBytes
	return (up + 4095) &^ 4095
}

func (l *lu) owner(i, j int) int { return i%l.rows*l.cols + j%l.cols }

// addr is where block i, j is.
func (l *lu) addr(i, j int) uint64 {
	per := (l.blocks + l.cols - 1) / l.cols
	return l.at + uint64(l.owner(i, j)*l.slot()+(i/l.rows*per+j/l.cols)*luBytes)
}

// block returns the numbers of block i, j by rows; nil without arithmetic.
func (l *lu) block(i, j int) []float64 {
	if l.a == nil {
		return nil
	}
	n := luBlock * luBlock
	return l.a[(i*l.blocks+j)*n : (i*l.blocks+j+1)*n]
}

// update tracks the accesses of a block operation that reads src and changes dst.
func (l *lu) update(p *Proc, dst uint64, work int, src ...uint64) {
	for _, s := range src {
		p.Read(s, luBytes)
	}
	p.Write(dst, luBytes)
	p.Work(work)
}

func (l *lu) run(p *Proc) {
	const cube = luBlock * luBlock * luBlock
	for k := range l.blocks {
		if l.owner(k, k) == p.ID {
			l.update(p, l.addr(k, k), cube/3)
			factorDiagonal(l.block(k, k))
		}
		p.Barrier()
		for i := k + 1; i < l.blocks; i++ {
			if l.owner(i, k) == p.ID {
				l.update(p, l.addr(i, k), cube/2, l.addr(k, k))
				solveRight(l.block(i, k), l.block(k, k))
			}
			if l.owner(k, i) == p.ID {
				l.update(p, l.addr(k, i), cube/2, l.addr(k, k))
				solveLeft(l.block(k, i), l.block(k, k))
			}
		}
		p.Barrier()
		for i := k + 1; i < l.blocks; i++ {
			for j := k + 1; j < l.blocks; j++ {
				if l.owner(i, j) == p.ID {
					l.update(p, l.addr(i, j), cube, l.addr(i, k), l.addr(k, j))
					multiplySubtract(l.block(i, j), l.block(i, k), l.block(k, j))
				}
			}
		}
		p.Barrier()
	}
}

// factorDiagonal factors a block in place, without pivots.
func factorDiagonal(a []float64) {
	for k := 0; a != nil && k < luBlock; k++ {
		for i := k + 1; i < luBlock; i++ {
			a[i*luBlock+k] /= a[k*luBlock+k]
			for j := k + 1; j < luBlock; j++ {
				a[i*luBlock+j] -= a[i*luBlock+k] * a[k*luBlock+j]
			}
		}
	}
}

// solveRight makes a into a times the inverse of d's upper triangle.
func solveRight(a, d []float64) {
	for k := 0; a != nil && k < luBlock; k++ {
		for i := range luBlock {
			a[i*luBlock+k] /= d[k*luBlock+k]
			for j := k + 1; j < luBlock; j++ {
				a[i*luBlock+j] -= a[i*luBlock+k] * d[k*luBlock+j]
			}
		}
	}
}

// solveLeft makes a into the inverse of d's unit lower triangle times a.
func solveLeft(a, d []float64) {
	for k := 0; a != nil && k < luBlock; k++ {
		for i := k + 1; i < luBlock; i++ {
			for j := range luBlock {
				a[i*luBlock+j] -= d[i*luBlock+k] * a[k*luBlock+j]
			}
		}
	}
}

// multiplySubtract takes b times c from a.
func multiplySubtract(a, b, c []float64) {
	for i := 0; a != nil && i < luBlock; i++ {
		for k := range luBlock {
			for j := range luBlock {
				a[i*luBlock+j] -= b[i*luBlock+k] * c[k*luBlock+j]
			}
		}
	}
}
