package ondemand

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"multiedge/bench/kit"
	"multiedge/bench/xlate"
	"multiedge/edge"
)

// shares measures writes of 64 KiB, many at once, of which a part misses memory whose pages are there, in turns with
// memory that is registered whole. What hits is held, what misses is a cycle of twice the budget in no order.
func (r *run) shares(ctx context.Context) {
	variant := cmp.Or(r.Variant, "park")
	percents := []int{-1, 0, 10, 50, 100}
	all := make([]Share, len(percents))
	r.turns(len(all), func(i int) string {
		return fmt.Sprintf("%s: %d %% of writes miss", variant, max(percents[i], 0))
	}, func(i, round int) {
		all[i].Variant, all[i].Percent = variant, percents[i]
		r.share(ctx, &all[i], uint64(round))
	})
	r.res.Shares = append(r.res.Shares, all...)
}

// share measures one for a round.
func (r *run) share(ctx context.Context, s *Share, seed uint64) {
	hot, cold := r.Budget/chunk/4, 2*r.Budget/chunk
	t := r.space((hot + cold) * chunk)
	t.Hold, t.Whole = hot*chunk, s.Percent < 0
	if t.Whole {
		t.Hold = 0
	}
	f := r.open(ctx, r.d, t)
	defer f.c.Close()
	next := pattern(xlate.Permuted, cold, seed)
	random := rand.New(rand.NewPCG(seed, 1))
	l := load{far: f, kind: edge.Write, near: r.near, bytes: chunk, flying: deep, span: time.Minute, most: hot + cold,
		at: func() int { return hot + next() }}
	l.run(ctx, nil) // from here on what misses was there before
	l.span, l.most = r.span(), 0
	l.at = func() int {
		if random.IntN(100) >= s.Percent {
			return random.IntN(hot)
		}
		return hot + next()
	}
	before := f.order(ctx, tellUsage)
	o := l.run(ctx, nil)
	after := f.order(ctx, tellUsage)
	s.Rates, s.P99 = append(s.Rates, o.rate(chunk)), append(s.P99, o.latency.P99)
	s.Missed += fetched(before, after) / float64(o.ops) / float64(r.Rounds)
}

// Loads beside a bystander.
const (
	loadNone      = "nobody"
	loadHits      = "as many writes that hit"
	loadResident  = "writes that miss, pages there"
	loadUntouched = "writes that miss, no pages"
)

// paced is how many writes of 64 KiB a second the other program makes: fewer than the pinner can serve.
const paced = 2000

// bystander measures writes of 4 KiB, one at a time, to memory that is registered whole, by a client of its own, while
// another client of the same daemons writes at a fixed rate to memory that it hits or misses.
func (r *run) bystander(ctx context.Context) {
	d := kit.Get(edge.Open(ctx, edge.Config{Socket: r.Sockets[0]}))
	defer d.Close()
	near := kit.Get(d.RegisterContext(ctx, 1<<20))
	all := []Beside{{Load: loadNone}, {Load: loadHits}, {Load: loadResident}, {Load: loadUntouched}}
	r.turns(len(all), func(i int) string { return "bystander beside " + all[i].Load }, func(i, round int) {
		all[i].Variant = cmp.Or(r.Variant, "park")
		r.beside(ctx, d, near, &all[i], uint64(round))
	})
	r.res.Besides = all
}

// beside measures one round of one load.
func (r *run) beside(ctx context.Context, d *edge.Device, near *edge.Region, b *Beside, seed uint64) {
	mine := r.open(ctx, d, Target{Size: 1 << 20, Whole: true, Fill: true})
	defer mine.c.Close()
	quiet := load{far: mine, kind: edge.Write, near: near, bytes: 4096, flying: 1, span: r.span()}
	quiet.at = pattern(xlate.Uniform, 256, seed)
	stop := make(chan struct{})
	var o outcome
	done := outcome{seconds: 1}
	work := []func(context.Context){func(ctx context.Context) {
		defer close(stop)
		o = quiet.run(ctx, nil)
	}}
	if b.Load != loadNone {
		l := r.other(ctx, b.Load, seed)
		defer l.far.c.Close()
		work = append(work, func(ctx context.Context) { done = l.run(ctx, stop) })
	}
	kit.Together(ctx, work...)
	b.P50, b.P99 = append(b.P50, o.latency.P50), append(b.P99, o.latency.P99)
	b.Done = append(b.Done, float64(done.ops)/done.seconds)
}

// other is a load beside a bystander, ready to run.
func (r *run) other(ctx context.Context, name string, seed uint64) (l load) {
	l = load{kind: edge.Write, near: r.near, bytes: chunk, flying: 8, span: time.Minute, every: time.Second / paced}
	blocks := 2 * r.Budget / chunk
	t := r.space(blocks * chunk)
	switch name {
	case loadHits:
		blocks = r.Budget / chunk / 2
	case loadUntouched: // as many as there can be in the time, once each
		blocks = max(int(2*r.Cell*paced), 64)
		t.Size, t.Fill = blocks*chunk, false
		l.most = blocks
	}
	l.far = r.open(ctx, r.d, t)
	if l.at = pattern(xlate.Permuted, blocks, seed); name == loadUntouched {
		return l
	}
	warm := l
	warm.every, warm.most = 0, blocks
	warm.run(ctx, nil)
	return l
}
