package edge_test

import (
	"context"
	"fmt"

	"multiedge/edge"
	"multiedge/edge/fabric"
)

// Two programs play ping-pong with messages: each posts buffers, sends, and takes what came from its completion queue.
func ExampleConn_Post_message() {
	ctx := context.Background()
	fab := fabric.New() // programs use edge.Open, edge.Dial and edge.Listen
	defer fab.Close()
	a, b := open(fab, "a"), open(fab, "b")
	l, err := a.Listen(ctx, "table")
	check(err)
	played := make(chan struct{})
	go func() {
		defer close(played)
		c, err := l.Accept(ctx)
		check(err)
		play(ctx, c, false)
	}()
	c, err := b.Dial(ctx, "a", "table")
	check(err)
	fmt.Println(play(ctx, c, true))
	<-played
	check(c.Close())
	// Output: 10 balls, the last "ball 19"
}

// play sends and receives 10 balls.
func play(ctx context.Context, c *edge.Conn, serves bool) string {
	const buffer, balls = 64, 10
	cq, err := c.Device().NewCompletionQueue(16)
	check(err)
	mem, err := c.Device().Register(4096)
	check(err)
	post := func(i uint64) { // buffers are used in the order in which they are posted
		_, err := c.Post(ctx, &edge.Work{Kind: edge.Receive, Local: mem, LocalOff: int(i) * buffer, Len: buffer,
			Queue: cq, Context: i})
		check(err)
	}
	send := func(n uint32) edge.Op {
		op, err := c.Post(ctx, &edge.Work{Kind: edge.Send, Inline: fmt.Appendf(nil, "ball %d", n), Flags: edge.Notify,
			Imm: n})
		check(err)
		return op
	}
	for i := range uint64(4) {
		post(i)
	}
	var last edge.Op
	if serves {
		last = send(0)
	}
	text := ""
	var got [1]edge.Completion
	for range balls {
		_, err := cq.Wait(ctx, got[:])
		check(err)
		check(got[0].Err)
		text = string(mem.Bytes()[got[0].Context*buffer:][:got[0].Len])
		if n := got[0].Imm + 1; n < 2*balls {
			post(got[0].Context)
			last = send(n)
		}
	}
	check(last.Wait(ctx))
	return fmt.Sprintf("%d balls, the last %q", balls, text)
}

// A server answers requests of a thousand connections from one receive queue of 64 buffers, by one goroutine.
func ExampleReceiveQueue() {
	const conns, buffers, size = 1000, 64, 128
	ctx := context.Background()
	fab := fabric.New()
	defer fab.Close()
	a, b := open(fab, "a"), open(fab, "b")
	l, err := a.Listen(ctx, "square")
	check(err)

	rq, err := a.NewReceiveQueue(ctx)
	check(err)
	cq, err := a.NewCompletionQueue(buffers)
	check(err)
	mem, err := a.Register(buffers * size)
	check(err)
	post := func(i uint64) {
		_, err := rq.Post(ctx, &edge.Work{Kind: edge.Receive, Local: mem, LocalOff: int(i) * size, Len: size, Queue: cq,
			Context: i})
		check(err)
	}
	for i := range uint64(buffers) {
		post(i)
	}
	go func() {
		for {
			c, err := l.Accept(ctx)
			if err != nil {
				return
			}
			check(rq.Serve(ctx, c))
		}
	}()
	served := make(chan struct{})
	go func() {
		defer close(served)
		var done [buffers]edge.Completion
		for answered := 0; answered < conns; {
			n, err := cq.Wait(ctx, done[:])
			check(err)
			for _, d := range done[:n] {
				check(d.Err)
				_, err := d.Conn.Post(ctx, &edge.Work{Kind: edge.Send, Flags: edge.Notify, Imm: d.Imm * d.Imm})
				check(err)
				post(d.Context)
				answered++
			}
		}
	}()

	answers, err := b.NewCompletionQueue(conns)
	check(err)
	room, err := b.Register(conns * 8)
	check(err)
	for i := range conns {
		c, err := b.Dial(ctx, "a", "square")
		check(err)
		_, err = c.Post(ctx, &edge.Work{Kind: edge.Receive, Local: room, LocalOff: i * 8, Len: 8, Queue: answers,
			Context: uint64(i)})
		check(err)
		_, err = c.Post(ctx, &edge.Work{Kind: edge.Send, Flags: edge.Notify, Imm: uint32(i)})
		check(err)
	}
	right := 0
	var got [64]edge.Completion
	for seen := 0; seen < conns; {
		n, err := answers.Wait(ctx, got[:])
		check(err)
		for _, d := range got[:n] {
			check(d.Err)
			if uint64(d.Imm) == d.Context*d.Context {
				right++
			}
		}
		seen += n
	}
	<-served
	fmt.Println(right, "right answers")
	// Output: 1000 right answers
}
