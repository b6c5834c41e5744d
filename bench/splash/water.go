package splash

import (
	"math"

	"multiedge/edge/dsm"
)

const (
	waterSteps = 3
	waterLocks = 512
	atoms      = 3
	// Forces are whole numbers of this unit, so that their sum does not depend on the order.
	forceUnit = 1 << 24
)

// molecule is atoms in a box of side 1, and how they move.
type molecule struct{ place, speed [atoms][3]float64 }

// forces of a molecule, in units.
type forces [atoms][3]int64

func waterBytes(n, _ int) int { return n*(144+72) + 2*4096 }

func newMolecule(i int) (v molecule) {
	for a := range atoms {
		for x := range 3 {
			v.place[a][x] = uniform(9*i+x) + 0.01*uniform(1<<30+9*i+3*a+x)
		}
	}
	return v
}

// act adds the forces between two molecules, to a and, opposite, to b.
func act(p, q *[atoms][3]float64, a, b *forces) {
	for i := range atoms {
		for j := range atoms {
			var d [3]float64
			square := 1e-3
			for x := range 3 {
				d[x] = p[i][x] - q[j][x]
				square += d[x] * d[x]
			}
			strength := math.Exp(-square) / square
			for x := range 3 {
				f := int64(d[x] * strength * forceUnit)
				a[i][x] += f
				b[j][x] -= f
			}
		}
	}
}

// move lets forces act on a molecule for a step.
func (v *molecule) move(f *forces) {
	for a := range atoms {
		for x := range 3 {
			v.speed[a][x] += float64(f[a][x]) * (1e-7 / forceUnit)
			v.place[a][x] += v.speed[a][x]
		}
	}
}

// water computes the forces between all pairs of n molecules; each rank adds what it has found to each molecule under a
// lock.
func water(m *dsm.Memory, n int) (work func(), result func() uint64) {
	mol := dsm.Alloc[molecule](m, n, dsm.Blocks)
	acting := dsm.Alloc[forces](m, n, dsm.Blocks)
	lo, hi := m.Share(n)
	for i, w := lo, mol.Write(lo, hi); i < hi; i++ {
		w[i-lo] = newMolecule(i)
	}
	work = func() {
		for range waterSteps {
			found := pairs(mol, lo, hi)
			m.Barrier()
			for k := range n { // its own first
				i := (lo + k) % n
				if found[i] == (forces{}) {
					continue
				}
				m.Lock(i % waterLocks)
				w := &acting.Write(i, i+1)[0]
				for a := range atoms {
					for x := range 3 {
						w[a][x] += found[i][a][x]
					}
				}
				m.Unlock(i % waterLocks)
			}
			m.Barrier()
			w, f := mol.Write(lo, hi), acting.Write(lo, hi)
			for i := range w {
				w[i].move(&f[i])
				f[i] = forces{}
			}
			m.Barrier()
		}
	}
	return work, func() (d uint64) { return digestOf(d, mol.Read(0, n)) }
}

// pairs returns the forces of molecules lo up to hi on half of all others, and the opposite.
func pairs(mol dsm.Array[molecule], lo, hi int) []forces {
	n := mol.Len()
	found := make([]forces, n)
	all := mol.Read(0, n)
	for i := lo; i < hi; i++ {
		for d := 1; d <= n/2; d++ {
			if j := (i + d) % n; d < n-d || i < j {
				act(&all[i].place, &all[j].place, &found[i], &found[j])
			}
		}
	}
	return found
}

func digestOf(d uint64, list []molecule) uint64 {
	for i := range list {
		for a := range atoms {
			d = sum(sum(d, list[i].place[a][:]), list[i].speed[a][:])
		}
	}
	return d
}
