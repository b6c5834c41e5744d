package ondemand

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"multiedge/edge"
)

// shares measures writes of 64 KiB, many at once, of which a part misses memory whose pages are there, in turns with
// memory that is registered whole. What hits is held, what misses is a cycle of twice the budget in no order.
func (r *run) shares(ctx context.Context) error {
	variant := cmp.Or(r.Variant, "park")
	percents := []int{-1, 0, 10, 50, 100}
	all := make([]Share, len(percents))
	for round := range r.Rounds {
		for i, percent := range percents {
			r.show(fmt.Sprintf("%s: %d %% of writes miss", variant, max(percent, 0)),
				(float64(round)+float64(i)/float64(len(percents)))/float64(r.Rounds))
			s := &all[i]
			s.Variant, s.Percent = variant, percent
			if err := r.share(ctx, s, uint64(round+1)); err != nil {
				return fmt.Errorf("%d %%: %w", percent, err)
			}
		}
	}
	r.res.Shares = append(r.res.Shares, all...)
	return nil
}

// share measures one for a round.
func (r *run) share(ctx context.Context, s *Share, seed uint64) error {
	hot, cold := r.Budget/chunk/4, 2*r.Budget/chunk
	t := r.space((hot + cold) * chunk)
	t.Hold, t.Whole = hot*chunk, s.Percent < 0
	if t.Whole {
		t.Hold = 0
	}
	f, err := r.open(ctx, r.d, t)
	if err != nil {
		return err
	}
	defer f.c.Close()
	next, err := pattern(Permuted, cold, seed)
	if err != nil {
		return err
	}
	random := rand.New(rand.NewPCG(seed, 1))
	l := load{far: f, kind: edge.Write, near: r.near, bytes: chunk, flying: deep, span: time.Minute, most: hot + cold,
		at: func() int { return hot + next() }}
	if _, err := l.run(ctx, nil); err != nil { // from here on what misses was there before
		return err
	}
	l.span, l.most = r.span(), 0
	l.at = func() int {
		if random.IntN(100) >= s.Percent {
			return random.IntN(hot)
		}
		return hot + next()
	}
	before, err := f.order(ctx, tellUsage)
	if err != nil {
		return err
	}
	o, err := l.run(ctx, nil)
	if err != nil {
		return err
	}
	after, err := f.order(ctx, tellUsage)
	s.Rates, s.P99 = append(s.Rates, o.rate(chunk)), append(s.P99, o.latency.P99)
	s.Missed += fetched(before, after) / float64(o.ops) / float64(r.Rounds)
	return err
}

// Loads that a bystander feels.
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
func (r *run) bystander(ctx context.Context) error {
	d, err := edge.Open(ctx, edge.Config{Socket: r.Sockets[0]})
	if err != nil {
		return err
	}
	defer d.Close()
	near, err := d.RegisterContext(ctx, 1<<20)
	if err != nil {
		return err
	}
	all := []Beside{{Load: loadNone}, {Load: loadHits}, {Load: loadResident}, {Load: loadUntouched}}
	for round := range r.Rounds {
		for i := range all {
			b := &all[i]
			r.show("bystander beside "+b.Load, (float64(round)+float64(i)/float64(len(all)))/float64(r.Rounds))
			if err := r.beside(ctx, d, near, b, uint64(round+1)); err != nil {
				return fmt.Errorf("beside %s: %w", b.Load, err)
			}
		}
	}
	for i := range all {
		all[i].Variant = cmp.Or(r.Variant, "park")
	}
	r.res.Besides = all
	return nil
}

// beside measures one round of one load.
func (r *run) beside(ctx context.Context, d *edge.Device, near *edge.Region, b *Beside, seed uint64) error {
	mine, err := r.open(ctx, d, Target{Size: 1 << 20, Whole: true, Fill: true})
	if err != nil {
		return err
	}
	defer mine.c.Close()
	quiet := load{far: mine, kind: edge.Write, near: near, bytes: 4096, flying: 1, span: r.span()}
	if quiet.at, err = pattern(Uniform, 256, seed); err != nil {
		return err
	}
	stop, ended := make(chan struct{}), make(chan error, 1)
	done := outcome{seconds: 1}
	if b.Load == loadNone {
		ended <- nil
	} else {
		l, err := r.other(ctx, b.Load, seed)
		if err != nil {
			return err
		}
		defer l.far.c.Close()
		go func() {
			var err error
			done, err = l.run(ctx, stop)
			ended <- err
		}()
	}
	o, err := quiet.run(ctx, nil)
	close(stop)
	if e := <-ended; e != nil {
		return e
	}
	if err != nil {
		return err
	}
	b.P50, b.P99 = append(b.P50, o.latency.P50), append(b.P99, o.latency.P99)
	b.Done = append(b.Done, float64(done.ops)/done.seconds)
	return nil
}

// other is a load that a bystander feels, ready to run.
func (r *run) other(ctx context.Context, name string, seed uint64) (l load, err error) {
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
	if l.far, err = r.open(ctx, r.d, t); err != nil {
		return l, err
	}
	if l.at, err = pattern(Permuted, blocks, seed); err != nil || name == loadUntouched {
		return l, err
	}
	warm := l
	warm.every, warm.most = 0, blocks
	_, err = warm.run(ctx, nil)
	return l, err
}
