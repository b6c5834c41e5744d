package events_test

import (
	"context"
	"fmt"
	"log"

	"multiedge/edge"
	"multiedge/edge/events"
	"multiedge/edge/fabric"
)

// ring writes to a remote region with a notification.
func ring(ctx context.Context, remote *edge.RemoteRegion, off int, text string, number uint32) {
	op, err := remote.Conn().Post(ctx, &edge.Work{Kind: edge.Write, Flags: edge.Notify, Imm: number,
		Inline: []byte(text), Remote: remote, RemoteOff: off})
	check(err)
	check(op.Wait(ctx))
}

// A goroutine waits for the notifications of one export, which its event queue keeps apart from all others.
func ExampleOpen() {
	ctx := context.Background()
	fab := fabric.New()
	defer fab.Close()
	remote, g := memoryOf(ctx, open(fab, "a"), open(fab, "b"))

	queue, err := events.Open(g, 16)
	check(err)
	ring(ctx, remote, 0, "one", 1)
	ring(ctx, remote, 8, "two", 2)
	for range 2 {
		n, err := queue.Wait(ctx)
		check(err)
		fmt.Printf("%d: %s\n", n.Imm, n.Grant.Bytes()[n.Offset:][:n.Len])
	}
	// Output:
	// 1: one
	// 2: two
}

// A function runs for each notification of an export, in a goroutine of its own.
func ExampleHandle() {
	ctx := context.Background()
	fab := fabric.New()
	defer fab.Close()
	remote, g := memoryOf(ctx, open(fab, "a"), open(fab, "b"))

	handled := make(chan string)
	h, err := events.Handle(g, func(n edge.Notification) {
		handled <- fmt.Sprintf("%d bytes at %d", n.Len, n.Offset)
	})
	check(err)
	ring(ctx, remote, 40, "hello", 0)
	fmt.Println(<-handled)
	h.Stop()
	// Output: 5 bytes at 40
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
