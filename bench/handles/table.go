package handles

import (
	"crypto/rand"
	"fmt"
	mrand "math/rand/v2"
	"runtime"
	"time"

	"multiedge/bench/report"
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
	var failed error
	step.Lookup = report.Least(turns, len(order), func(i int) {
		if _, err := t.Resolve(order[i], 1, regmem.RemoteWrite, 0, 16); err != nil {
			failed = fmt.Errorf("lookup of an export: %w", err)
		}
	})
	step.Hot = float64(t.HotBytes())
	return step, failed
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
