package xlate

import (
	"fmt"
	"math/rand/v2"

	"multiedge/bench/xlate/trace"
)

// Patterns in which things are used.
const (
	Cyclic   = "cyclic"
	Permuted = "permuted" // cyclic in no order of places, so that nothing is foreseen
	Uniform  = "uniform"
	Zipf     = "zipf"    // the use of a thing is as one over its rank
	Strided  = "strided" // every eighth, then the ones behind them
)

// Pattern returns which of n things is used next.
func Pattern(name string, n int, seed uint64) (next func() int, err error) {
	random := rand.New(rand.NewPCG(seed, uint64(n)))
	i := -1
	switch name {
	case Cyclic:
		return func() int { i++; return i % n }, nil
	case Permuted:
		order := random.Perm(n)
		return func() int { i++; return order[i%n] }, nil
	case Uniform:
		return func() int { return random.IntN(n) }, nil
	case Zipf:
		z, order := rand.NewZipf(random, 1.01, 1, uint64(max(n-1, 1))), random.Perm(n)
		return func() int { return order[int(z.Uint64())%n] }, nil
	case Strided:
		const stride = 8
		return func() int { i++; return (i*stride + i*stride/n) % n }, nil
	}
	return nil, fmt.Errorf("xlate: no pattern %q; choose from %v", name,
		[]string{Cyclic, Permuted, Uniform, Zipf, Strided})
}

// synthetic are the patterns of the study: each use of a page by one process.
var synthetic = []string{Cyclic, Uniform, Zipf, Strided}

// Synthetic returns a trace of n fetches over a number of pages in a pattern.
func Synthetic(pattern string, pages, n int, seed uint64) (*trace.Trace, error) {
	if pages < 2 || n < 1 {
		return nil, fmt.Errorf("xlate: a pattern of %d fetches over %d pages; choose at least one over two", n, pages)
	}
	page, err := Pattern(pattern, pages, seed)
	if err != nil {
		return nil, err
	}
	t := &trace.Trace{Nodes: 1, Processes: 1}
	for i := range n {
		t.Records = append(t.Records, trace.Record{Time: uint64(i) * 1000, Op: trace.Fetch,
			Addr: uint64(page()) * trace.PageSize, Length: trace.PageSize})
	}
	return t, nil
}
