package edge_test

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"multiedge/edge"
	"multiedge/edge/space"
	"multiedge/regmem"
)

const spaceChunk = 64 << 10

// spacePair is two hosts, each with a space; a's is exported to b.
type spacePair struct {
	t          *testing.T
	ctx        context.Context
	c          *edge.Conn
	far, near  *edge.Region
	remote     *edge.RemoteRegion
	fabric     *edge.Fabric
	registered *edge.Region // of b, registered whole
}

func newSpacePair(t *testing.T, size int, o space.Options) *spacePair {
	t.Helper()
	p := &spacePair{t: t, fabric: edge.NewFabric()}
	t.Cleanup(func() { p.fabric.Close() })
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	p.ctx = ctx
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	open := func(name string) *edge.Device { // evicted memory is missed again, without swap too
		d, err := p.fabric.OpenConfig(ctx, name, edge.Config{Embedded: &edge.Embedded{Misses: "park"}})
		must(err)
		return d
	}
	a, b := open("a"), open("b")
	l, err := a.Listen(ctx, "store")
	must(err)
	p.far, err = space.Map(ctx, a, size, o)
	must(err)
	go exportToAll(ctx, l, p.far, "heap", edge.RemoteRead|edge.RemoteWrite)
	p.c, err = b.Dial(ctx, "a", "store")
	must(err)
	p.near, err = space.Map(ctx, b, size, o)
	must(err)
	p.registered, err = b.Register(1 << 20)
	must(err)
	p.remote, err = p.c.Import(ctx, "heap")
	must(err)
	return p
}

func (p *spacePair) post(w edge.Work) edge.Op {
	p.t.Helper()
	w.Remote = p.remote
	op, err := p.c.Post(p.ctx, &w)
	if err != nil {
		p.t.Fatal(err)
	}
	return op
}

