package svm

import (
	"fmt"
	"math"
)

// luBlock is the side of a block: 2 KiB of contiguous memory.
const luBlock = 16

// lu touches the memory of a dense matrix that is factored, in blocks that are contiguous in memory and scattered over
// a grid of processes, which own them: step k factors the diagonal block, then its row and column, then what is right
// of and below them. Accesses do not depend on data, so nothing is computed; the program in bench/splash computes.
type lu struct {
	blocks     int // of a side
	rows, cols int // of processes
	at         uint64
}

func buildLU(w *World, scale float64) (func(*Proc), string) {
	l := &lu{blocks: max(4, int(math.Round(256*math.Sqrt(scale))))}
	l.rows, l.cols = grid(w.P())
	bytes := l.blocks * l.blocks * luBlock * luBlock * 8
	// Blocks lie in memory by owner, so that a page is of one.
	l.at = w.Alloc(bytes+w.P()*l.slot(), func(page, _ int) int { return min(page*4096/l.slot(), w.P()-1) })
	n := l.blocks * luBlock
	return l.run, fmt.Sprintf("%d x %d matrix", n, n)
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
		}
		p.Barrier()
		for i := k + 1; i < l.blocks; i++ {
			if l.owner(i, k) == p.ID {
				l.update(p, l.addr(i, k), cube/2, l.addr(k, k))
			}
			if l.owner(k, i) == p.ID {
				l.update(p, l.addr(k, i), cube/2, l.addr(k, k))
			}
		}
		p.Barrier()
		for i := k + 1; i < l.blocks; i++ {
			for j := k + 1; j < l.blocks; j++ {
				if l.owner(i, j) == p.ID {
					l.update(p, l.addr(i, j), cube, l.addr(i, k), l.addr(k, j))
				}
			}
		}
		p.Barrier()
	}
}
