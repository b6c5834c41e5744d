package svm

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

const (
	bodyBytes   = 128
	cellBytes   = 256
	barnesSteps = 3
	opening     = 0.9 // a cell is one mass when its side is less than this times its distance
	regions     = 64  // parts of space, two levels of the tree down, whose subtrees are built each by one process
	maxDepth    = 24
)

type vec [3]float64

// barnes moves bodies under gravity by the method of Barnes and Hut. A body stays where it was in memory; who moves it
// depends on where it is in
// space, so that pages of bodies are shared by many.
type barnes struct {
	n             int
	bodies, cells uint64
	pos, vel, acc []vec
	order         []int // bodies by place in space: each process has a run of it
	key           []uint64
	cell          []cell // cells of all: each process has its own part of the array
	next          []int  // by process: its next free cell
	roots         [regions]int
}

// cell is a node of the tree. Children: 0 none, positive cell, negative body (less one).
type cell struct {
	child  [8]int32
	centre vec
	mass   float64
	mid    vec
	half   float64
}

func buildBarnes(w *World, scale float64) (func(*Proc), string) {
	b := newBarnes(w, scale)
	return b.run, fmt.Sprintf("%d bodies, %d steps", b.n, barnesSteps)
}

func newBarnes(w *World, scale float64) *barnes {
	b := &barnes{n: max(w.P()*16, int(scale*(32<<10)))}
	b.bodies = w.Alloc(b.n*bodyBytes, w.Blocks)
	b.cell = make([]cell, w.P()*b.pool(w))
	b.cells = w.Alloc(len(b.cell)*cellBytes, w.Blocks)
	b.pos, b.vel, b.acc = make([]vec, b.n), make([]vec, b.n), make([]vec, b.n)
	b.order, b.key, b.next = make([]int, b.n), make([]uint64, b.n), make([]int, w.P())
	random := w.procs[0].Rand
	for i := range b.n { // dense in the middle, as a cluster of stars
		r := 0.45 * math.Pow(random.Float64(), 1.2)
		z, phi := 2*random.Float64()-1, 2*math.Pi*random.Float64()
		flat := math.Sqrt(1 - z*z)
		b.pos[i] = vec{0.5 + r*flat*math.Cos(phi), 0.5 + r*flat*math.Sin(phi), 0.5 + r*z}
		b.order[i] = i
	}
	return b
}

// pool is how many cells a process can have: a region is one process's, and regions may be dense.
func (b *barnes) pool(w *World) int { return 8*b.n/w.P() + 4*maxDepth*regions }

func (b *barnes) bodyAddr(i int) uint64 { return b.bodies + uint64(i*bodyBytes) }
func (b *barnes) cellAddr(i int) uint64 { return b.cells + uint64(i*cellBytes) }

func (b *barnes) run(p *Proc) {
	for range barnesSteps {
		if p.ID == 0 {
			b.sort()
		}
		p.Barrier()
		b.build(p)
		p.Barrier()
		lo, hi := share(p.ID, p.w.P(), b.n)
		for _, i := range b.order[lo:hi] {
			b.acc[i] = b.force(p, i)
			p.Write(b.bodyAddr(i)+64, 24)
		}
		p.Barrier()
		for _, i := range b.order[lo:hi] {
			b.move(p, i)
		}
		p.Barrier()
	}
}

// sort orders bodies along a space-filling curve: the costzones of the method, which cost no communication worth a
// trace.
func (b *barnes) sort() {
	for i, x := range b.pos {
		k := uint64(0)
		for bit := 19; bit >= 0; bit-- {
			for d := range 3 {
				k = k<<1 | uint64(int(x[d]*(1<<20)))>>bit&1
			}
		}
		b.key[i] = k
	}
	slices.SortFunc(b.order, func(i, j int) int { return cmp.Or(cmp.Compare(b.key[i], b.key[j]), i-j) })
}

// build makes the subtrees of the process's regions, of the bodies that are there, whoever moves them.
func (b *barnes) build(p *Proc) {
	b.next[p.ID] = max(1, p.ID*len(b.cell)/p.w.P()) // cell 0 is none
	for r := range regions {
		before := func(i int, k uint64) int { return order(b.key[i], k) }
		first, _ := slices.BinarySearchFunc(b.order, uint64(r)<<54, before)
		last, _ := slices.BinarySearchFunc(b.order, uint64(r+1)<<54, before)
		if min((first+last)/2*p.w.P()/b.n, p.w.P()-1) != p.ID { // whoever moves most of them
			continue
		}
		b.roots[r] = 0
		if first == last {
			continue
		}
		mid := vec{}
		for d := range 3 {
			mid[d] = (float64(r>>(5-d)&1)*2+float64(r>>(2-d)&1))/4 + 0.125
		}
		b.roots[r] = b.newCell(p, mid, 0.125)
		for _, i := range b.order[first:last] {
			p.Read(b.bodyAddr(i), 32)
			b.insert(p, b.roots[r], i)
		}
		b.sum(p, b.roots[r])
	}
}

