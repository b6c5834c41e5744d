package edge_test

import (
	"context"
	"testing"

	"multiedge/edge"
	"multiedge/edge/heap"
)

// BenchmarkHeap writes and reads registered memory and heap grants by turns: what couriers cost.
func BenchmarkHeap(b *testing.B) {
	ctx := context.Background()
	f := edge.NewFabric()
	defer f.Close()
	must := func(err error) {
		b.Helper()
		if err != nil {
			b.Fatal(err)
		}
	}
	server, err := f.Open("a")
	must(err)
	client, err := f.Open("b")
	must(err)
	l, err := server.Listen(ctx, "s")
	must(err)
	accepted := make(chan *edge.Conn, 1)
	go func() {
		c, _ := l.Accept(ctx)
		accepted <- c
	}()
	c, err := client.Dial(ctx, "a", "s")
	must(err)
	back := <-accepted
	const size = 1 << 20
	for _, granted := range []bool{false, true} {
		grant := func(d *edge.Device) *edge.Region {
			var r *edge.Region
			if granted {
				r, err = heap.Grant(ctx, d, make([]byte, size))
			} else {
				r, err = d.Register(size)
			}
			must(err)
			return r
		}
		name := "registered"
		if granted {
			name = "heap"
		}
		far, near := grant(server), grant(client)
		_, err := far.Export(back, name, edge.RemoteRead|edge.RemoteWrite, 0, size)
		must(err)
		remote, err := c.Import(ctx, name)
		must(err)
		for _, kind := range []edge.Kind{edge.Write, edge.Read} {
			for _, n := range []struct {
				name string
				n    int
			}{{"8", 8}, {"64K", 64 << 10}, {"1M", size}} {
				kinds := map[edge.Kind]string{edge.Write: "write", edge.Read: "read"}
				b.Run(kinds[kind]+"/"+n.name+"/"+name, func(b *testing.B) {
					b.SetBytes(int64(n.n))
					for range b.N {
						op, err := c.Post(ctx, &edge.Work{Kind: kind, Local: near, Len: n.n, Remote: remote})
						must(err)
						must(op.Wait(ctx))
					}
				})
			}
		}
	}
}
