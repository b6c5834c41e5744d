package heap_test

import (
	"context"
	"fmt"
	"log"

	"multiedge/edge"
	"multiedge/edge/fabric"
	"multiedge/edge/heap"
)

// A program that never heard of regions keeps a table on Go's heap. A peer writes into it and is told the sum.
func ExampleGrant() {
	ctx := context.Background()
	fab := fabric.New() // two hosts in memory; edge.Open on real ones
	defer fab.Close()
	server, err := fab.Open("server")
	if err != nil {
		log.Fatal(err)
	}
	client, err := fab.Open("client")
	if err != nil {
		log.Fatal(err)
	}
	l, err := server.Listen(ctx, "table")
	if err != nil {
		log.Fatal(err)
	}
	done := make(chan float64)
	go func() {
		c, err := l.Accept(ctx)
		if err != nil {
			log.Fatal(err)
		}
		table := make([]float64, 1000)
		r, err := heap.Grant(ctx, server, table)
		if err != nil {
			log.Fatal(err)
		}
		if _, err := r.Export(c, "table", edge.RemoteWrite, 0, r.Len()); err != nil {
			log.Fatal(err)
		}
		if _, err := c.WaitNotify(ctx); err != nil {
			log.Fatal(err)
		}
		sum := 0.0
		for _, v := range table {
			sum += v
		}
		done <- sum
	}()
	c, err := client.Dial(ctx, "server", "table")
	if err != nil {
		log.Fatal(err)
	}
	remote, err := c.Import(ctx, "table")
	if err != nil {
		log.Fatal(err)
	}
	mine := make([]float64, 1000)
	for i := range mine {
		mine[i] = 0.5
	}
	local, err := heap.Grant(ctx, client, mine)
	if err != nil {
		log.Fatal(err)
	}
	op, err := c.Post(ctx, &edge.Work{Kind: edge.Write, Local: local, Len: local.Len(), Remote: remote,
		Flags: edge.Notify})
	if err != nil {
		log.Fatal(err)
	}
	if err := op.Wait(ctx); err != nil {
		log.Fatal(err)
	}
	fmt.Println(<-done)
	// Output: 500
}
