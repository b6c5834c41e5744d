package edge_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync"

	"multiedge/edge"
)

// shareAtomics gives each of n hosts a connection to memory of a, which they may read, write and perform atomics on.
func shareAtomics(fab *edge.Fabric, size, n int) (mem []byte, table []*edge.RemoteRegion) {
	ctx := context.Background()
	a := open(fab, "a")
	r, err := a.Register(size)
	check(err)
	_, err = a.Export(ctx, r, "shared", edge.RemoteRead|edge.RemoteWrite|edge.RemoteAtomic)
	check(err)
	for i := range n {
		t, err := open(fab, fmt.Sprint("client", i)).Import(ctx, "a", "shared")
		check(err)
		table = append(table, t)
	}
	return r.Bytes(), table
}

// A counter that hosts and the process whose memory it is add to.
func ExampleRemoteRegion_FetchAdd() {
	ctx := context.Background()
	fab := edge.NewFabric()
	defer fab.Close()
	mem, clients := shareAtomics(fab, 4096, 3)
	own := word64(mem, 0) // a *atomic.Uint64

	var all sync.WaitGroup
	for _, c := range clients {
		all.Go(func() {
			for range 100 {
				_, err := c.FetchAdd(ctx, 0, 1)
				check(err)
			}
		})
	}
	for range 100 {
		own.Add(1) // the processor's own instruction, on the same memory
	}
	all.Wait()
	fmt.Println(own.Load())
	// Output: 400
}

// A lock: who swaps 0 for his number has it, and what he writes while he has it is in place before he gives it back.
func ExampleRemoteRegion_CompareSwap() {
	ctx := context.Background()
	fab := edge.NewFabric()
	defer fab.Close()
	_, clients := shareAtomics(fab, 4096, 3)
	const lock, data = 0, 64

	var all sync.WaitGroup
	for i, c := range clients {
		all.Go(func() {
			me := uint64(i + 1)
			for range 20 {
				for {
					holder, err := c.CompareSwap(ctx, lock, 0, me)
					check(err)
					if holder == 0 {
						break
					}
				}
				var b [8]byte // two steps that the lock makes one
				_, err := c.ReadAt(b[:], data)
				check(err)
				binary.LittleEndian.PutUint64(b[:], binary.LittleEndian.Uint64(b[:])+1)
				write, err := c.Conn().PostWait(ctx, &edge.Work{Kind: edge.Write, Remote: c, RemoteOff: data,
					Inline: b[:]})
				check(err)
				// Behind the backward fence the lock is free only once the write is in place.
				free, err := c.Conn().PostWait(ctx, &edge.Work{Kind: edge.Atomic, Func: edge.Swap, Len: 8, Remote: c,
					RemoteOff: lock, Flags: edge.BackwardFence})
				check(err)
				check(edge.WaitAll(ctx, []edge.Op{write, free}))
			}
		})
	}
	all.Wait()
	var b [8]byte
	_, err := clients[0].ReadAt(b[:], data)
	check(err)
	fmt.Println(binary.LittleEndian.Uint64(b[:]))
	// Output: 60
}

// A queue of many producers: each takes a place by adding to the tail, writes its item there, and marks the place full
// behind a fence, with a notification. The consumer takes the items in the order of places.
func ExampleAtomicFunc() {
	ctx := context.Background()
	fab := edge.NewFabric()
	defer fab.Close()
	const producers, each, items = 3, 10, 64 // of items the first 8 bytes say that the place is full
	mem, clients := shareAtomics(fab, 4096, producers)

	var all sync.WaitGroup
	for i, c := range clients {
		all.Go(func() {
			for k := range each {
				place, err := c.FetchAdd(ctx, 0, 1)
				check(err)
				at := items + 16*int(place) // there are as many places as items; else wait for the consumer's head
				var item [8]byte
				binary.LittleEndian.PutUint64(item[:], uint64(100*i+k))
				_, err = c.Conn().PostWait(ctx, &edge.Work{Kind: edge.Write, Remote: c, RemoteOff: at + 8,
					Inline: item[:]})
				check(err)
				full, err := c.Conn().PostWait(ctx, &edge.Work{Kind: edge.Atomic, Func: edge.Swap, Len: 8, Remote: c,
					RemoteOff: at, Operand: 1, Flags: edge.BackwardFence})
				check(err)
				check(full.Wait(ctx))
			}
		})
	}
	all.Wait()
	last, sum := map[uint64]uint64{}, uint64(0)
	for place := range producers * each {
		at := items + 16*place
		if word64(mem, at).Load() != 1 {
			fmt.Println("place", place, "is empty")
		}
		v := binary.LittleEndian.Uint64(mem[at+8:])
		if who := v / 100; last[who] > v {
			fmt.Println("items of producer", who, "are out of order")
		} else {
			last[who] = v
		}
		sum += v
	}
	fmt.Println(len(last), "producers, sum", sum)
	// Output: 3 producers, sum 3135
}
