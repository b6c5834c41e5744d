package edge

import (
	"errors"
	"testing"
	"time"

	"multiedge/internal/ipc"
)

// Calls of ReadAt and WriteAt have as much memory as they need at once, up to Config.Bounce; calls beyond that wait for
// it, and all of them end well.
func TestBounceGrowsWithItsCalls(t *testing.T) {
	const calls = 100
	for _, c := range []struct{ bounce, blocks, flying int }{{0, 4, calls}, {bounceBlock, 1, bounceSlots}} {
		p := newDuo(t, Config{Bounce: c.bounce}, 1<<20)
		p.f.setHold(true)
		done := make(chan error, calls)
		for i := range calls {
			go func() {
				_, err := p.remote.WriteAt([]byte{byte(i)}, int64(i))
				done <- err
			}()
		}
		eventually(t, "as many in flight as may be", 10*time.Second, func() bool {
			n := p.client.Counters()
			return n.InFlight == c.flying && int(n.BounceWaits) == calls-c.flying
		})
		if n := p.client.Counters(); n.BounceBytes != int64(c.blocks)*bounceBlock {
			t.Errorf("Bounce %d: %+v", c.bounce, n)
		}
		p.f.release()
		for range calls {
			must(t, <-done)
		}
		for i, b := range p.exported.Bytes()[:calls] {
			if int(b) != i {
				t.Fatalf("byte %d is %d", i, b)
			}
		}
	}
	for _, bad := range []int{-1, 1, bounceBlock - 1, 1<<30 + 1} {
		if err := (&Config{Bounce: bad}).normalize(); !errors.Is(err, ErrInvalid) {
			t.Errorf("Bounce %d: %v", bad, err)
		}
	}
}

// A Device counts what was posted, what failed, and what it holds.
func TestCounters(t *testing.T) {
	p := newDuo(t, Config{}, 4096)
	before := p.client.Counters()
	if before.Attached != 1 || before.Conns != 1 || before.Regions != 1 || before.RegionBytes != 4096 ||
		before.InFlight != 0 {
		t.Errorf("%+v", before)
	}
	for i := range 3 {
		if i == 2 {
			p.f.mu.Lock()
			p.f.fail = ipc.StatusPeerDown
			p.f.mu.Unlock()
		}
		op, err := p.out.Post(NoWait, &Work{Kind: Write, Local: p.local, Len: 1, Remote: p.remote})
		must(t, err)
		if err := op.Wait(testContext(t)); (err != nil) != (i == 2) {
			t.Fatal(err)
		}
	}
	if n := p.client.Counters(); n.Posted != before.Posted+3 || n.Failed != before.Failed+1 || n.InFlight != 0 {
		t.Errorf("%+v, before %+v", n, before)
	}
}

// A word of a region is the bytes at its offset, and nothing beyond them.
func TestUint64OfARegion(t *testing.T) {
	p := newDuo(t, Config{}, 4096)
	p.local.Uint64(4088).Store(0x0102030405060708)
	var sum byte
	for _, b := range p.local.Bytes()[4088:] {
		sum += b
	}
	if sum != 36 || p.local.Uint64(4080).Load() != 0 {
		t.Errorf("%x", p.local.Bytes()[4080:])
	}
	for _, off := range []int{-8, 4, 4089, 4092, 4096, 1 << 62} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("offset %d is taken", off)
				}
			}()
			p.local.Uint64(off)
		}()
	}
}
