package edge_test

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"multiedge/internal/config"

	"multiedge/edge"
	"multiedge/edge/space"
)

const hostileChunk = 64 << 10

// spaceHosts are two daemons; a has a space that clients of b import, and b a client.
type spaceHosts struct {
	t      *testing.T
	a, b   *edge.TestHost
	owner  *edge.Device
	far    *edge.Region
	client *edge.Device
	c      *edge.Conn
	remote *edge.RemoteRegion
	mem    *edge.Region // the client's, registered whole
}

func newSpaceHosts(t *testing.T, size int, o space.Options, change func(*config.Config)) *spaceHosts {
	t.Helper()
	f := edge.NewFabric()
	h := &spaceHosts{t: t, a: edge.NewHost(t, f, "a", change), b: edge.NewHost(t, f, "b", change)}
	ctx := testContext(t)
	h.owner = h.a.Open(edge.Config{})
	var err error
	h.far, err = space.Map(ctx, h.owner, size, o)
	must(t, err)
	l, err := h.owner.Listen(ctx, "store")
	must(t, err)
	go exportToAll(ctx, l, h.far, "heap", edge.RemoteRead|edge.RemoteWrite)
	h.client, h.c, h.remote, h.mem = h.dial()
	return h
}

// dial attaches another client of b's, which imports the space.
func (h *spaceHosts) dial() (*edge.Device, *edge.Conn, *edge.RemoteRegion, *edge.Region) {
	h.t.Helper()
	ctx := testContext(h.t)
	d := h.b.Open(edge.Config{})
	c, err := d.Dial(ctx, "a", "store")
	must(h.t, err)
	remote, err := c.Import(ctx, "heap")
	must(h.t, err)
	mem, err := d.Register(1 << 20)
	must(h.t, err)
	return d, c, remote, mem
}

// holdAll holds all that the space may pin, four chunks, so that whatever misses waits.
func (h *spaceHosts) holdAll() {
	h.t.Helper()
	for off := 0; off < 4*hostileChunk; off += 2 * hostileChunk {
		must(h.t, space.Hold(testContext(h.t), h.far, off, 2*hostileChunk))
	}
}

// park posts operations that wait for memory of the space, and returns when they do.
func (h *spaceHosts) park() (ops []edge.Op) {
	h.t.Helper()
	ctx := testContext(h.t)
	before, err := space.UsageOf(ctx, h.far)
	must(h.t, err)
	for i, kind := range []edge.Kind{edge.Write, edge.Read, edge.Write, edge.Read} {
		op, err := h.c.Post(ctx, &edge.Work{Kind: kind, Local: h.mem, LocalOff: i << 16, Len: 4096,
			Remote:    h.remote,
			RemoteOff: (100 + i) * hostileChunk})
		must(h.t, err)
		ops = append(ops, op)
	}
	eventually(h.t, "all four miss", 10*time.Second, func() bool {
		u, err := space.UsageOf(ctx, h.far)
		must(h.t, err)
		return u.Lookups-u.Hits >= before.Lookups-before.Hits+4
	})
	return ops
}

// Memory that is closed while operations of a peer wait for it is not exported any more, and that is what those are
// told at once: not that it did not come in time.
func TestSpaceClosedDuringMisses(t *testing.T) {
	h := newSpaceHosts(t, 1<<30, space.Options{Pin: 4 * hostileChunk}, nil)
	h.holdAll()
	ops := h.park()
	must(t, h.far.Close())
	for i, op := range ops {
		if err := op.Wait(testContext(t)); !errors.Is(err, edge.ErrKey) {
			t.Errorf("operation %d: %v, want ErrKey", i, err)
		}
	}
	if u := edge.Charged(t, h.a); u > 1<<20 {
		t.Errorf("%d bytes of the space are charged still", u)
	}
}

// A client that dies while its operations wait at the peer leaves nothing behind there: another's go on, and once what
// was held is released they find room.
func TestSpaceClientDiesParked(t *testing.T) {
	h := newSpaceHosts(t, 1<<30, space.Options{Pin: 4 * hostileChunk}, nil)
	h.holdAll()
	h.park()
	must(t, h.client.Close())
	_, c, remote, mem := h.dial()
	ctx := testContext(t)
	write := func(off int) error {
		op, err := c.Post(ctx, &edge.Work{Kind: edge.Write, Local: mem, Len: 4096, Remote: remote, RemoteOff: off})
		if err != nil {
			return err
		}
		return op.Wait(ctx)
	}
	if err := write(0); err != nil {
		t.Errorf("a write to what is resident: %v", err)
	}
	must(t, space.Release(h.far, 0, 2*hostileChunk))
	must(t, space.Release(h.far, 2*hostileChunk, 2*hostileChunk))
	for i := range 20 {
		if err := write((100 + i) * hostileChunk); err != nil {
			t.Errorf("write %d to what is not: %v", i, err)
		}
	}
}

