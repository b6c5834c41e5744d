package splash

import (
	"math"

	"multiedge/edge/dsm"
)

const (
	barnesSteps = 2
	openness    = 0.7 // a cell that is wider than this share of its distance is opened
	octants     = 64  // cubes of the second level, each with a lock
	fixed       = 1 + 8 + octants
	deepest     = 60 // levels
)

// body is a mass that moves.
type body struct{ place, speed [3]float64 }

// node is a cube of the tree. A child is the number of a node, or of a body as -1 - its number; 0 is none.
type node struct {
	child [8]int32
	mass  float64
	place [3]float64 // of the centre of mass
}

// tree is the state of barnes. The structure of a finished tree depends on the bodies alone, and so do all sums.
type tree struct {
	m      *dsm.Memory
	bodies dsm.Array[body]
	nodes  dsm.Array[node]
	next   int // of this rank's part of nodes
	end    int
}

// nodesOf is how many nodes each rank may need.
func nodesOf(n int) int { return 4*n + 64 }

func barnesBytes(n, ranks int) int { return 48*n + 64*(fixed+ranks*nodesOf(n)) + 2*4096 }

// barnes computes the motion of n bodies by a tree, which ranks build together under locks.
func barnes(m *dsm.Memory, n int) (work func(), result func() uint64) {
	t := &tree{m: m, bodies: dsm.Alloc[body](m, n, dsm.Blocks),
		nodes: dsm.Alloc[node](m, fixed+m.Ranks()*nodesOf(n), dsm.Blocks)}
	lo, hi := m.Share(n)
	for i, w := lo, t.bodies.Write(lo, hi); i < hi; i++ {
		for x := range 3 {
			w[i-lo].place[x] = (uniform(6*i+x) + uniform(6*i+3+x)) / 2 // denser in the middle
		}
	}
	work = func() {
		for range barnesSteps {
			t.step(lo, hi)
		}
	}
	return work, func() (d uint64) {
		for _, b := range t.bodies.Read(0, n) {
			d = sum(sum(d, b.place[:]), b.speed[:])
		}
		return d
	}
}

// step builds the tree, sums it up, and moves this rank's bodies lo up to hi.
func (t *tree) step(lo, hi int) {
	t.clear()
	t.m.Barrier()
	t.build(lo, hi)
	t.m.Barrier()
	for o := range octants {
		if o%t.m.Ranks() == t.m.Rank() {
			t.summarise(9 + o)
		}
	}
	t.m.Barrier()
	if t.m.Rank() == 0 {
		for k := range 8 {
			t.sum(1 + k)
		}
		t.sum(0)
	}
	t.m.Barrier()
	pull := make([][3]float64, hi-lo)
	for i := lo; i < hi; i++ {
		t.force(0, 1, i, t.bodies.At(i).place, &pull[i-lo])
	}
	t.m.Barrier()
	for i, w := 0, t.bodies.Write(lo, hi); i < len(w); i++ {
		for x := range 3 {
			w[i].speed[x] += pull[i][x] * 1e-8
			w[i].place[x] = min(0.999999, max(0, w[i].place[x]+w[i].speed[x]))
		}
	}
	t.m.Barrier()
}

// clear makes the two upper levels, and takes this rank's part of the nodes anew.
func (t *tree) clear() {
	each := nodesOf(t.bodies.Len())
	t.next = fixed + t.m.Rank()*each
	t.end = t.next + each
	if t.m.Rank() > 0 {
		return
	}
	w := t.nodes.Own(0, fixed)
	clear(w)
	for k := range 8 {
		w[0].child[k] = int32(1 + k)
		for j := range 8 {
			w[1+k].child[j] = int32(9 + 8*k + j)
		}
	}
}

