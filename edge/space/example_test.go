package space_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"log"
	"math/rand/v2"

	"multiedge/edge"
	"multiedge/edge/fabric"
	"multiedge/edge/space"
)

// A store of 64 GiB on a host that has less memory: a peer writes all over it, and never more than 256 MiB is pinned.
func ExampleMap() {
	const size, pin, writes, block = 64 << 30, 256 << 20, 2000, 4096
	ctx := context.Background()
	fab := fabric.New()
	defer fab.Close()
	a, b := open(fab, "a"), open(fab, "b")

	l, err := a.Listen(ctx, "store")
	check(err)
	store := make(chan *edge.Region, 1)
	go func() {
		c, err := l.Accept(ctx)
		check(err)
		r, err := space.Map(ctx, a, size, space.Options{Pin: pin})
		check(err)
		_, err = r.Export(c, "heap", edge.RemoteRead|edge.RemoteWrite, 0, r.Len())
		check(err)
		store <- r
	}()

	c, err := b.Dial(ctx, "a", "store")
	check(err)
	local, err := b.Register(writes * block)
	check(err)
	heap, err := c.Import(ctx, "heap")
	check(err)

	rng := rand.New(rand.NewPCG(1, 2))
	places := make([]int, writes)
	ops := make([]edge.Op, writes)
	for i := range places {
		places[i] = rng.IntN(size/block) * block
		binary.LittleEndian.PutUint64(local.Bytes()[i*block:], uint64(i)+1)
		ops[i], err = c.Post(ctx, &edge.Work{Kind: edge.Write, Local: local, LocalOff: i * block, Len: block,
			Remote: heap, RemoteOff: places[i]})
		check(err)
	}
	check(edge.WaitAll(ctx, ops))

	r := <-store
	intact := 0
	for i, at := range places {
		if binary.LittleEndian.Uint64(r.Bytes()[at:]) == uint64(i)+1 {
			intact++
		}
	}
	u, err := space.UsageOf(ctx, r)
	check(err)
	fmt.Printf("%d of %d intact, pinned within budget: %v, misses: %v\n", intact, writes, u.Pinned <= pin, u.Cold > 0)
	// Output: 2000 of 2000 intact, pinned within budget: true, misses: true
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
