package splash

import (
	"math"

	"multiedge/edge/dsm"
)

// room is how many molecules a cell can hold.
const room = 62

// cell is a cube of the box, and the molecules in it.
type cell struct {
	n      int64
	member [room]int32
}

// side is the number of cells along an edge of the box for n molecules: some eight in each.
func side(n int) int { return max(2, int(math.Cbrt(float64(n)/8))) }

func cellsBytes(n, _ int) int { c := side(n); return n*144 + c*c*c*256 + 3*4096 }

// cells is the state of waterCells: molecules, and lists of them by cell.
type cells struct {
	m      *dsm.Memory
	side   int
	mol    dsm.Array[molecule]
	cell   dsm.Array[cell]
	energy dsm.Array[int64]
}

// waterCells computes the forces between molecules of neighbouring cells. Ranks have cells, not molecules: one that
// leaves its cell is put into another's list under a lock.
func waterCells(m *dsm.Memory, n int) (work func(), result func() uint64) {
	s := side(n)
	c := &cells{m, s, dsm.Alloc[molecule](m, n, dsm.Blocks), dsm.Alloc[cell](m, s*s*s, dsm.Blocks),
		dsm.Alloc[int64](m, waterSteps, dsm.At(0))}
	lo, hi := m.Share(n)
	for i, w := lo, c.mol.Write(lo, hi); i < hi; i++ {
		w[i-lo] = newMolecule(i)
	}
	m.Barrier()
	first, last := m.Share(c.cell.Len())
	list := c.cell.Write(first, last)
	for i, v := range c.mol.Read(0, n) {
		if at := c.of(&v); at >= first && at < last {
			list[at-first].put(i)
		}
	}
	work = func() {
		for step := range waterSteps {
			c.step(step)
		}
	}
	return work, func() (d uint64) {
		for _, e := range c.energy.Read(0, waterSteps) {
			d = add(d, uint64(e))
		}
		return digestOf(d, c.mol.Read(0, n))
	}
}

// of is the cell of a molecule.
func (c *cells) of(v *molecule) (at int) {
	for x := range 3 {
		at = at*c.side + min(c.side-1, max(0, int(v.place[0][x]*float64(c.side))))
	}
	return at
}

func (l *cell) put(i int) {
	if l.n == room {
		panic("splash: a cell is full; take fewer molecules")
	}
	l.member[l.n] = int32(i)
	l.n++
}

// step computes forces, moves molecules, and hands on those that leave their cells.
func (c *cells) step(step int) {
	first, last := c.m.Share(c.cell.Len())
	found := map[int]*forces{}
	for at := first; at < last; at++ {
		c.forces(at, found)
	}
	c.m.Barrier() // nobody reads places any more
	energy := int64(0)
	var leaving []int
	for at := first; at < last; at++ {
		list := &c.cell.Write(at, at+1)[0]
		kept := cell{}
		for _, i := range list.member[:list.n] {
			v := &c.mol.Write(int(i), int(i)+1)[0]
			v.move(found[int(i)])
			energy += int64(v.speed[0][0] * v.speed[0][0] * 1e12 * forceUnit)
			if c.of(v) == at {
				kept.put(int(i))
			} else {
				leaving = append(leaving, int(i))
			}
		}
		*list = kept
	}
	c.m.Barrier()
	for _, i := range leaving {
		v := c.mol.At(i)
		at := c.of(&v)
		c.m.Lock(at % waterLocks)
		c.cell.Write(at, at+1)[0].put(i)
		c.m.Unlock(at % waterLocks)
	}
	c.m.Lock(0)
	c.energy.Set(step, c.energy.At(step)+energy)
	c.m.Unlock(0)
	c.m.Barrier()
}

// forces adds up what acts on the molecules of a cell.
func (c *cells) forces(at int, found map[int]*forces) {
	here := c.cell.At(at)
	for _, i := range here.member[:here.n] {
		sum, p := &forces{}, c.mol.At(int(i))
		c.around(at, func(other int) {
			there := c.cell.At(other)
			for _, j := range there.member[:there.n] {
				if i != j {
					q := c.mol.At(int(j))
					act(&p.place, &q.place, sum, &forces{})
				}
			}
		})
		found[int(i)] = sum
	}
}

// around calls f for a cell and its neighbours.
func (c *cells) around(at int, f func(at int)) {
	x, y, z := at/c.side/c.side, at/c.side%c.side, at%c.side
	for i := max(0, x-1); i <= min(c.side-1, x+1); i++ {
		for j := max(0, y-1); j <= min(c.side-1, y+1); j++ {
			for k := max(0, z-1); k <= min(c.side-1, z+1); k++ {
				f((i*c.side+j)*c.side + k)
			}
		}
	}
}
