package ondemand

import (
	"container/list"
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"multiedge/bench/kit"
	"multiedge/bench/report"
	"multiedge/bench/xlate"
	"multiedge/edge"
	"multiedge/edge/space"
)

// workers are how many transfers of the other ways go on at once: each does one after the other.
const workers = 8

// ways measures writes of 64 KiB from a working set in memory of this program, made ready for transfers in several
// ways.
func (r *run) ways(ctx context.Context) {
	f := r.open(ctx, r.d, Target{Size: 1 << 20, Whole: true, Fill: true})
	defer f.c.Close()
	all := []struct {
		name string
		make func(ctx context.Context, blocks int) source
	}{{"registered whole", r.wholly}, {"space", r.spaced}, {"registered for each transfer", r.eachTime},
		{"cache of registrations", r.cached}, {"copied", r.copied}}
	sets, patterns := []int{50, 200}, []string{xlate.Permuted, xlate.Zipf}
	for i, set := range sets {
		for j, name := range patterns {
			for k, way := range all {
				r.show(fmt.Sprintf("ways: %s, %d %%, %s", way.name, set, name),
					float64((i*len(patterns)+j)*len(all)+k)/float64(len(sets)*len(patterns)*len(all)))
				w := Way{Name: way.name, Set: set, Pattern: name}
				blocks := r.Budget / 100 * set / chunk
				kit.Doing(func() {
					src := way.make(ctx, blocks)
					defer src.close()
					r.way(ctx, &w, f, src, blocks)
				}, "%s, %d %%", way.name, set)
				r.res.Ways = append(r.res.Ways, w)
			}
		}
	}
}

// source is memory of this program that writes take their bytes from, by block. It is used by several goroutines.
type source interface {
	send(ctx context.Context, to *edge.RemoteRegion, block int) // it may end itself (kit.Check)
	pinned() int                                                // bytes, at most so far
	close()
}

// way measures one.
func (r *run) way(ctx context.Context, w *Way, f *far, src source, blocks int) {
	next := pattern(w.Pattern, blocks, 1)
	var mu sync.Mutex
	for _, span := range []time.Duration{r.span() / 2, r.span()} { // the first warms up
		times, start := report.NewRecorder(), time.Now()
		var done atomic.Int64
		kit.Each(ctx, workers, workers, func(ctx context.Context, _ int) {
			for time.Since(start) < span && ctx.Err() == nil {
				mu.Lock()
				block := next()
				mu.Unlock()
				from := time.Now()
				src.send(ctx, f.mem, block)
				took := time.Since(from)
				done.Add(1)
				mu.Lock()
				times.Record(took)
				mu.Unlock()
			}
		})
		w.Rate = float64(done.Load()) * chunk / time.Since(start).Seconds()
		w.Latency = times.Summary(1)
	}
	w.Pinned = src.pinned()
}

// one is a region with all blocks: registered whole, or a space.
type one struct{ mem *edge.Region }

func (r *run) wholly(ctx context.Context, blocks int) source {
	mem := kit.Get(r.d.RegisterContext(ctx, blocks*chunk))
	fill(mem.Bytes())
	return one{mem}
}

func (r *run) spaced(ctx context.Context, blocks int) source {
	mem := kit.Get(space.Map(ctx, r.d, blocks*chunk, space.Options{Pin: r.Budget}))
	fill(mem.Bytes())
	return one{mem}
}

func (s one) send(ctx context.Context, to *edge.RemoteRegion, block int) {
	write(ctx, s.mem, block*chunk, to)
}

func write(ctx context.Context, mem *edge.Region, off int, to *edge.RemoteRegion) {
	kit.Do(ctx, to.Conn(), &edge.Work{Kind: edge.Write, Local: mem, LocalOff: off, Len: chunk, Remote: to})
}

func (s one) pinned() int {
	u, err := space.UsageOf(context.Background(), s.mem)
	if err != nil {
		return 0
	}
	return u.Pinned
}

func (s one) close() { s.mem.Close() }

// fresh registers a region for each transfer. A program's own memory would have to be pinned as well; here it is also
// made anew.
type fresh struct{ r *run }

func (r *run) eachTime(context.Context, int) source { return fresh{r} }

func (s fresh) send(ctx context.Context, to *edge.RemoteRegion, _ int) {
	mem := kit.Get(s.r.d.RegisterContext(ctx, chunk))
	write(ctx, mem, 0, to)
	kit.Check(mem.Close())
}

func (s fresh) pinned() int { return workers * chunk }

func (s fresh) close() {}

// cache keeps regions by block, up to the budget, and gives up the one that was used least recently: a cache of
// registrations as communication libraries have. They register memory that the program has; here a region is new each
// time, and its bytes are not copied.
type cache struct {
	r    *run
	most int

	mu   sync.Mutex
	of   map[int]*entry
	used *list.List // of *entry, the latest first
	peak int
}

type entry struct {
	block int
	mem   *edge.Region
	users int
	ready chan struct{} // closed when mem or err is there
	err   error
	place *list.Element
}

func (r *run) cached(context.Context, int) source {
	return &cache{r: r, most: r.Budget / chunk, of: map[int]*entry{}, used: list.New()}
}

func (c *cache) send(ctx context.Context, to *edge.RemoteRegion, block int) {
	e, old := c.take(block)
	for _, o := range old {
		kit.Check(o.mem.Close())
	}
	<-e.ready
	err := e.err
	if err == nil {
		err = kit.Try(func() { write(ctx, e.mem, 0, to) })
	}
	c.mu.Lock()
	e.users--
	c.mu.Unlock()
	kit.Check(err)
}

// take returns the entry of a block, which is being registered if it is new, and those that have to go for it.
func (c *cache) take(block int) (e *entry, old []*entry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e = c.of[block]; e != nil {
		e.users++
		c.used.MoveToFront(e.place)
		return e, nil
	}
	for p := c.used.Back(); p != nil && len(c.of) >= c.most; {
		o := p.Value.(*entry)
		if p = p.Prev(); o.users == 0 {
			c.used.Remove(o.place)
			delete(c.of, o.block)
			old = append(old, o)
		}
	}
	e = &entry{block: block, users: 1, ready: make(chan struct{})}
	e.place = c.used.PushFront(e)
	c.of[block] = e
	c.peak = max(c.peak, len(c.of))
	go func() {
		e.mem, e.err = c.r.d.Register(chunk)
		close(e.ready)
	}()
	return e, old
}

func (c *cache) pinned() int { return c.peak * chunk }

func (c *cache) close() {
	for _, e := range c.of {
		if e.err == nil {
			e.mem.Close()
		}
	}
}

// bounce copies each block into memory that is registered already, by the library's own pool.
type bounce struct{ memory []byte }

func (r *run) copied(_ context.Context, blocks int) source {
	b := bounce{make([]byte, blocks*chunk)}
	fill(b.memory)
	return b
}

func (b bounce) send(ctx context.Context, to *edge.RemoteRegion, block int) {
	kit.Get(to.WriteAtContext(ctx, b.memory[block*chunk:(block+1)*chunk], 0))
}

func (bounce) pinned() int { return 0 }

func (bounce) close() {}
