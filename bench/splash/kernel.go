package splash

import (
	"math"

	"multiedge/edge/dsm"
)

// Kernel is a parallel program.
type Kernel struct {
	Name string
	Unit string // what Size counts
	Size int    // some seconds of work on one machine
	// Paper is the size in the papers of this project's studies (UTLB table 3), 0 if they have none.
	Paper int
	valid func(size int) bool
	// bytes is how much shared memory a run needs, besides some pages.
	bytes func(size, ranks int) int
	// prepare allocates and fills the memory. work runs between two barriers. result is read by one rank after that.
	prepare func(m *dsm.Memory, size int) (work func(), result func() uint64)
}

// Kernels are all there are.
var Kernels = []Kernel{
	{Name: "fft", Unit: "rows and columns of points", Size: 256, Paper: 2048, valid: powerOfTwo, bytes: fftBytes,
		prepare: fft},
	{Name: "lu", Unit: "rows and columns", Size: 512, Paper: 4096, valid: blocks, bytes: luBytes,
		prepare: luContiguous},
	{Name: "lu-rows", Unit: "rows and columns", Size: 256, valid: blocks, bytes: luBytes, prepare: luRows},
	{Name: "radix", Unit: "keys", Size: 1 << 18, Paper: 4 << 20, valid: atLeast(64), bytes: radixBytes, prepare: radix},
	{Name: "ocean", Unit: "rows and columns of the grid", Size: 256, valid: atLeast(16), bytes: oceanBytes,
		prepare: ocean},
	{Name: "barnes", Unit: "bodies", Size: 1024, Paper: 32 << 10, valid: atLeast(16), bytes: barnesBytes,
		prepare: barnes},
	{Name: "water", Unit: "molecules", Size: 128, valid: atLeast(8), bytes: waterBytes, prepare: water},
	{Name: "water-cells", Unit: "molecules", Size: 512, Paper: 15625, valid: atLeast(64), bytes: cellsBytes,
		prepare: waterCells},
}

func powerOfTwo(n int) bool { return n >= 4 && n&(n-1) == 0 }
func blocks(n int) bool     { return n >= block && n%block == 0 }

func atLeast(least int) func(int) bool { return func(n int) bool { return n >= least } }

// Named returns the kernel of that name; false if there is none.
func Named(name string) (Kernel, bool) {
	for _, k := range Kernels {
		if k.Name == name {
			return k, true
		}
	}
	return Kernel{}, false
}

// Valid reports whether there can be a run of that size.
func (k *Kernel) Valid(size int) bool { return k.valid(size) }

// Memory is how much shared memory a run needs, in bytes.
func (k *Kernel) Memory(size, ranks int) int { return k.bytes(size, ranks) + 1<<20 }

// Run runs the kernel as one rank. The digest is of the bits of the result, at rank 0; Stats are of the work alone.
func (k *Kernel) Run(m *dsm.Memory, size int) (digest uint64, s dsm.Stats) {
	result := k.work(m, size, m.ResetStats)
	s = m.Stats()
	if m.Rank() == 0 {
		digest = result()
	}
	return digest, s
}

// work is Run without its result. It calls started behind the barrier at which all ranks have set up.
func (k *Kernel) work(m *dsm.Memory, size int, started func()) (result func() uint64) {
	work, result := k.prepare(m, size)
	m.Barrier()
	started()
	work()
	m.Barrier()
	return result
}

// page is the unit of fetching, in bytes.
const page = 4096

// random is a number that depends on i alone.
func random(i int) uint64 {
	x := uint64(i)*0x9e3779b97f4a7c15 + 0x1234567
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// uniform is random in [0, 1).
func uniform(i int) float64 { return float64(random(i)>>11) / (1 << 53) }

// add continues a digest by a word.
func add(digest, v uint64) uint64 { return (digest ^ v) * 0x100000001b3 }

// sum is the digest of floating-point numbers.
func sum(digest uint64, list []float64) uint64 {
	for _, v := range list {
		digest = add(digest, math.Float64bits(v))
	}
	return digest
}
