package splash

import (
	"context"
	"fmt"
	"math"

	"multiedge/bench/xlate"
	"multiedge/bench/xlate/svm"
	"multiedge/edge/dsm"
)

// traced are the kernels on which address translation is studied, at the sizes of scale 1: the papers', where they
// print them (UTLB table 3).
var traced = []struct {
	name string
	size int
	// power of the size with which memory grows
	power float64
	// work is about what the kernel computes for each word that it declares, in operations
	work func(size, ranks int) int
}{
	{"fft", 2048, 2, always(8)}, {"lu", 4096, 2, always(5)}, {"barnes", 32 << 10, 1, always(3)},
	{"radix", 4 << 20, 1, always(4)}, {"water-cells", 15625, 1, always(12)}, {"ocean", 1024, 2, always(3)},
	{"water", 4096, 1, func(size, ranks int) int { return 6 * size / ranks }}, // a molecule is read for many pairs
}

func always(n int) func(int, int) int { return func(int, int) int { return n } }

// Bounds of a scale of the problems' memory.
const (
	minScale = 1.0 / 256
	maxScale = 4
)

// Programs returns the kernels as studies of address translation run them.
func Programs() (list []xlate.Program) {
	for _, t := range traced {
		k, _ := Named(t.name)
		list = append(list, xlate.Program{Name: t.name, Trace: func(ctx context.Context, cluster svm.Config,
			scale float64) (*svm.Result, string, error) {
			if !(scale >= minScale && scale <= maxScale) {
				return nil, "", fmt.Errorf("a scale of %g; choose %g to %d, where 1 is the papers' size", scale,
					minScale, maxScale)
			}
			size := int(float64(t.size) * math.Pow(scale, 1/t.power))
			for !k.valid(size) {
				size++
			}
			ranks := cluster.Nodes * cluster.Procs
			cluster.Work = t.work(size, ranks)
			r, err := svm.Trace(ctx, cluster, k.Memory(size, ranks), func(m *dsm.Memory, started func()) {
				k.work(m, size, started)
			})
			return r, fmt.Sprint(size, " ", k.Unit), err
		}})
	}
	return list
}
