package edge_test

import (
	"bytes"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"multiedge/internal/config"
	"multiedge/regmem"

	"multiedge/edge"
	"multiedge/edge/space"
)

// TestMapBefore: a policy that is a function of the program's is followed, where the transport is in the process; a
// daemon refuses it, with words that help.
func TestMapBefore(t *testing.T) {
	f := edge.NewFabric()
	t.Cleanup(func() { f.Close() })
	ctx := testContext(t)
	a, err := f.OpenConfig(ctx, "a",
		edge.Config{Embedded: &edge.Embedded{Misses: config.MissesPark}}) // or nothing misses twice
	must(t, err)
	b, err := f.Open("b")
	must(t, err)
	l, err := a.Listen(ctx, "store")
	must(t, err)
	const kept, chunks = 3, 60
	var asked atomic.Int64
	// those of the lowest numbers stay
	far, err := space.Map(ctx, a, 1<<30, space.Options{Pin: 12 * hostileChunk, Before: func(x, y space.ChunkUse) bool {
		asked.Add(1)
		return x.Chunk > y.Chunk
	}})
	must(t, err)
	go exportToAll(ctx, l, far, "heap", edge.RemoteRead|edge.RemoteWrite)
	c, err := b.Dial(ctx, "a", "store")
	must(t, err)
	remote, err := c.Import(ctx, "heap")
	must(t, err)
	use := func(chunk int) {
		t.Helper()
		_, err := remote.WriteAt([]byte{1}, int64(chunk*hostileChunk))
		must(t, err)
	}
	for i := range chunks {
		use(i * 7) // no neighbours
	}
	before, err := space.UsageOf(ctx, far)
	must(t, err)
	for i := range kept {
		use(i * 7)
	}
	after, err := space.UsageOf(ctx, far)
	must(t, err)
	if after.Capacity != before.Capacity || before.Evictions < chunks-12 || asked.Load() == 0 {
		t.Errorf("what the function keeps was evicted, or nothing else: %+v, then %+v; it was asked %d times", before,
			after, asked.Load())
	}
	h := edge.NewHost(t, f, "d", nil)
	never := space.Options{Before: func(x, y space.ChunkUse) bool { return false }}
	if _, err := space.Map(ctx, h.Open(edge.Config{}), 1<<30, never); !errors.Is(err, edge.ErrInvalid) {
		t.Errorf("a daemon was given a function: %v", err)
	}
}

// TestResidentDuringClose: Resident, which takes no lock, looks at a space that is closed meanwhile, and finds nothing
// resident from then on. The addresses it looks at go when nobody has the Region.
func TestResidentDuringClose(t *testing.T) {
	f := edge.NewFabric()
	t.Cleanup(func() { f.Close() })
	ctx := testContext(t)
	d, err := f.Open("a")
	must(t, err)
	for range 3 {
		r, err := space.Map(ctx, d, 1<<36, space.Options{Pin: 1 << 20, Chunk: 4096})
		must(t, err)
		must(t, space.Hold(ctx, r, 0, 100<<12))
		for _, c := range []struct {
			off, n int
			want   bool
		}{{0, 1, true}, {0, 100 << 12, true}, {63 << 12, 2 << 12, true}, {64 << 12, 36 << 12, true},
			{99<<12 + 4095, 1, true},
			{0, 101 << 12, false}, {100 << 12, 1, false}, {99 << 12, 4097, false}, {0, 0, false}, {-1, 1, false},
			{0, -1, false}, {1, 1 << 62, false}, {1 << 36, 1, false}, {1<<36 - 4096, 4096, false}} {
			if got := space.Resident(r, c.off, c.n); got != c.want {
				t.Errorf("%d bytes at %d: resident %t", c.n, c.off, got)
			}
		}
		var looks sync.WaitGroup
		var stop atomic.Bool
		for range 2 {
			looks.Go(func() {
				for !stop.Load() {
					space.Resident(r, 0, 100<<12)
					runtime.Gosched()
				}
			})
		}
		must(t, r.Close())
		if space.Resident(r, 0, 1) {
			t.Error("a space that is closed is resident")
		}
		runtime.GC()
		stop.Store(true)
		looks.Wait()
	}
}

// TestSpaceInline: with misses = "inline", on a host without swap, what was evicted is used at once; where there is
// swap it waits. Bytes are right in both cases.
func TestSpaceInline(t *testing.T) {
	h := newSpaceHosts(t, 1<<30, space.Options{Pin: 8 * hostileChunk},
		func(c *config.Config) { c.Misses = config.MissesInline })
	const chunks = 40
	for round := range 3 {
		for i := range chunks {
			at, got := int64(i*7*hostileChunk), make([]byte, hostileChunk)
			_, err := h.remote.ReadAt(got, at)
			must(t, err)
			if bytes.Count(got, []byte{byte(round)}) != len(got) {
				t.Fatalf("round %d, chunk %d: %d", round, i, got[0])
			}
			_, err = h.remote.WriteAt(bytes.Repeat([]byte{byte(round + 1)}, hostileChunk), at)
			must(t, err)
		}
	}
	u, err := space.UsageOf(testContext(t), h.far)
	must(t, err)
	if swaps := regmem.Swaps(); u.Cold != chunks || (u.Capacity == 0) == swaps || (u.Soft == 0) != swaps ||
		u.Pinned > 8*hostileChunk {
		t.Errorf("with swap %t: %+v", swaps, u)
	}
}
