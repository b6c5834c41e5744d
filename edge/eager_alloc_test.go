//go:build !race

package edge_test

import (
	"context"
	"math"
	"testing"

	"multiedge/edge"
	"multiedge/edge/compose"
)

// Composing allocates nothing: no more than a write and the fabric's frames do by themselves.
func TestComposeAllocatesNothing(t *testing.T) {
	p := newMessages(t)
	ctx := context.Background()
	_, err := p.mem[1].Export(p.conn[1], "out", edge.RemoteWrite, 0, 256)
	must(t, err)
	remote, err := p.conn[0].Import(ctx, "out")
	must(t, err)
	write := edge.Work{Kind: edge.Write, Local: p.mem[0], Len: 256, Remote: remote}
	composed := func() {
		m, err := compose.Begin(p.conn[0], &write)
		must(t, err)
		must(t, m.Wrote(0, 128))
		op, err := m.Commit(256, 0, 0)
		must(t, err)
		must(t, op.Wait(ctx))
	}
	compared := func() {
		for range 3 { // frames as many as composing may take
			op, err := p.conn[0].Post(ctx, &write)
			must(t, err)
			must(t, op.Wait(ctx))
		}
	}
	for range 100 {
		composed()
		compared()
	}
	// The least of several tries: what else runs allocates now and then.
	n, least := math.Inf(1), math.Inf(1)
	for try := 0; try < 10 && (try == 0 || n > least); try++ {
		n, least = min(n, testing.AllocsPerRun(100, composed)), min(least, testing.AllocsPerRun(100, compared))
	}
	if n > least {
		t.Errorf("%v allocations, writes %v", n, least)
	}
}
