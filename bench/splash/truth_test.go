package splash

import (
	"math"
	"math/cmplx"
	"slices"
	"testing"

	"multiedge/edge/dsm"
)

// The transform of a row is that of its definition.
func TestTransform(t *testing.T) {
	const n = 32
	var a [n]complex128
	for i := range a {
		a[i] = complex(uniform(2*i), uniform(2*i+1))
	}
	var want [n]complex128
	for k := range n {
		for i, v := range a {
			want[k] += v * cmplx.Rect(1, -2*math.Pi*float64(i*k)/n)
		}
	}
	transform(a[:])
	for k := range n {
		if cmplx.Abs(a[k]-want[k]) > 1e-12*n {
			t.Errorf("%d: %v, want %v", k, a[k], want[k])
		}
	}
}

// The product of both factors is the matrix, in both layouts.
func TestFactors(t *testing.T) {
	const s = 48
	for _, rows := range []bool{false, true} {
		inOne(t, func(m *dsm.Memory) {
			x := &matrix{m: m, a: dsm.Alloc[float64](m, s*s, dsm.Turns), s: s, rows: rows}
			work, _ := lu(x)
			at := func(i, j int) float64 {
				return x.read(i/block, j/block)[i%block][j%block]
			}
			var before [s][s]float64
			for i := range s {
				for j := range s {
					before[i][j] = at(i, j)
				}
			}
			work()
			for i := range s {
				for j := range s {
					sum := 0.0
					for k := range min(i, j+1) {
						sum += at(i, k) * at(k, j)
					}
					if i <= j {
						sum += at(i, j) // the diagonal of the lower factor is 1
					}
					if math.Abs(sum-before[i][j]) > 1e-9 {
						t.Fatalf("rows %v: %d, %d: %v, want %v", rows, i, j, sum, before[i][j])
					}
				}
			}
		})
	}
}

// A digit's pass is a stable sort by it.
func TestPass(t *testing.T) {
	const n = 5000
	inOne(t, func(m *dsm.Memory) {
		from, to := dsm.Alloc[uint32](m, n, dsm.Turns), dsm.Alloc[uint32](m, n, dsm.Turns)
		for i, w := 0, from.Write(0, n); i < n; i++ {
			w[i] = uint32(random(i))
		}
		pass(m, from, to, dsm.Alloc[uint32](m, digits, dsm.Turns), digitBits)
		want := slices.Clone(from.Read(0, n))
		slices.SortStableFunc(want, func(a, b uint32) int {
			return int(a>>digitBits&(digits-1)) - int(b>>digitBits&(digits-1))
		})
		if !slices.Equal(to.Read(0, n), want) {
			t.Error("the keys are in another order")
		}
	})
}

// Forces that are computed by the tree are near those of all pairs.
func TestTree(t *testing.T) {
	const n = 200
	inOne(t, func(m *dsm.Memory) {
		tr := &tree{m: m, bodies: dsm.Alloc[body](m, n, dsm.Turns),
			nodes: dsm.Alloc[node](m, fixed+nodesOf(n), dsm.Turns)}
		for i, w := 0, tr.bodies.Write(0, n); i < n; i++ {
			w[i].place = [3]float64{uniform(3 * i), uniform(3*i + 1), uniform(3*i + 2)}
		}
		list := slices.Clone(tr.bodies.Read(0, n))
		tr.clear()
		tr.build(0, n)
		for o := range octants {
			tr.summarise(9 + o)
		}
		for k := range 8 {
			tr.sum(8 - k)
		}
		tr.sum(0)
		if root := tr.nodes.At(0); root.mass != n {
			t.Errorf("the root has a mass of %v", root.mass)
		}
		wrong, all := 0.0, 0.0
		for i := range list {
			var got, want [3]float64
			tr.force(0, 1, i, list[i].place, &got)
			for j := range list {
				if i != j {
					attract(1, list[j].place, list[i].place, &want)
				}
			}
			wrong, all = wrong+distance(got, want), all+distance(want, [3]float64{})
		}
		if wrong > 0.05*all {
			t.Errorf("forces are wrong by %.1f %%", 100*wrong/all)
		}
	})
}

// inOne runs f as the only rank.
func inOne(t *testing.T, f func(m *dsm.Memory)) {
	t.Helper()
	if err := dsm.Run(t.Context(), dsm.Config{Ranks: 1}, func(m *dsm.Memory) error { f(m); return nil }); err != nil {
		t.Fatal(err)
	}
}
