package svm

import (
	"context"
	"fmt"
	"math"
	"slices"
)

// Kernel is a program whose memory is traced.
type Kernel struct {
	Name string
	// build allocates the memory and returns what every process runs, and the problem's size in words. scale 1 is the
	// papers' size.
	build func(w *World, scale float64) (body func(*Proc), problem string)
}

// Kernels lists the kernels in the order of UTLB's table 3, then those that only DHL has.
var Kernels = []Kernel{
	{"fft", buildFFT}, {"lu", buildLU}, {"barnes", buildBarnes},
	{"radix", buildRadix}, {"water", buildWater}, {"ocean", buildOcean},
}

// Names lists the kernels' names.
func Names() (names []string) {
	for _, k := range Kernels {
		names = append(names, k.Name)
	}
	return names
}

// Generate runs a kernel on a cluster of its own.
func Generate(ctx context.Context, name string, cfg Config, scale float64) (r *Result, problem string, err error) {
	i := slices.IndexFunc(Kernels, func(k Kernel) bool { return k.Name == name })
	if i < 0 {
		return nil, "", fmt.Errorf("no kernel %q; choose from %v", name, Names())
	}
	if !(scale >= MinScale && scale <= MaxScale) {
		return nil, "", fmt.Errorf("a scale of %g; choose %g to %g, where 1 is the papers' "+
			"size", scale, MinScale, float64(MaxScale))
	}
	w, err := New(cfg)
	if err != nil {
		return nil, "", err
	}
	body, problem := Kernels[i].build(w, scale)
	r, err = w.Run(ctx, body)
	return r, problem, err
}

// Bounds of a scale.
const (
	MinScale = 1.0 / 256
	MaxScale = 4
)

// powerOfTwo is the power of two nearest to v, at least lo.
func powerOfTwo(v float64, lo int) int {
	return max(lo, 1<<int(math.Round(math.Log2(max(v, 1)))))
}

// share is the part of n things that process id of p has.
func share(id, p, n int) (from, to int) { return id * n / p, (id + 1) * n / p }

// grid splits p processes into rows and columns, as square as it goes.
func grid(p int) (rows, cols int) {
	rows = int(math.Sqrt(float64(p)))
	for p%rows != 0 {
		rows--
	}
	return rows, p / rows
}