// An owner that dies while peers' operations wait for its memory: they end with its connection, and its daemon holds
// nothing of it.
func TestSpaceOwnerDiesParked(t *testing.T) {
	h := newSpaceHosts(t, 1<<30, space.Options{Pin: 4 * hostileChunk}, nil)
	h.holdAll()
	ops := h.park()
	must(t, h.owner.Close())
	for i, op := range ops {
		if err := op.Wait(testContext(t)); !errors.Is(err, edge.ErrPeerClosed) && !errors.Is(err, edge.ErrReset) {
			t.Errorf("operation %d: %v", i, err)
		}
	}
	eventually(t, "all is given back", 10*time.Second, func() bool { return edge.Charged(t, h.a) == 0 })
}

// What spaces of a user may be filled with is bounded. Operations that need more fail with ErrMemory, those that need
// none go on, and a space that is closed gives back what it had.
func TestSpaceFilledToTheLimit(t *testing.T) {
	const limit = 2 << 20
	h := newSpaceHosts(t, 1<<30, space.Options{}, func(c *config.Config) { c.Limits.Filled = limit })
	ctx := testContext(t)
	post := func(off int) edge.Op {
		op, err := h.c.Post(ctx, &edge.Work{Kind: edge.Write, Local: h.mem, Len: hostileChunk, Remote: h.remote,
			RemoteOff: off})
		must(t, err)
		return op
	}
	const fits, all = limit / hostileChunk, 2 * limit / hostileChunk
	var ops []edge.Op
	for i := range all {
		ops = append(ops, post(i*2*hostileChunk)) // no neighbours: nothing is asked for ahead
	}
	done, failed := 0, 0
	for _, op := range ops {
		switch err := op.Wait(ctx); {
		case err == nil:
			done++
		case errors.Is(err, edge.ErrMemory):
			failed++
		default:
			t.Error(err)
		}
	}
	if done != fits || failed != all-fits {
		t.Errorf("%d writes of %d bytes fit into %d bytes, %d failed", done, hostileChunk, limit, failed)
	}
	if err := post(0).Wait(ctx); err != nil && done > 0 {
		t.Errorf("a write to what is filled: %v", err)
	}
	other, err := space.Map(ctx, h.owner, 1<<30, space.Options{Pin: 1 << 20})
	must(t, err)
	if err := space.Hold(ctx, other, 0, 1); !errors.Is(err, edge.ErrMemory) {
		t.Errorf("a second space is filled beyond the limit: %v", err)
	}
	must(t, h.far.Close())
	must(t, space.Hold(ctx, other, 0, 8*hostileChunk))
}

// Bytes are right, and operations end, while other clients' threads flood the daemon with advice on the very ranges,
// and on all of a space of 2^43 bytes.
func TestSpaceUnderAdvice(t *testing.T) {
	h := newSpaceHosts(t, 1<<43, space.Options{Pin: 16 * hostileChunk}, nil)
	ctx := testContext(t)
	var stop atomic.Bool
	var flood sync.WaitGroup
	for _, advise := range []func() error{
		func() error { return space.Prefetch(h.far, 0, h.far.Len()) },
		func() error { return space.Evict(h.far, 0, h.far.Len()) },
		func() error { return space.Release(h.far, 0, h.far.Len()) },
		func() error { _, err := space.UsageOf(ctx, h.far); return err },
	} {
		flood.Go(func() {
			for !stop.Load() {
				if err := advise(); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	defer flood.Wait()
	defer stop.Store(true)
	rng := rand.New(rand.NewPCG(5, 6))
	const block = 100 << 10
	for i := range 30 {
		off := rng.IntN(1 << 30)
		copy(h.mem.Bytes(), bytes.Repeat([]byte{byte(i + 1)}, block))
		for _, w := range []edge.Work{{Kind: edge.Write}, {Kind: edge.Read, LocalOff: 512 << 10}} {
			w.Local, w.Len, w.Remote, w.RemoteOff = h.mem, block, h.remote, off
			op, err := h.c.Post(ctx, &w)
			must(t, err)
			if err := op.Wait(ctx); err != nil {
				t.Fatalf("round %d: %v", i, err)
			}
		}
		if m := h.mem.Bytes(); !bytes.Equal(m[:block], m[512<<10:512<<10+block]) {
			t.Fatalf("round %d: other bytes came back", i)
		}
	}
}
