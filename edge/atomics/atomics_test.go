package atomics_test

import (
	"bytes"
	"context"
	"errors"
	"log"
	"sync"
	"testing"
	"time"

	"multiedge/edge"
	"multiedge/edge/atomics"
	"multiedge/edge/fabric"
	"multiedge/edge/named"
)

// shared is memory of one host, and two others that reach it with those permissions.
func shared(t *testing.T, ctx context.Context, perm edge.Perm) (mem []byte, clients []*edge.RemoteRegion) {
	fab := fabric.New()
	t.Cleanup(func() { fab.Close() })
	a := open(fab, "a")
	r, err := a.Register(1 << 20)
	check(err)
	_, err = named.Export(ctx, a, r, "shared", perm)
	check(err)
	for _, name := range []string{"b", "c"} {
		m, err := named.Import(ctx, open(fab, name), "a", "shared")
		check(err)
		clients = append(clients, m)
	}
	return r.Bytes(), clients
}

// Atomics of two hosts and of the owner's processor, on 8 bytes and on 4, lose no addition.
func TestAtomicsWithProcessor(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	mem, clients := shared(t, ctx, edge.RemoteAtomic)
	const each = 300
	var all sync.WaitGroup
	for _, c := range clients {
		all.Go(func() {
			var was [2 * each]uint64
			var ops []edge.Op
			for i := range each {
				for k, n := range []int{8, 4} {
					op, err := c.Conn().Post(ctx, &edge.Work{Kind: edge.Atomic, Func: atomics.FetchAdd, Len: n,
						Operand: 1, Remote: c, RemoteOff: 8 + 8*k, Result: &was[2*i+k]})
					check(err)
					ops = append(ops, op)
				}
			}
			check(edge.WaitAll(ctx, ops))
			for k := range 2 { // a connection without fences may reorder them, but none finds the same
				seen := map[uint64]bool{}
				for i := range each {
					if v := was[2*i+k]; seen[v] || v >= 3*each {
						t.Errorf("an addition found %d, which another found or nobody left", v)
						return
					}
					seen[was[2*i+k]] = true
				}
			}
		})
	}
	long, short := word64(mem, 8), word32(mem, 16)
	for range each {
		long.Add(1)
		short.Add(1)
	}
	all.Wait()
	if long.Load() != 3*each || short.Load() != 3*each || !bytes.Equal(mem[:8], make([]byte, 8)) ||
		!bytes.Equal(mem[20:32], make([]byte, 12)) {
		t.Errorf("counters are %d and %d, want %d; memory %x", long.Load(), short.Load(), 3*each, mem[:32])
	}
}

// What is wrong with an atomic is said before it is posted, and nothing is lost.
func TestAtomicErrors(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, clients := shared(t, ctx, edge.RemoteRead|edge.RemoteAtomic)
	m := clients[0]
	local, err := m.Conn().Device().Register(4096)
	check(err)
	good := edge.Work{Kind: edge.Atomic, Func: atomics.FetchAdd, Len: 8, Remote: m}
	for name, c := range map[string]struct {
		change func(w *edge.Work)
		want   error
	}{
		"misaligned":       {func(w *edge.Work) { w.RemoteOff = 4 }, edge.ErrMisaligned},
		"misaligned half":  {func(w *edge.Work) { w.Len, w.RemoteOff = 4, 6 }, edge.ErrMisaligned},
		"outside":          {func(w *edge.Work) { w.RemoteOff = 1 << 20 }, edge.ErrBounds},
		"no function":      {func(w *edge.Work) { w.Func = 0 }, edge.ErrInvalid},
		"unknown function": {func(w *edge.Work) { w.Func = 11 }, edge.ErrInvalid},
		"16 bytes":         {func(w *edge.Work) { w.Len = 16 }, edge.ErrInvalid},
		"local memory":     {func(w *edge.Work) { w.Local = local }, edge.ErrInvalid},
		"compares":         {func(w *edge.Work) { w.Compare = 1 }, edge.ErrInvalid},
		"a write":          {func(w *edge.Work) { w.Kind, w.Local = edge.Write, local }, edge.ErrPermission},
	} {
		w := good
		c.change(&w)
		if _, err := m.Conn().Post(ctx, &w); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	if was, err := atomics.Add(ctx, m, 0, 5); was != 0 || err != nil {
		t.Errorf("found %d, %v", was, err)
	}
	if was, err := atomics.Do(ctx, m, atomics.FetchMaxSigned, 0, ^uint64(0)); was != 5 || err != nil {
		t.Errorf("found %d, %v", was, err)
	}
	if was, err := atomics.CompareAndSwap(ctx, m, 0, 5, 6); was != 5 || err != nil {
		t.Errorf("found %d, %v", was, err)
	}
}

func open(fab *fabric.Fabric, name string) *edge.Device {
	d, err := fab.Open(name)
	check(err)
	return d
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
