package xlate

import (
	"fmt"
	"math/rand/v2"

	"multiedge/bench/xlate/trace"
)

// Patterns lists the synthetic patterns: each use of a page by one process.
var Patterns = []string{"cyclic", "uniform", "zipf", "strided"}

// zipfExponent is about one: the use of a page is as one over its rank.
const zipfExponent = 1.01

// Synthetic returns a trace of n fetches over a number of pages in a pattern.
func Synthetic(pattern string, pages, n int, seed uint64) (*trace.Trace, error) {
	if pages < 2 || n < 1 {
		return nil, fmt.Errorf("xlate: a pattern of %d fetches over %d pages; choose at least one over two", n, pages)
	}
	random := rand.New(rand.NewPCG(seed, 0))
	var page func(i int) int
	switch pattern {
	case "cyclic":
		page = func(i int) int { return i % pages }
	case "uniform":
		page = func(int) int { return random.IntN(pages) }
	case "zipf":
		z, place := rand.NewZipf(random, zipfExponent, 1, uint64(pages-1)), random.Perm(pages)
		page = func(int) int { return place[z.Uint64()] }
	case "strided": // every eighth page, then the ones behind them
		const stride = 8
		page = func(i int) int { return (i*stride + i*stride/pages) % pages }
	default:
		return nil, fmt.Errorf("xlate: no pattern %q; choose from %v", pattern, Patterns)
	}
	t := &trace.Trace{Nodes: 1, Processes: 1}
	for i := range n {
		t.Records = append(t.Records, trace.Record{Time: uint64(i) * 1000, Op: trace.Fetch,
			Addr: uint64(page(i)) * trace.PageSize, Length: trace.PageSize})
	}
	return t, nil
}