// TestSpaceAtAllSites: bytes that go from a space to a space and back, all of which are missed again and again because
// little may be pinned, arrive unchanged; and what is registered whole beside them too.
func TestSpaceAtAllSites(t *testing.T) {
	// Who waits behind others for memory does so for ten seconds at most: so many at once are served in that on any
	// machine, in chunks of 2 MiB too, each of which is filled.
	const size, block, rounds, atOnce = 1 << 30, 200 << 10, 60, 15
	options := []space.Options{{Pin: 4 << 20, Policy: space.Random, Chunk: 16 << 10},
		{Pin: 32 << 20, Huge: true, PrePin: 4 << 20}, {Pin: 4 * spaceChunk}}
	for p := range space.Policy(len(regmem.Policies)) {
		options = append(options, space.Options{Pin: 1 << 20, Chunk: 16 << 10, Policy: p})
	}
	for _, o := range options {
		p := newSpacePair(t, size, o)
		rng := rand.New(rand.NewPCG(3, 4))
		place := func() int { return rng.IntN(size/block) * block }
		type leg struct {
			from, far, to int
			tag           byte
		}
		var legs []leg
		var ops []edge.Op
		used := map[int]bool{}
		fresh := func() int {
			for {
				if at := place(); !used[at] {
					used[at] = true
					return at
				}
			}
		}
		for i := range rounds {
			if o.Huge && i == rounds/3 {
				break
			}
			if len(ops) >= 2*atOnce {
				if err := edge.WaitAll(p.ctx, ops); err != nil {
					t.Fatalf("%+v: %v", o, err)
				}
				ops = ops[:0]
			}
			g := leg{fresh(), fresh(), fresh(), byte(i + 1)}
			legs = append(legs, g)
			copy(p.near.Bytes()[g.from:], bytes.Repeat([]byte{g.tag}, block))
			ops = append(ops, p.post(edge.Work{Kind: edge.Write, Local: p.near, LocalOff: g.from, Len: block,
				RemoteOff: g.far}))
			ops = append(ops, p.post(edge.Work{Kind: edge.Read, Local: p.near, LocalOff: g.to, Len: block,
				RemoteOff: g.far, Flags: edge.BackwardFence}))
		}
		if err := edge.WaitAll(p.ctx, ops); err != nil {
			t.Fatalf("%+v: %v", o, err)
		}
		for _, g := range legs {
			want := bytes.Repeat([]byte{g.tag}, block)
			if !bytes.Equal(p.far.Bytes()[g.far:g.far+block], want) ||
				!bytes.Equal(p.near.Bytes()[g.to:g.to+block], want) {
				t.Fatalf("%+v: block %d is not what was sent", o, g.tag)
			}
		}
		for _, r := range []*edge.Region{p.far, p.near} {
			u, err := space.UsageOf(p.ctx, r)
			if err != nil || u.Pinned > o.Pin || u.Cold == 0 || u.Prefetched == 0 || u.Used == 0 {
				t.Errorf("%+v: %+v, %v", o, u, err)
			}
			if err := r.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

// TestSpaceThatCannotPin: while all that a space may pin is held, operations that need more of it fail with ErrMemory
// within a second or so at every site, others do not notice, and all goes on once it is released.
func TestSpaceThatCannotPin(t *testing.T) {
	p := newSpacePair(t, 1<<30, space.Options{Pin: 4 * spaceChunk})
	for _, r := range []*edge.Region{p.far, p.near} {
		for off := 0; off < 4*spaceChunk; off += 2 * spaceChunk {
			if err := space.Hold(p.ctx, r, off, 2*spaceChunk); err != nil {
				t.Fatal(err)
			}
		}
		if !space.Resident(r, 0, 4*spaceChunk) || space.Resident(r, 0, 5*spaceChunk) {
			t.Error("the hints do not say what is held")
		}
		if err := space.Hold(p.ctx, r, 8*spaceChunk, 1); !errors.Is(err, edge.ErrMemory) {
			t.Errorf("Hold beyond the budget: %v", err)
		}
	}
	const away = 100 * spaceChunk
	works := []edge.Work{
		{Kind: edge.Write, Local: p.registered, Len: 1 << 16, RemoteOff: away},
		{Kind: edge.Read, Local: p.registered, Len: 1 << 16, RemoteOff: away},
		{Kind: edge.Write, Local: p.near, LocalOff: away, Len: 1 << 16},
		{Kind: edge.Write, Local: p.near, LocalOff: 3*spaceChunk + 100, Len: 1 << 17}, // half of it is sent
		{Kind: edge.Read, Local: p.near, LocalOff: away, Len: 1 << 16},
	}
	var ops []edge.Op
	for _, w := range works {
		ops = append(ops, p.post(w))
	}
	beside := p.post(edge.Work{Kind: edge.Write, Local: p.registered, Len: 4096, RemoteOff: 0})
	if err := beside.Wait(p.ctx); err != nil {
		t.Errorf("an operation beside them: %v", err)
	}
	for i, op := range ops {
		if op.Done() {
			t.Errorf("operation %d ended before the one beside it", i)
		}
	}
	for i, op := range ops {
		if err := op.Wait(p.ctx); !errors.Is(err, edge.ErrMemory) {
			t.Errorf("operation %d ended with %v, want ErrMemory", i, err)
		}
	}
	for _, r := range []*edge.Region{p.far, p.near} {
		if err := space.Release(r, 0, 2*spaceChunk); err != nil {
			t.Fatal(err)
		}
	}
	ops = ops[:0]
	for _, w := range works {
		w.Flags = edge.BackwardFence // all before it must be over at the peer
		ops = append(ops, p.post(w))
	}
	if err := edge.WaitAll(p.ctx, ops); err != nil {
		t.Errorf("after the release: %v", err)
	}
}

// TestMapRefuses: what cannot be is refused with a reason, and nothing is left charged.
func TestMapRefuses(t *testing.T) {
	p := newSpacePair(t, 1<<20, space.Options{})
	d := p.c.Device()
	for _, c := range []struct {
		size int
		o    space.Options
		want error
	}{
		{0, space.Options{}, edge.ErrInvalid}, {1<<47 + 1, space.Options{}, edge.ErrInvalid},
		{1 << 30, space.Options{Chunk: 5000}, edge.ErrInvalid},
		{1 << 30, space.Options{Pin: 4096}, edge.ErrInvalid},
		{1 << 30, space.Options{Policy: 77}, edge.ErrInvalid}, {1 << 30, space.Options{Pin: 1 << 50}, nil},
	} {
		r, err := space.Map(p.ctx, d, c.size, c.o)
		if err == nil {
			u, _ := space.UsageOf(p.ctx, r)
			if r.Close(); c.want != nil || c.o.Pin != 1<<50 {
				t.Errorf("Map(%d, %+v) was granted: %+v", c.size, c.o, u)
			}
			continue
		}
		if c.want != nil && !errors.Is(err, c.want) {
			t.Errorf("Map(%d, %+v): %v", c.size, c.o, err)
		}
	}
	if err := space.Prefetch(p.near, 0, 1<<20+1); !errors.Is(err, edge.ErrBounds) {
		t.Errorf("advice beyond the end: %v", err)
	}
	if _, err := space.UsageOf(p.ctx, p.registered); err != nil || !space.Resident(p.registered, 0, 1) ||
		space.Evict(p.registered, 0, 1) != nil {
		t.Errorf("advice on what is registered whole: %v", err)
	}
	r, err := space.Map(p.ctx, d, 1<<40, space.Options{Pin: 8 << 20})
	if err != nil {
		t.Fatalf("a tebibyte: %v", err)
	}
	if op := p.post(edge.Work{Kind: edge.Read, Local: r, LocalOff: 1<<40 - 4096, Len: 4096}); op.Wait(p.ctx) != nil {
		t.Error("reading to the end of a tebibyte failed")
	}
}
