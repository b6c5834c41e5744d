package svm

import (
	"fmt"
	"math"
)

const (
	moleculeBytes = 672
	waterSteps    = 3
	boxSide       = 2.5 // of the grid of molecules: so much is the reach of forces
)

// water moves molecules whose forces have a short reach. Space is cut into boxes; a process has a block of boxes, moves
// the molecules that are in them, and reads
// those of the boxes around its block. Molecules stay where they were in memory, in the order of boxes at the
// beginning.
type water struct {
	n, side    int // molecules; boxes of a side
	molecules  uint64
	boxes      uint64 // list heads
	sums       uint64
	lock       int
	pos, vel   []vec
	force      []vec
	in         [][]int // molecules by box
	blocks     [3]int  // processes along each axis
	energy     float64
	molsInLine int
}

func buildWater(w *World, scale float64) (func(*Proc), string) {
	s := newWater(w, scale)
	return s.run, fmt.Sprintf("%d molecules, %d steps", s.n, waterSteps)
}

func newWater(w *World, scale float64) *water {
	s := &water{molsInLine: max(10, int(math.Round(25*math.Cbrt(scale)))), blocks: [3]int{1, 1, 1}}
	s.n = s.molsInLine * s.molsInLine * s.molsInLine
	s.side = max(2, int(float64(s.molsInLine)/boxSide))
	for left, d := w.P(), 0; left > 1; d = (d + 1) % 3 { // the largest divisors in turn, as 4 x 2 x 2
		f := 2
		for left%f != 0 {
			f++
		}
		s.blocks[d] *= f
		left /= f
	}
	s.molecules = w.Alloc(s.n*moleculeBytes, w.Blocks)
	s.boxes = w.Alloc(s.side*s.side*s.side*16, w.Blocks)
	s.sums = w.Alloc(4096, w.Blocks)
	s.lock = w.Locks(1)
	s.in = make([][]int, s.side*s.side*s.side)
	s.pos, s.vel, s.force = make([]vec, s.n), make([]vec, s.n), make([]vec, s.n)
	s.place(w)
	return s
}

// place puts molecules on a grid, shaken, and numbers them by process and box.
func (s *water) place(w *World) {
	random := w.procs[0].Rand
	sorted := make([][]vec, w.P())
	for i := range s.n {
		at := [3]int{i % s.molsInLine, i / s.molsInLine % s.molsInLine, i / s.molsInLine / s.molsInLine}
		x := vec{}
		for d := range 3 {
			x[d] = (float64(at[d]) + 0.1 + 0.8*random.Float64()) / float64(s.molsInLine)
		}
		p := s.owner(s.box(x), w.P())
		sorted[p] = append(sorted[p], x)
	}
	i := 0
	for _, list := range sorted {
		for _, x := range list {
			s.pos[i] = x
			for d := range 3 {
				s.vel[i][d] = 0.02 * (random.Float64() - 0.5)
			}
			s.in[s.box(x)] = append(s.in[s.box(x)], i)
			i++
		}
	}
}

// box is the number of the box that a point is in.
func (s *water) box(x vec) int {
	b := 0
	for d := range 3 {
		b = b*s.side + min(max(int(x[d]*float64(s.side)), 0), s.side-1)
	}
	return b
}

// owner is the process that has a box.
func (s *water) owner(box, _ int) int {
	at := [3]int{box / s.side / s.side, box / s.side % s.side, box % s.side}
	id := 0
	for d := range 3 {
		id = id*s.blocks[d] + at[d]*s.blocks[d]/s.side
	}
	return id
}

func (s *water) addr(i int) uint64 { return s.molecules + uint64(i*moleculeBytes) }

func (s *water) run(p *Proc) {
	var mine []int
	for b := range s.in {
		if s.owner(b, p.w.P()) == p.ID {
			mine = append(mine, b)
		}
	}
	for range waterSteps {
		for _, b := range mine {
			s.forces(p, b)
		}
		p.Barrier()
		energy := 0.0
		for _, b := range mine {
			for _, i := range s.in[b] {
				energy += s.move(p, i)
			}
		}
		p.Lock(s.lock)
		p.Write(s.sums, 8)
		s.energy += energy
		p.Unlock(s.lock)
		p.Barrier()
		if p.ID == 0 {
			s.sortIntoBoxes()
		}
		for _, b := range mine { // every process makes its boxes' lists anew
			p.Write(s.boxes+uint64(16*b), 16)
		}
		p.Barrier()
	}
}

// forces adds up what pulls the molecules of a box.
func (s *water) forces(p *Proc, b int) {
	around := s.around(b)
	for _, i := range s.in[b] {
		p.Write(s.addr(i)+336, 72)
		s.force[i] = vec{}
	}
	for _, o := range around {
		p.Read(s.boxes+uint64(16*o), 16)
		for _, j := range s.in[o] {
			p.Read(s.addr(j), 72)
			for _, i := range s.in[b] {
				if i != j {
					s.attract(i, j)
					p.Work(60)
				}
			}
		}
	}
}

// attract adds the force of molecule j on i, if it reaches.
func (s *water) attract(i, j int) {
	d := vec{s.pos[j][0] - s.pos[i][0], s.pos[j][1] - s.pos[i][1], s.pos[j][2] - s.pos[i][2]}
	r := math.Sqrt(d[0]*d[0] + d[1]*d[1] + d[2]*d[2])
	reach := 1 / float64(s.side)
	if r >= reach || r == 0 {
		return
	}
	for k := range 3 {
		s.force[i][k] += d[k] / r * (r/reach - 0.5) * 1e-3
	}
}

// around lists a box and its neighbours.
func (s *water) around(b int) (list []int) {
	at := [3]int{b / s.side / s.side, b / s.side % s.side, b % s.side}
	for x := max(at[0]-1, 0); x <= min(at[0]+1, s.side-1); x++ {
		for y := max(at[1]-1, 0); y <= min(at[1]+1, s.side-1); y++ {
			for z := max(at[2]-1, 0); z <= min(at[2]+1, s.side-1); z++ {
				list = append(list, (x*s.side+y)*s.side+z)
			}
		}
	}
	return list
}

// move advances molecule i and returns its energy.
func (s *water) move(p *Proc, i int) (energy float64) {
	p.Read(s.addr(i)+336, 72)
	p.Write(s.addr(i), 144)
	p.Work(200)
	for d := range 3 {
		s.vel[i][d] += s.force[i][d]
		s.pos[i][d] += s.vel[i][d] * 0.1
		energy += s.vel[i][d] * s.vel[i][d] / 2
		if x := s.pos[i][d]; x < 0 || x >= 1 {
			s.pos[i][d], s.vel[i][d] = min(max(x, 0), 0.999999), -s.vel[i][d]
		}
	}
	return energy
}

// sortIntoBoxes makes the lists of boxes, in the order of molecules.
func (s *water) sortIntoBoxes() {
	for b := range s.in {
		s.in[b] = s.in[b][:0]
	}
	for i, x := range s.pos {
		s.in[s.box(x)] = append(s.in[s.box(x)], i)
	}
}
