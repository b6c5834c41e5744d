package handles

import (
	"crypto/rand"
	"fmt"
	mrand "math/rand/v2"
	"runtime"
	"time"

	"multiedge/regmem"
)

const (
	object = 64 // bytes of an export
	turns  = 400
)

// RunTable measures the transport's table of grants by itself.
func RunTable(exports, inUse int) (Step, error) {
	step := Step{Way: Table, Exports: exports}
	mem := &regmem.Region{Mem: regmem.Wrap(make([]byte, object*1024))}
	keys := make([]regmem.Key, exports)
	before, start := heap(), time.Now()
	t := regmem.NewTable(rand.Reader)
	for i := range keys {
		k, err := t.Grant(mem, 1, regmem.RemoteWrite, uint64(i%1024*object), object)
		if err != nil {
			return step, err
		}
		keys[i] = k
	}
	step.Setup = time.Since(start).Seconds()
	step.Bytes = float64(heap()-before) / float64(exports)
	random := mrand.New(mrand.NewPCG(1, uint64(exports)))
	order := make([]regmem.Key, 4096)
	for i := range order {
		order[i] = keys[random.IntN(inUse)*(exports/inUse)]
	}
	best := time.Duration(1 << 62)
	for range turns { // the least: other programs only add
		start := time.Now()
		for _, k := range order {
			if _, err := t.Resolve(k, 1, regmem.RemoteWrite, 0, 16); err != nil {
				return step, fmt.Errorf("lookup of an export: %w", err)
			}
		}
		best = min(best, time.Since(start))
	}
	step.Lookup = float64(best) / float64(len(order))
	step.Hot = float64(t.HotBytes())
	return step, nil
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
