package ondemand

import (
	"context"
	"fmt"
	"math/rand/v2"

	"multiedge/bench/kit"
	"multiedge/bench/report"
	"multiedge/edge/space"
	"multiedge/regmem"
)

const turns = 200

// checks measures the library's look at 1 to 32 chunks, all of which are pinned.
func (r *run) checks(ctx context.Context) {
	const most = 32
	mem := kit.Get(space.Map(ctx, r.d, 4*most*chunk, space.Options{Pin: 2 * most * chunk}))
	defer mem.Close()
	kit.Check(space.Hold(ctx, mem, 0, most*chunk))
	for n := 1; n <= most; n *= 2 {
		all := true
		const looks = 1000
		ns := report.Least(turns, 1, func(int) {
			for range looks {
				all = space.Resident(mem, 0, n*chunk) && all
			}
		}) / looks
		if !all {
			kit.Fail("%d chunks are held and not said to be resident", n)
		}
		r.res.Timings = append(r.res.Timings, Timing{What: "check", N: n, Ns: ns})
	}
	r.res.Timings = append(r.res.Timings, lookups()...)
}

// lookups measures the daemon's look at memory that is resident, the call of an interface included: hot and cold.
func lookups() (all []Timing) {
	const size, few = 1 << 30, 64
	s, err := regmem.NewSpace(regmem.SpaceConfig{Size: size, Chunk: regmem.MinChunk, Pin: size,
		Ask: func(uint64, regmem.PinWork) bool { return true }})
	if err != nil {
		panic(fmt.Sprintf("BUG: ondemand: %v", err)) // its shape is fixed
	}
	for off := uint64(0); off < size; {
		off += s.Prefetch(off, size-off)
	}
	for i := range uint64(size / regmem.MinChunk) {
		s.Done(i, true)
	}
	random := rand.New(rand.NewPCG(1, 1))
	order := make([]uint64, 1<<16)
	touch := func(of uint64) func(int) {
		for i := range order {
			order[i] = random.Uint64N(of) * regmem.MinChunk
		}
		var b regmem.Backing = s
		return func(i int) { b.Touch(order[i], 64, 0, regmem.WriteTarget) }
	}
	var none regmem.Backing
	calls := 0
	base := report.Least(turns, len(order), func(i int) {
		if none != nil || order[i] == 1<<63 {
			calls++
		}
	})
	for _, c := range []struct {
		name string
		of   uint64
	}{{"look-up, hot", few}, {"look-up, cold", size / regmem.MinChunk}} {
		all = append(all, Timing{What: c.name, Ns: max(report.Least(turns, len(order), touch(c.of))-base, 0)})
	}
	return all
}
