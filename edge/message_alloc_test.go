//go:build !race

package edge

import (
	"context"
	"math"
	"testing"
)

// Sending, receiving and polling allocate nothing: no more than the fabric's frames do by themselves.
func TestMessagesAllocateNothing(t *testing.T) {
	p := newMessagePair(t, Config{})
	ctx := context.Background()
	var out [4]Completion
	buffer := Work{Kind: Receive, Local: p.mem[1], Len: 64, Queue: p.cq[1]}
	message := Work{Kind: Send, Local: p.mem[0], Len: 64, Queue: p.cq[0]}
	once := func() {
		_, err := p.conn[1].Post(ctx, &buffer)
		must(t, err)
		_, err = p.conn[0].Post(ctx, &message)
		must(t, err)
		for i := range 2 {
			if _, err := p.cq[i].Wait(ctx, out[:]); err != nil || out[0].Err != nil {
				t.Fatal(err, out[0].Err)
			}
		}
	}
	_, err := p.mem[1].Export(p.conn[1], "out", RemoteWrite, 0, 64)
	must(t, err)
	remote, err := p.conn[0].Import(ctx, "out")
	must(t, err)
	write := Work{Kind: Write, Local: p.mem[0], Len: 64, Remote: remote, Flags: Notify}
	compared := func() {
		op, err := p.conn[0].Post(ctx, &write)
		must(t, err)
		_, err = p.conn[1].WaitNotify(ctx)
		must(t, err)
		must(t, op.Wait(ctx))
	}
	for range 8 { // buffers ahead, as programs post them: acknowledgements tell of each that is posted anew
		_, err := p.conn[1].Post(ctx, &buffer)
		must(t, err)
	}
	for range 100 {
		once()
		compared()
	}
	// The least of several tries: what else runs allocates now and then.
	n, least := math.Inf(1), math.Inf(1)
	for try := 0; try < 10 && (try == 0 || n > least); try++ {
		n, least = min(n, testing.AllocsPerRun(100, once)), min(least, testing.AllocsPerRun(100, compared))
	}
	if n > least {
		t.Errorf("%v allocations, a write with notification %v", n, least)
	}
}
