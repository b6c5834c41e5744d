package edge_test

import (
	"context"
	"fmt"
	"log"

	"multiedge/edge"
	"multiedge/edge/fabric"
)

// The server exports a table; the client writes to it with a notification, and reads back behind a fence.
func Example() {
	ctx := context.Background()
	fab := fabric.New() // programs use edge.Open, edge.Dial and edge.Listen
	defer fab.Close()
	a, b := open(fab, "a"), open(fab, "b")

	l, err := a.Listen(ctx, "store")
	check(err)
	served := make(chan struct{})
	go func() {
		defer close(served)
		c, err := l.Accept(ctx)
		check(err)
		r, err := a.Register(1 << 20)
		check(err)
		_, err = r.Export(c, "table", edge.RemoteRead|edge.RemoteWrite, 0, r.Len())
		check(err)
		n, err := c.WaitNotify(ctx)
		check(err)
		fmt.Printf("server: message %d, %q\n", n.Imm, r.Bytes()[512:512+n.Len])
		_, err = c.WaitNotify(ctx)
		fmt.Println("server:", err)
	}()

	c, err := b.Dial(ctx, "a", "store")
	check(err)
	local, err := b.Register(4096)
	check(err)
	table, err := c.Import(ctx, "table")
	check(err)

	n := copy(local.Bytes(), "written from afar")
	write, err := c.Post(ctx, &edge.Work{Kind: edge.Write, Local: local, Len: n, Remote: table, RemoteOff: 512,
		Flags: edge.Notify, Imm: 7})
	check(err)
	read, err := c.Post(ctx, &edge.Work{Kind: edge.Read, Local: local, LocalOff: 1024, Len: n, Remote: table,
		RemoteOff: 512, Flags: edge.BackwardFence})
	check(err)
	check(edge.WaitAll(ctx, []edge.Op{write, read}))
	check(c.Close())
	<-served
	fmt.Printf("client: read %q, done %v\n", local.Bytes()[1024:1024+n], read.Done())
	// Output:
	// server: message 7, "written from afar"
	// server: edge: the peer closed the connection
	// client: read "written from afar", done true
}

// Remote memory serves ordinary readers and writers, too.
func ExampleRemoteRegion_WriteAt() {
	ctx := context.Background()
	fab := fabric.New()
	defer fab.Close()
	a, b := open(fab, "a"), open(fab, "b")
	l, err := a.Listen(ctx, "store")
	check(err)
	go func() {
		c, err := l.Accept(ctx)
		check(err)
		r, err := a.Register(1 << 20)
		check(err)
		_, err = r.Export(c, "log", edge.RemoteRead|edge.RemoteWrite, 0, r.Len())
		check(err)
	}()
	c, err := b.Dial(ctx, "a", "store")
	check(err)
	remote, err := c.Import(ctx, "log")
	check(err)
	_, err = remote.WriteAt([]byte("any memory, any size"), 100)
	check(err)
	p := make([]byte, 10)
	_, err = remote.ReadAt(p, 100)
	check(err)
	fmt.Printf("%s\n", p)
	// Output: any memory
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
