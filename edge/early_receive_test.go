package edge

import (
	"context"
	"errors"
	"testing"
)

// A connection that is not accepted yet takes buffers, its own or those of a queue: the peer's first message finds one
// even if it does not wait. Buffers of a request that is refused come back.
func TestReceiveBeforeAccept(t *testing.T) {
	for _, shared := range []bool{false, true} {
		p := newMessagePair(t, Config{})
		ctx := testContext(t)
		l, err := p.dev[1].Listen(ctx, "early")
		must(t, err)
		type dialled struct {
			c   *Conn
			err error
		}
		dial := func() chan dialled {
			done := make(chan dialled, 1)
			go func() {
				c, err := p.dev[0].Dial(ctx, "b", "early")
				done <- dialled{c, err}
			}()
			return done
		}
		w := &Work{Kind: Receive, Local: p.mem[1], Len: 8, Queue: p.cq[1], Context: 7}

		done := dial()
		r, err := l.Next(ctx)
		must(t, err)
		if _, err := r.Post(ctx, &Work{Kind: Write, Local: p.mem[1], Len: 8}); err == nil {
			t.Error("a write is posted before accept")
		}
		must(t, second(r.Post(ctx, w)))
		must(t, r.Refuse("no"))
		if c := p.take(t, 1, 1)[0]; c.Err == nil || c.Context != 7 {
			t.Errorf("a refused request's buffer %d came back with %v", c.Context, c.Err)
		}
		if d := <-done; !errors.Is(d.err, ErrRefused) {
			t.Errorf("the dial that was refused: %v", d.err)
		}

		done = dial()
		r, err = l.Next(ctx)
		must(t, err)
		post := r.Post
		if shared {
			q, err := p.dev[1].NewReceiveQueue(ctx)
			must(t, err)
			must(t, r.Serve(ctx, q))
			post = q.Post
		}
		must(t, second(post(ctx, w)))
		c, err := r.Accept(ctx, nil)
		must(t, err)
		d := <-done
		must(t, d.err)
		op, err := d.c.Post(ctx, &Work{Kind: Send, Inline: []byte("at once"), Patience: -1})
		must(t, err)
		must(t, op.Wait(context.Background()))
		got := p.take(t, 1, 1)[0]
		if got.Err != nil || got.Conn != c || string(p.mem[1].Bytes()[:got.Len]) != "at once" {
			t.Errorf("shared %v: the first message: %v, %q", shared, got.Err, p.mem[1].Bytes()[:got.Len])
		}
		must(t, d.c.Close())
	}
}
