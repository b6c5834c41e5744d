package redirect_test

import (
	"context"
	"fmt"
	"log"

	"multiedge/edge"
	"multiedge/edge/fabric"
	"multiedge/edge/redirect"
)

// A program knows where it wants what a peer is about to write, and has it put there: it is not copied from the export.
// The peer knows nothing of it.
func ExampleBegin() {
	ctx := context.Background()
	fab := fabric.New() // programs use edge.Open
	defer fab.Close()
	a, b := open(fab, "a"), open(fab, "b")
	remote, g := memoryOf(ctx, a, b)

	page, err := b.Register(4096)
	check(err)
	r, err := redirect.Begin(g, 0, 12, page, 100)
	check(err)
	_, err = remote.WriteAt([]byte("to the page"), 0)
	check(err)
	_, err = r.Take(ctx) // ends it; what was faster than the redirection is copied
	check(err)
	fmt.Printf("%s\n", page.Bytes()[100:111])
	// Output: to the page
}

// A program uses one small buffer for message after message: each write is done as soon as its bytes may change.
func ExampleConn_Late() {
	ctx := context.Background()
	fab := fabric.New()
	defer fab.Close()
	remote, g := memoryOf(ctx, open(fab, "a"), open(fab, "b"))
	c := remote.Conn()

	mem, err := c.Device().Register(4096)
	check(err)
	for i := range 100 {
		n := copy(mem.Bytes(), fmt.Sprintf("%3d", i))
		op, err := c.Post(ctx, &edge.Work{Kind: edge.Write, Flags: edge.LocalDone, Local: mem, Len: n,
			Remote: remote, RemoteOff: 3 * i})
		check(err)
		check(op.Wait(ctx)) // mem is ours again
	}
	last, err := c.Post(ctx, &edge.Work{Kind: edge.Write, Flags: edge.BackwardFence, Inline: []byte("."),
		Remote: remote, RemoteOff: 300})
	check(err)
	check(last.Wait(ctx)) // all writes before have ended, too
	failed, err := c.Late()
	fmt.Printf("%s %d %v\n", g.Bytes()[291:301], failed, err)
	// Output: 97 98 99. 0 <nil>
}

// memoryOf connects a to b, which exports 4096 bytes, and returns what each end has of them.
func memoryOf(ctx context.Context, a, b *edge.Device) (*edge.RemoteRegion, *edge.Grant) {
	l, err := b.Listen(ctx, "memory")
	check(err)
	granted := make(chan *edge.Grant)
	go func() {
		c, err := l.Accept(ctx)
		check(err)
		mem, err := b.Register(4096)
		check(err)
		g, err := mem.Export(c, "memory", edge.RemoteWrite, 0, 4096)
		check(err)
		granted <- g
	}()
	c, err := a.Dial(ctx, "b", "memory")
	check(err)
	remote, err := c.Import(ctx, "memory")
	check(err)
	return remote, <-granted
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
