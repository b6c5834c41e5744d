package ondemand

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"multiedge/bench/kit"
	"multiedge/bench/xlate"
	"multiedge/edge"
	"multiedge/edge/node"
	"multiedge/internal/config"
	"multiedge/internal/inspect"
)

// Pings is what a ping-pong came to of which so many per cent of the pings miss at the far host (DHL figure 4).
type Pings struct {
	Variant string    `json:"variant"`
	Bytes   int       `json:"bytes"`
	Percent int       `json:"percent"`
	Mean    []float64 `json:"half_round_trip_ns"` // by round
	Missed  float64   `json:"missed"`             // share of pings
}

// MissTimes is how long misses took at the far daemon (DHL §V.C): until its pinner began, and by the pinner.
type MissTimes struct {
	Program string           `json:"program"` // what it uses: memEvicted or memUntouched
	Budget  int              `json:"budget"`
	Delay   []inspect.Bucket `json:"delay"`
	Pin     []inspect.Bucket `json:"processing"`
}

// What a program uses that misses.
const (
	memEvicted   = "pages there"
	memUntouched = "no pages"
)

// Pings are of these sizes, and miss so often.
var (
	pingSizes    = []int{64, 1 << 10, 8 << 10, chunk}
	pingPercents = []int{0, 10, 25, 50, 75, 100}
)

const (
	fewPings = 40 // are enough where a miss takes milliseconds
	pingMost = 2 * time.Second
)

// misses measures a ping-pong whose pings miss at the far host, as often as asked, and how long those misses take.
func (r *run) misses(ctx context.Context) {
	variant := cmp.Or(r.Variant, config.MissesPark)
	var all []Pings
	for _, n := range pingSizes {
		for _, p := range pingPercents {
			all = append(all, Pings{Variant: variant, Bytes: n, Percent: p})
		}
	}
	hot, cold := r.Budget/chunk/4, 2*r.Budget/chunk
	t := r.space((hot + cold) * chunk)
	t.Hold, t.Pong = hot*chunk, chunk
	f := r.open(ctx, r.d, t)
	defer f.c.Close()
	warm := load{far: f, kind: edge.Write, near: r.near, bytes: chunk, flying: deep, span: time.Minute,
		most: hot + cold}
	next := pattern(xlate.Cyclic, hot+cold, 1)
	warm.at = next
	warm.run(ctx, nil) // from here on what misses was there before
	next = pattern(xlate.Permuted, cold, 1)
	r.turns(len(all), func(i int) string {
		return fmt.Sprintf("%s: pings of %d bytes, %d %% miss", variant, all[i].Bytes, all[i].Percent)
	}, func(i, _ int) {
		p := &all[i]
		before := f.order(ctx, tellUsage)
		mean, n := r.pings(ctx, f, p.Bytes, turnsOf(p.Percent, hot, next))
		after := f.order(ctx, tellUsage)
		p.Mean = append(p.Mean, mean)
		p.Missed += fetched(before, after) / float64(n) / float64(r.Rounds)
	})
	r.res.Pings = append(r.res.Pings, all...)
	if variant == config.MissesDrop {
		r.missTimes(ctx)
	}
}

// turnsOf returns the block of each ping, so many in a hundred of which miss, evenly: the held ones hit.
func turnsOf(percent, hot int, next func() int) func() int {
	sum, hits := 0, 0
	return func() int {
		if sum += percent; sum >= 100 {
			sum -= 100
			return hot + next()
		}
		hits++
		return hits % hot
	}
}

// pings sends messages of n bytes to the blocks that at says, one after the other, each answered by one of the same
// length, and returns half of the mean round trip in nanoseconds and how many there were.
func (r *run) pings(ctx context.Context, f *far, n int, at func() int) (mean float64, count int) {
	start := time.Now()
	var took time.Duration
	for ; took < r.span() || count < fewPings && took < pingMost; took = time.Since(start) {
		r.ping(ctx, f, n, at())
		count++
	}
	return float64(took) / float64(count) / 2, count
}

// ping is there and back.
func (r *run) ping(ctx context.Context, f *far, n, block int) {
	kit.Get(f.c.Post(ctx, &edge.Work{Kind: edge.Write, Flags: edge.Notify, Local: r.near, Len: n, Remote: f.mem,
		RemoteOff: block * chunk, Imm: pong | uint32(n)<<pongShift}))
	kit.Get(f.c.WaitNotify(ctx))
}

// missTimes asks the far daemon how long misses took, of two programs and with two budgets.
func (r *run) missTimes(ctx context.Context) {
	for _, budget := range []int{r.Budget, r.Budget / 2} {
		for _, program := range []string{memEvicted, memUntouched} {
			r.show(fmt.Sprintf("times of misses: %s, %d MiB", program, budget>>20), 1)
			m := MissTimes{Program: program, Budget: budget}
			kit.Doing(func() { r.timed(ctx, &m) }, "times of misses, %s", program)
			r.res.Times = append(r.res.Times, m)
		}
	}
}

func (r *run) timed(ctx context.Context, m *MissTimes) {
	const most = 512 // of untouched chunks: each misses once
	blocks := 2 * m.Budget / chunk
	t := Target{Size: blocks * chunk, Pin: m.Budget, Fill: true, Pong: chunk}
	if m.Program == memUntouched {
		blocks = most
		t.Size, t.Fill = blocks*chunk, false
	}
	f := r.open(ctx, r.d, t)
	defer f.c.Close()
	before := f.times(ctx)
	at := pattern(xlate.Cyclic, blocks, 1)
	if m.Program == memEvicted {
		for range blocks { // the first use of each is of memory that nobody has pinned
			r.ping(ctx, f, 64, at())
		}
		before = f.times(ctx)
	}
	for range min(blocks, most) {
		r.ping(ctx, f, 64, at())
	}
	after := f.times(ctx)
	m.Delay, m.Pin = grown(before.Delay, after.Delay), grown(before.Pin, after.Pin)
}

// grown is what a histogram counted between two looks.
func grown(before, after []inspect.Bucket) (list []inspect.Bucket) {
	had := map[float64]uint64{}
	for _, b := range before {
		had[b.Seconds] = b.Count
	}
	for _, b := range after {
		if n := b.Count - had[b.Seconds]; n > 0 {
			list = append(list, inspect.Bucket{Seconds: b.Seconds, Count: n})
		}
	}
	return list
}

// daemonTimes is what a server's daemon says of misses, of all its clients.
type daemonTimes struct {
	Delay []inspect.Bucket `json:"delay"`
	Pin   []inspect.Bucket `json:"pin"`
}

func timesOf(ctx context.Context, d *edge.Device) daemonTimes {
	var st inspect.Status
	kit.Checkf(json.Unmarshal(kit.Get(node.Status(ctx, d, "status")), &st), "ondemand: the daemon's status")
	return daemonTimes{st.Spaces.PinDelay, st.Spaces.PinTime}
}

// times asks the far daemon how long misses took so far.
func (f *far) times(ctx context.Context) (t daemonTimes) {
	f.ask(ctx, tellTimes, &t)
	return t
}
