package eager

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"multiedge/bench/kit"
	"multiedge/bench/report"
	"multiedge/edge"
	"multiedge/edge/compose"
	"multiedge/internal/mono"
)

// parts is how often each way has its turn: what else runs on the host disturbs all of them alike.
const parts = 8

// hello is what the client tells the server: the games of a connection, in their order, and how many rounds each has.
type hello struct {
	Size, Compose, Marks, Rounds int
}

// Run measures. show is called now and then with what is being done and how far that is.
func Run(ctx context.Context, d *edge.Device, s Spec, show func(string, float64)) *Result {
	switch {
	case s.Rounds < parts || s.Rounds > 1e6 || s.Marks < 1 || len(s.Sizes) == 0 || len(s.Compose) == 0:
		kit.Fail("%d rounds with %d marks; choose %d to 1000000 and 1 at least", s.Rounds, s.Marks, parts)
	case slices.Min(s.Sizes) < line || slices.Max(s.Sizes) > compose.MaxSize || slices.Min(s.Compose) < 0:
		kit.Fail("messages of %v bytes; choose %d to %d", s.Sizes, line, compose.MaxSize)
	}
	res := &Result{Spec: s}
	for i, compose := range s.Compose {
		for k, size := range s.Sizes {
			share := float64(i*len(s.Sizes)+k) / float64(len(s.Sizes)*len(s.Compose))
			show(fmt.Sprintf("MTU %d, %d bytes, %d ns for each KiB", s.MTU, size, compose), share)
			kit.Doing(func() { res.Rows = append(res.Rows, s.play(ctx, d, size, compose)...) }, "%d bytes", size)
		}
	}
	return res
}

// play measures all ways of one size, by turns.
func (s *Spec) play(ctx context.Context, d *edge.Device, size, compose int) []Row {
	h := hello{size, compose, s.Marks, s.Rounds / parts}
	data := kit.Get(json.Marshal(h))
	c := kit.Get(d.Dial(ctx, s.Peer, service, edge.Data(data)))
	defer c.Abort() // unless it ended well
	p := newPlayer(ctx, d, c, size)
	rows := make([]Row, len(Ways))
	var rec [len(Ways)][]*report.Recorder
	for way := range rec {
		rec[way] = report.Recorders(4)
	}
	n := uint32(0)
	h.games(func(g *game) {
		n++
		start := mono.Now()
		t := p.send(ctx, g, n)
		p.receive(ctx, n, size)
		if n > uint32(h.Rounds) { // the first game warms up
			for i, took := range []time.Duration{t.user, t.copied, t.post, mono.Now().Sub(start) / 2} {
				rec[g.Way][i].Record(took)
			}
		}
	})
	for i, way := range Ways {
		r := &rows[i]
		r.Bytes, r.Way, r.Compose = size, way, compose
		report.Summaries(rec[i], &r.UserData, &r.Copy, &r.Post, &r.Turn)
	}
	p.close()
	return rows
}

// games calls turn for every message of one end.
func (h *hello) games(turn func(*game)) {
	for part := range parts + 1 {
		for way := range Ways {
			if part == 0 && way > 0 {
				break
			}
			g := game{h.Size, h.Compose, h.Marks, way}
			for range h.Rounds {
				turn(&g)
			}
		}
	}
}

// Serve plays with whoever comes, until ctx ends. started is called when clients may come.
func Serve(ctx context.Context, d *edge.Device, started func()) {
	l := kit.Get(d.Listen(ctx, service))
	started()
	for {
		answer(ctx, d, kit.Get(l.Accept(ctx)))
	}
}

func answer(ctx context.Context, d *edge.Device, c *edge.Conn) {
	defer c.Abort() // unless it ended well
	var h hello
	if err := json.Unmarshal(c.Data(), &h); err != nil || h.Size < line || h.Size > compose.MaxSize || h.Marks < 1 {
		kit.Fail("a client asks for %q", c.Data())
	}
	p := newPlayer(ctx, d, c, h.Size)
	n := uint32(0)
	h.games(func(g *game) {
		n++
		p.receive(ctx, n, h.Size)
		p.send(ctx, g, n)
	})
	p.close()
}
