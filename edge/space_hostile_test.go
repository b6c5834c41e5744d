package edge

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"multiedge/internal/config"
)

const hostileChunk = 64 << 10

// spaceHosts are two daemons; a has a space that clients of b import, and b a client.
type spaceHosts struct {
	t      *testing.T
	a, b   *testHost
	owner  *Device
	far    *Region
	client *Device
	c      *Conn
	remote *RemoteRegion
	mem    *Region // the client's, registered whole
}

func newSpaceHosts(t *testing.T, size int, o MapOptions, change func(*config.Config)) *spaceHosts {
	t.Helper()
	f := NewFabric()
	h := &spaceHosts{t: t, a: newHost(t, f, "a", change), b: newHost(t, f, "b", change)}
	ctx := testContext(t)
	h.owner = h.a.open(Config{})
	var err error
	h.far, err = h.owner.Map(ctx, size, o)
	must(t, err)
	l, err := h.owner.Listen(ctx, "store")
	must(t, err)
	_, err = l.Share(h.far, "heap", RemoteRead|RemoteWrite)
	must(t, err)
	go func() {
		for {
			if _, err := l.Accept(ctx); err != nil {
				return
			}
		}
	}()
	h.client, h.c, h.remote, h.mem = h.dial()
	return h
}

// dial attaches another client of b's, which imports the space.
func (h *spaceHosts) dial() (*Device, *Conn, *RemoteRegion, *Region) {
	h.t.Helper()
	ctx := testContext(h.t)
	d := h.b.open(Config{})
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
		must(h.t, h.far.Hold(testContext(h.t), off, 2*hostileChunk))
	}
}

// park posts operations that wait for memory of the space, and returns when they do.
func (h *spaceHosts) park() (ops []Op) {
	h.t.Helper()
	ctx := testContext(h.t)
	before, err := h.far.Usage(ctx)
	must(h.t, err)
	for i, kind := range []Kind{Write, Read, Write, Read} {
		op, err := h.c.PostWait(ctx, &Work{Kind: kind, Local: h.mem, LocalOff: i << 16, Len: 4096, Remote: h.remote,
			RemoteOff: (100 + i) * hostileChunk})
		must(h.t, err)
		ops = append(ops, op)
	}
	eventually(h.t, "all four miss", 10*time.Second, func() bool {
		u, err := h.far.Usage(ctx)
		must(h.t, err)
		return u.Lookups-u.Hits >= before.Lookups-before.Hits+4
	})
	return ops
}

// Memory that is closed while operations of a peer wait for it is not exported any more, and that is what those are
// told at once: not that it did not come in time.
func TestSpaceClosedDuringMisses(t *testing.T) {
	h := newSpaceHosts(t, 1<<30, MapOptions{Pin: 4 * hostileChunk}, nil)
	h.holdAll()
	ops := h.park()
	must(t, h.far.Close())
	for i, op := range ops {
		if err := op.Wait(testContext(t)); !errors.Is(err, ErrKey) {
			t.Errorf("operation %d: %v, want ErrKey", i, err)
		}
	}
	if u := charged(t, h.a); u > 1<<20 {
		t.Errorf("%d bytes of the space are charged still", u)
	}
}

// charged is what all clients of a daemon are charged for.
func charged(t *testing.T, h *testHost) uint64 {
	t.Helper()
	s, err := h.d.Snapshot()
	must(t, err)
	return s.Status.ChargedBytes
}

// A client that dies while its operations wait at the peer leaves nothing behind there: another's go on, and once what
// was held is released they find room.
func TestSpaceClientDiesParked(t *testing.T) {
	h := newSpaceHosts(t, 1<<30, MapOptions{Pin: 4 * hostileChunk}, nil)
	h.holdAll()
	h.park()
	must(t, h.client.Close())
	_, c, remote, mem := h.dial()
	ctx := testContext(t)
	write := func(off int) error {
		op, err := c.PostWait(ctx, &Work{Kind: Write, Local: mem, Len: 4096, Remote: remote, RemoteOff: off})
		if err != nil {
			return err
		}
		return op.Wait(ctx)
	}
	if err := write(0); err != nil {
		t.Errorf("a write to what is resident: %v", err)
	}
	must(t, h.far.Release(0, 2*hostileChunk))
	must(t, h.far.Release(2*hostileChunk, 2*hostileChunk))
	for i := range 20 {
		if err := write((100 + i) * hostileChunk); err != nil {
			t.Errorf("write %d to what is not: %v", i, err)
		}
	}
}

// An owner that dies while peers' operations wait for its memory: they end with its connection, and its daemon holds
// nothing of it.
func TestSpaceOwnerDiesParked(t *testing.T) {
	h := newSpaceHosts(t, 1<<30, MapOptions{Pin: 4 * hostileChunk}, nil)
	h.holdAll()
	ops := h.park()
	must(t, h.owner.Close())
	for i, op := range ops {
		if err := op.Wait(testContext(t)); !errors.Is(err, ErrPeerClosed) && !errors.Is(err, ErrReset) {
			t.Errorf("operation %d: %v", i, err)
		}
	}
	eventually(t, "all is given back", 10*time.Second, func() bool { return charged(t, h.a) == 0 })
}

// What spaces of a user may be filled with is bounded. Operations that need more fail with ErrMemory, those that need
// none go on, and a space that is closed gives back what it had.
func TestSpaceFilledToTheLimit(t *testing.T) {
	const limit = 2 << 20
	h := newSpaceHosts(t, 1<<30, MapOptions{}, func(c *config.Config) { c.Limits.Filled = limit })
	ctx := testContext(t)
	post := func(off int) Op {
		op, err := h.c.PostWait(ctx, &Work{Kind: Write, Local: h.mem, Len: hostileChunk, Remote: h.remote,
			RemoteOff: off})
		must(t, err)
		return op
	}
	const fits, all = limit / hostileChunk, 2 * limit / hostileChunk
	var ops []Op
	for i := range all {
		ops = append(ops, post(i*2*hostileChunk)) // no neighbours: nothing is asked for ahead
	}
	done, failed := 0, 0
	for _, op := range ops {
		switch err := op.Wait(ctx); {
		case err == nil:
			done++
		case errors.Is(err, ErrMemory):
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
	other, err := h.owner.Map(ctx, 1<<30, MapOptions{Pin: 1 << 20})
	must(t, err)
	if err := other.Hold(ctx, 0, 1); !errors.Is(err, ErrMemory) {
		t.Errorf("a second space is filled beyond the limit: %v", err)
	}
	must(t, h.far.Close())
	must(t, other.Hold(ctx, 0, 8*hostileChunk))
}

// Bytes are right, and operations end, while other clients' threads flood the daemon with advice on the very ranges,
// and on all of a space of 2^43 bytes.
func TestSpaceUnderAdvice(t *testing.T) {
	h := newSpaceHosts(t, 1<<43, MapOptions{Pin: 16 * hostileChunk}, nil)
	ctx := testContext(t)
	var stop atomic.Bool
	var flood sync.WaitGroup
	for _, advise := range []func() error{
		func() error { return h.far.Prefetch(0, h.far.Len()) },
		func() error { return h.far.Evict(0, h.far.Len()) },
		func() error { return h.far.Release(0, h.far.Len()) },
		func() error { _, err := h.far.Usage(ctx); return err },
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
		for _, w := range []Work{{Kind: Write}, {Kind: Read, LocalOff: 512 << 10}} {
			w.Local, w.Len, w.Remote, w.RemoteOff = h.mem, block, h.remote, off
			op, err := h.c.PostWait(ctx, &w)
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