// build puts bodies lo up to hi into the tree, cube by cube of the second level.
func (t *tree) build(lo, hi int) {
	var in [octants][]int
	for i := lo; i < hi; i++ {
		p := t.bodies.At(i).place
		corner, half := [3]float64{}, 0.5
		a := octant(p, &corner, &half)
		b := octant(p, &corner, &half)
		in[8*a+b] = append(in[8*a+b], i)
	}
	for k := range octants {
		o := (k + t.m.Rank()*octants/t.m.Ranks()) % octants // not all begin with the same
		for _, i := range in[o] {
			t.m.Lock(o) // for each body, as in SPLASH-2
			t.insert(9+o, i)
			t.m.Unlock(o)
		}
	}
}

// octant is the part of a cube that a place is in. The cube, by its corner and half of its side, becomes that part.
func octant(p [3]float64, corner *[3]float64, half *float64) (o int) {
	for x := range 3 {
		if p[x] >= corner[x]+*half {
			o |= 1 << x
			corner[x] += *half
		}
	}
	*half /= 2
	return o
}

// insert puts a body below a node of the second level.
func (t *tree) insert(at, i int) {
	p := t.bodies.At(i).place
	corner, half := [3]float64{}, 0.5
	octant(p, &corner, &half)
	octant(p, &corner, &half)
	for range deepest {
		o := octant(p, &corner, &half)
		child := int(t.nodes.At(at).child[o])
		if child == 0 {
			t.nodes.Write(at, at+1)[0].child[o] = int32(-1 - i)
			return
		}
		if child < 0 { // a body is there: both go into a new node
			if t.next == t.end {
				panic("splash: a rank has no nodes left")
			}
			var n node
			c, h := corner, half
			n.child[octant(t.bodies.At(-1-child).place, &c, &h)] = int32(child)
			child = t.next
			t.next++
			t.nodes.Set(child, n)
			t.nodes.Write(at, at+1)[0].child[o] = int32(child)
		}
		at = child
	}
	panic("splash: two bodies are at one place")
}

// summarise computes mass and centre of a node and all below it.
func (t *tree) summarise(at int) {
	for _, child := range t.nodes.At(at).child {
		if child > 0 {
			t.summarise(int(child))
		}
	}
	t.sum(at)
}

// sum computes mass and centre of a node from its children's.
func (t *tree) sum(at int) {
	n := t.nodes.At(at)
	n.mass, n.place = 0, [3]float64{}
	for _, child := range n.child {
		mass, place := 0.0, [3]float64{}
		switch {
		case child > 0:
			c := t.nodes.At(int(child))
			mass, place = c.mass, c.place
		case child < 0:
			mass, place = 1, t.bodies.At(int(-1-child)).place
		}
		n.mass += mass
		for x := range 3 {
			n.place[x] += mass * place[x]
		}
	}
	for x := range 3 {
		if n.mass > 0 {
			n.place[x] /= n.mass
		}
	}
	t.nodes.Set(at, n)
}

// force adds what a node of some width pulls on body i.
func (t *tree) force(at int, width float64, i int, p [3]float64, pull *[3]float64) {
	for _, child := range t.nodes.At(at).child {
		switch {
		case child < 0 && int(-1-child) != i:
			attract(1, t.bodies.At(int(-1-child)).place, p, pull)
		case child > 0:
			if n := t.nodes.At(int(child)); width/2 < openness*distance(n.place, p) {
				attract(n.mass, n.place, p, pull)
			} else {
				t.force(int(child), width/2, i, p, pull)
			}
		}
	}
}

func distance(a, b [3]float64) float64 {
	return math.Sqrt((a[0]-b[0])*(a[0]-b[0]) + (a[1]-b[1])*(a[1]-b[1]) + (a[2]-b[2])*(a[2]-b[2]))
}

// attract adds the pull of a mass at a place.
func attract(mass float64, from, p [3]float64, pull *[3]float64) {
	d := distance(from, p) + 1e-3
	for x := range 3 {
		pull[x] += mass * (from[x] - p[x]) / (d * d * d)
	}
}
