// Atomics has goroutines of any number of hosts count together, and change two words under a lock, in the memory of a
// server whose processor takes no part.
package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"

	"multiedge/edge"
	"multiedge/edge/atomics"
	"multiedge/edge/examples/internal/run"
	"multiedge/edge/named"
)

const about = "Atomics adds to a counter in a server's memory, and moves one from one account to another under a lock."

// Words of the memory, by offset: a multiple of 8.
const (
	counter  = 0
	lock     = 64  // 0, or the number of its holder
	accounts = 128 // two, whose sum stays 0
	size     = 4096
)

const (
	workers = 4
	rounds  = 25
)

func main() { run.Main(about, "words", serve, use) }

func serve(ctx context.Context, dev *edge.Device, service string, ready func()) error {
	mem, err := dev.Register(size)
	if err != nil {
		return err
	}
	if _, err := named.Export(ctx, dev, mem, service, edge.RemoteRead|edge.RemoteWrite|edge.RemoteAtomic); err != nil {
		return err
	}
	ready()
	<-ctx.Done()
	return ctx.Err()
}

func use(ctx context.Context, dev *edge.Device, node, service string) error {
	mem, err := named.Import(ctx, dev, node, service)
	if err != nil {
		return err
	}
	defer mem.Conn().Close()
	worked := make(chan error, workers)
	for range workers {
		go func() { worked <- work(ctx, mem) }()
	}
	for range workers {
		if err := <-worked; err != nil {
			return err
		}
	}
	n, err := atomics.Add(ctx, mem, counter, 0)
	if err != nil {
		return err
	}
	var b [16]byte
	if _, err := mem.ReadAt(b[:], accounts); err != nil {
		return err
	}
	from, to := int64(binary.LittleEndian.Uint64(b[:])), int64(binary.LittleEndian.Uint64(b[8:]))
	fmt.Printf("counted to %d; accounts of %d and %d\n", n, from, to)
	return nil
}

func work(ctx context.Context, mem *edge.RemoteRegion) error {
	me := rand.Uint64() | 1 // not 0
	for range rounds {
		if _, err := atomics.Add(ctx, mem, counter, 1); err != nil {
			return err
		}
		if err := move(ctx, mem, me); err != nil {
			return err
		}
	}
	return nil
}

// move takes one from the first account and gives it to the second: two words, which the lock makes one step.
func move(ctx context.Context, mem *edge.RemoteRegion, me uint64) error {
	for {
		holder, err := atomics.CompareAndSwap(ctx, mem, lock, 0, me)
		if err != nil {
			return err
		}
		if holder == 0 {
			break
		}
	}
	var b [16]byte
	if _, err := mem.ReadAt(b[:], accounts); err != nil {
		return err
	}
	binary.LittleEndian.PutUint64(b[:], binary.LittleEndian.Uint64(b[:])-1)
	binary.LittleEndian.PutUint64(b[8:], binary.LittleEndian.Uint64(b[8:])+1)
	c := mem.Conn()
	write, err := c.Post(ctx, &edge.Work{Kind: edge.Write, Remote: mem, RemoteOff: accounts, Inline: b[:]})
	if err != nil {
		return err
	}
	// Behind the backward fence the lock is free only once the write is in place.
	free, err := c.Post(ctx, &edge.Work{Kind: edge.Atomic, Func: atomics.Swap, Len: 8, Remote: mem, RemoteOff: lock,
		Flags: edge.BackwardFence})
	if err != nil {
		return err
	}
	return edge.WaitAll(ctx, []edge.Op{write, free})
}
