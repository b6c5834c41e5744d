package bench

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

	"multiedge/bench/bytestream"
	"multiedge/bench/kit"
	"multiedge/bench/proc"
	"multiedge/bench/report"
	"multiedge/edge"
	"multiedge/internal/mono"
	"multiedge/remap"
)

// PlaceSizes are the runs that Place measures unless told otherwise: a page to 8 MiB.
func PlaceSizes() []int { return SizeRange(4<<10, 8<<20) }

// LeastExchanged is the shortest run that the transport exchanges when told to.
const LeastExchanged = remap.Least

// coldRegion is memory that no cache holds, in bytes, where the limit on pinned memory allows that much.
const coldRegion = 256 << 20

// Place measures what it costs to bring a run that was just received into a pool to its place, by copying and by
// exchanging pages, for each size, with places in the cache (warm) and not (cold), for about the given time each.
// Another thread runs in the process all the while, as one does in every Go program, so that TLBs must be flushed. Runs
// are multiples of a page. Sizes for which not enough memory can be pinned are left out; the note says so.
func Place(ctx context.Context, sizes []int, each time.Duration, sink func(*report.Row) error) (note string,
	err error) {
	defer spin()()
	for _, size := range sizes {
		for _, state := range []string{report.PlaceWarm, report.PlaceCold} {
			rows, err := place(ctx, size, state, each)
			if errors.Is(err, edge.ErrMemlock) {
				note = fmt.Sprintf("runs of %s are left out: %v", report.Bytes(size), err)
				continue
			}
			if err != nil {
				return note, fmt.Errorf("placing runs of %s: %w", report.Bytes(size), err)
			}
			for _, r := range rows {
				if err := sink(r); err != nil {
					return note, err
				}
			}
		}
	}
	return note, ctx.Err()
}

// spin keeps another thread of the process running until the function it returns is called.
func spin() (stop func()) {
	var over atomic.Bool
	ended := make(chan struct{})
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		for !over.Load() {
		}
		close(ended)
	}()
	return func() { over.Store(true); <-ended }
}

// placeSpace returns a region of the state's size, or a smaller one where less can be pinned.
func placeSpace(size int, state string) (*remap.Shared, error) {
	region := size
	if state == report.PlaceCold {
		region = max(coldRegion, 4*size)
	}
	for {
		s, err := remap.NewShared(region, remap.Options{Extent: size, Extents: 1, Least: size, Grain: placeGrain})
		if !errors.Is(err, edge.ErrMemlock) || region/2 < 4*size {
			return s, err
		}
		region /= 2
	}
}

// placeGrain lets runs of single pages be exchanged.
const placeGrain = 4096

func place(ctx context.Context, size int, state string, each time.Duration) (_ []*report.Row, err error) {
	s, err := placeSpace(size, state)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	fresh := make([]byte, size)
	recs := map[string]*report.Recorder{report.PlaceCopy: report.NewRecorder(),
		report.PlaceExchange: report.NewRecorder()}
	sums := map[string]time.Duration{}
	region, pool := s.Bytes(), s.Pool()[:size]
	at, n := 0, 0
	for began := mono.Now(); n < leastPlaced || mono.Now().Sub(began) < each; n++ {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		for _, way := range []string{report.PlaceCopy, report.PlaceExchange} {
			copy(pool, fresh) // as the kernel has done when a run was received
			t := mono.Now()
			if way == report.PlaceCopy {
				copy(region[at:at+size], pool)
			} else if whole, err := s.Exchange(at, 0, size); err != nil || !whole {
				return nil, errors.Join(errors.New("the kernel refuses to exchange pages"), err)
			}
			d := mono.Now().Sub(t)
			recs[way].Record(d)
			sums[way] += d
			if at += size; at+size > len(region) {
				at = 0
			}
		}
	}
	var rows []*report.Row
	for _, way := range []string{report.PlaceCopy, report.PlaceExchange} {
		r := &report.Row{
			Test: report.Place, Transport: report.TransportMemory,
			Setup:        report.Setup{Variant: report.PlaceVariant(way, state)},
			MessageBytes: size, RegionBytes: len(region), QueueDepth: 1, Operations: uint64(n),
			Bytes: uint64(n) * uint64(size), Seconds: sums[way].Seconds(), LatencyKind: report.LatencyCall,
			Latency: recs[way].Summary(1),
		}
		rows = append(rows, r.Rated())
	}
	return rows, nil
}

// leastPlaced is how many runs of a size are placed at least.
const leastPlaced = 32

// FirstTouch writes to all of new memory once, and once again: what touching regions before the clock starts keeps out
// of every other row. The first row has a page fault for each page, which on a virtual machine the hypervisor may have
// to serve as well; the second has none. It ends by kit.Check if there is no memory.
func FirstTouch(region int) (rows []*report.Row) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	m := kit.Get(bytestream.Untouched(region))
	defer bytestream.Free(m)
	for _, which := range []string{"first", "again"} {
		before, start := proc.Thread(), mono.Now()
		bytestream.Touch(m)
		r := &report.Row{
			Test: report.FirstTouch, Transport: report.TransportMemory, Setup: report.Setup{Variant: which},
			MessageBytes: region, RegionBytes: region, QueueDepth: 1, Operations: 1, Bytes: uint64(region),
			Seconds:     mono.Now().Sub(start).Seconds(),
			Disturbance: report.Disturbance{PageFaults: proc.Since(proc.Thread(), before).Faults},
		}
		rows = append(rows, r.Rated())
	}
	return rows
}