func order(a, b uint64) int {
	if a < b {
		return -1
	}
	return 1
}

func (b *barnes) newCell(p *Proc, mid vec, half float64) int {
	i := b.next[p.ID]
	if i >= (p.ID+1)*len(b.cell)/p.w.P() {
		panic("BUG: svm: barnes: a process has too few cells")
	}
	b.next[p.ID]++
	b.cell[i] = cell{mid: mid, half: half}
	p.Write(b.cellAddr(i), cellBytes)
	return i
}

// insert puts body i below cell c.
func (b *barnes) insert(p *Proc, c, i int) {
	for depth := 0; ; depth++ {
		p.Read(b.cellAddr(c), 64)
		p.Work(6)
		n := &b.cell[c]
		o := octant(n.mid, b.pos[i])
		child := n.child[o]
		switch {
		case child > 0:
			c = int(child)
			continue
		case child == 0 || depth > maxDepth: // bodies at the very same place: the later one stands for both
			n.child[o] = -int32(i) - 1
			p.Write(b.cellAddr(c), 32)
			return
		}
		q := n.half / 2
		mid := n.mid
		for d := range 3 {
			mid[d] += q * float64(o>>d&1*2-1)
		}
		fresh := b.newCell(p, mid, q)
		other := int(-child - 1)
		b.cell[fresh].child[octant(mid, b.pos[other])] = child
		b.cell[c].child[o] = int32(fresh)
		p.Write(b.cellAddr(c), 32)
		c = fresh
	}
}

func octant(mid, x vec) (o int) {
	for d := range 3 {
		if x[d] >= mid[d] {
			o |= 1 << d
		}
	}
	return o
}

// sum computes the masses and centres of cell c and those below it.
func (b *barnes) sum(p *Proc, c int) {
	n := &b.cell[c]
	p.Read(b.cellAddr(c), 64)
	for _, child := range n.child {
		x, m := vec{}, 1.0
		switch {
		case child == 0:
			continue
		case child > 0:
			b.sum(p, int(child))
			x, m = b.cell[child].centre, b.cell[child].mass
		default:
			x = b.pos[-child-1]
		}
		for d := range 3 {
			n.centre[d] = (n.centre[d]*n.mass + x[d]*m) / (n.mass + m)
		}
		n.mass += m
	}
	p.Write(b.cellAddr(c)+64, 32)
	p.Work(40)
}

// force is the acceleration of body i.
func (b *barnes) force(p *Proc, i int) (a vec) {
	p.Read(b.bodyAddr(i), 32)
	pull := func(x vec, m float64) {
		d := vec{x[0] - b.pos[i][0], x[1] - b.pos[i][1], x[2] - b.pos[i][2]}
		r2 := d[0]*d[0] + d[1]*d[1] + d[2]*d[2] + 1e-6
		s := m / (r2 * math.Sqrt(r2))
		for k := range 3 {
			a[k] += s * d[k]
		}
		p.Work(20)
	}
	var walk func(c int)
	walk = func(c int) {
		n := &b.cell[c]
		p.Read(b.cellAddr(c)+64, 64)
		dx, dy, dz := n.centre[0]-b.pos[i][0], n.centre[1]-b.pos[i][1], n.centre[2]-b.pos[i][2]
		if side := 2 * n.half; side*side < opening*opening*(dx*dx+dy*dy+dz*dz) {
			pull(n.centre, n.mass)
			return
		}
		p.Read(b.cellAddr(c), 32)
		for _, child := range n.child {
			switch {
			case child > 0:
				walk(int(child))
			case child < 0 && int(-child-1) != i:
				p.Read(b.bodyAddr(int(-child-1)), 32)
				pull(b.pos[-child-1], 1)
			}
		}
	}
	for _, c := range b.roots {
		if c != 0 {
			walk(c)
		}
	}
	return a
}

// move advances body i; the walls of the box throw it back.
func (b *barnes) move(p *Proc, i int) {
	const dt = 1e-6
	p.Write(b.bodyAddr(i), 64)
	p.Work(20)
	for d := range 3 {
		b.vel[i][d] += dt * b.acc[i][d]
		b.pos[i][d] += dt * b.vel[i][d]
		if x := b.pos[i][d]; x < 0 || x > 0.999999 {
			b.pos[i][d], b.vel[i][d] = min(max(x, 0), 0.999999), -b.vel[i][d]
		}
	}
}
