package edge_test

import (
	"context"
	"fmt"

	"multiedge/edge"
)

// ring writes to a remote region with a notification.
func ring(ctx context.Context, remote *edge.RemoteRegion, off int, text string, number uint32) {
	op, err := remote.Conn().PostWait(ctx, &edge.Work{Kind: edge.Write, Flags: edge.Notify, Imm: number,
		Inline: []byte(text), Remote: remote, RemoteOff: off})
	check(err)
	check(op.Wait(ctx))
}

// A goroutine waits for the notifications of one export, which its event queue keeps apart from all others.
func ExampleGrant_Events() {
	ctx := context.Background()
	fab := edge.NewFabric()
	defer fab.Close()
	remote, g := memoryOf(ctx, open(fab, "a"), open(fab, "b"))

	events, err := g.Events(16)
	check(err)
	ring(ctx, remote, 0, "one", 1)
	ring(ctx, remote, 8, "two", 2)
	for range 2 {
		n, err := events.Wait(ctx)
		check(err)
		fmt.Printf("%d: %s\n", n.Imm, n.Grant.Bytes()[n.Offset:][:n.Len])
	}
	// Output:
	// 1: one
	// 2: two
}

// A function runs for each notification of an export, in a goroutine of its own.
func ExampleGrant_Handle() {
	ctx := context.Background()
	fab := edge.NewFabric()
	defer fab.Close()
	remote, g := memoryOf(ctx, open(fab, "a"), open(fab, "b"))

	handled := make(chan string)
	h, err := g.Handle(func(n edge.Notification) {
		handled <- fmt.Sprintf("%d bytes at %d", n.Len, n.Offset)
	})
	check(err)
	ring(ctx, remote, 40, "hello", 0)
	fmt.Println(<-handled)
	h.Stop()
	// Output: 5 bytes at 40
}
