package sim

import (
	"math/rand/v2"
	"time"

	"multiedge/flowctl"
	"multiedge/internal/wire"
	"multiedge/sched"
)

// mix is which faults a seed has and how many.
type mix struct {
	duration    time.Duration // of the faults
	crashes     int
	flaps       int
	partitions  int
	revocations int
	endings     int // connections closed or aborted
	resizes     int // changes of a link's MTU
	narrowings  int // devices that drop long frames from some time on
	recablings  int // cables moved to other segments
	strangers   int // times that somebody says Hello in others' names for a while
	walls       int // devices that drop datagrams from some time on, and links that take them no more, or begin to
	channels    int
	tries       int // more connections per channel, when one is over
	composes    bool
	impatient   bool // some sends do not wait for a buffer, or not for long
	pools       poolMix
	ip          ipMix
	early       bool // some connections are given buffers before they are accepted
}

// drawMix draws a seed's world and faults.
func drawMix(seed uint64) (Options, mix) {
	rng := stream(seed, mixStream)
	pick := func(p, most float64) float64 {
		if rng.Float64() < p {
			return rng.Float64() * most
		}
		return 0
	}
	count := func(p float64, most int) int {
		if rng.Float64() < p {
			return 1 + rng.IntN(most)
		}
		return 0
	}
	o := Options{
		Seed: seed, Secure: seed%2 == 0, Nodes: []int{2, 2, 2, 2, 2, 2, 3, 3, 4}[rng.IntN(9)], Links: 1 + rng.IntN(4),
		MTU:   []int{640, 1500, 4000, 9000}[rng.IntN(4)],
		Slots: []int{16, 64, 256}[rng.IntN(3)], Scheduler: sched.Names()[rng.IntN(len(sched.Names()))],
		Profile:  flowctl.Profiles[rng.IntN(len(flowctl.Profiles))],
		OpWindow: []int{4, 32, 1024}[rng.IntN(3)],
		Faults: Faults{
			Loss: pick(0.6, 0.3), Dup: pick(0.4, 0.3), Corrupt: pick(0.4, 0.1),
			Delay: time.Duration(1 + rng.IntN(200_000)), Jitter: time.Duration(pick(0.5, 2e6)),
			Queue: 2 * time.Millisecond, Hold: pick(0.25, 0.02), HoldFor: time.Duration(1e8 + pick(1, 6e9)),
			HoldSetup: rng.IntN(2) == 0,
		},
	}
	if o.Faults.Rate = pick(0.3, 1e9) + pick(0.3, 5e7); o.Faults.Rate > 0 {
		o.Faults.Rate += 2e6
	}
	if rng.IntN(4) == 0 {
		o.Shuffle = 64 + 14
	}
	if rng.IntN(4) == 0 {
		o.Rekey = 700 + rng.Uint64N(1500)
	}
	if steps := stream(seed, stepStream); o.Secure {
		o.Deferred = steps.IntN(2) == 0
		if o.Rekey == 0 && steps.IntN(3) == 0 {
			o.Rekey = 700 + steps.Uint64N(1500)
		}
	}
	o.CopiedMost = []int{-1, 1000, 0}[stream(seed, localStream).IntN(3)]
	duration := 25 + rng.IntN(200)
	rng.IntN(4) // drawn and unused: without it every seed would make another world
	m := mix{
		duration: time.Duration(duration) * time.Millisecond,
		crashes:  count(0.25, 3), flaps: count(0.5, 4), partitions: count(0.2, 3), revocations: count(0.3, 6),
		endings: count(0.4, 6), resizes: count(0.1, 3),
		channels: 1 + rng.IntN(3), tries: rng.IntN(4),
	}
	if rng.IntN(4) == 0 {
		m.duration = time.Duration(1e9 + rng.Int64N(12e9))
	}
	if rng.IntN(4) == 0 { // little memory behind fences: writes find no room and come again
		o.HeldBytes, m.revocations = 20_000+rng.IntN(100_000), 0
	}
	o.DeadTime, o.KeepAlive = 15*time.Second, time.Second
	if rng.IntN(6) == 0 {
		o.DeadTime, o.KeepAlive = time.Second, 100*time.Millisecond
	}
	m.narrowings = count(0.2, 3)
	if forms := stream(seed, formStream); forms.IntN(2) == 0 {
		o.Joins = forms.Uint64() | forms.Uint64()
		m.walls = forms.IntN(4)
	}
	if cables := stream(seed, cableStream); cables.IntN(2) == 0 {
		m.recablings, m.strangers = cables.IntN(6), cables.IntN(4)
	}
	if some := stream(seed, togetherStream); some.IntN(2) == 0 {
		o.Together = time.Duration(1 + some.IntN(100_000))
	}
	o.drawMisses()
	m.composes = o.Misses.Delay == 0 // messages are composed in memory that is registered whole
	// These have random numbers of their own: worlds that draw none replay as before. In worlds that do, sends end
	// otherwise and frames differ; TestSwarmBefore replays the old ones.
	m.impatient, m.pools = stream(seed, patienceStream).IntN(2) == 0, drawPools(o)
	m.early, m.ip = stream(seed, earlyStream).IntN(2) == 0, drawIP(&o)
	return o, m
}

// drawMisses has memory come and go in a third of the worlds.
func (o *Options) drawMisses() {
	pages := stream(o.Seed, memoryStream)
	if pages.IntN(3) != 0 {
		return
	}
	o.Misses = Misses{Delay: time.Duration(1 + pages.IntN(5_000_000)),
		Life:  time.Duration(1e6 + pages.IntN(50_000_000)),
		Stuck: []int{0, 20, 200}[pages.IntN(3)], Drop: pages.IntN(5) == 0}
	o.Misses.Life += 4 * o.Misses.Delay // the pages of one part must be there at the same time
	if o.Misses.Drop || o.HeldBytes > 0 {
		o.Misses.Life = time.Hour // what is left unreceived is sent again much later
	}
}

// spread makes links differ: delays up to 50:1, rates, and sometimes devices that drop long frames.
func (w *World) spread(rng *rand.Rand) {
	for l := range w.Net {
		slow, most := 1, 0
		if rng.IntN(4) == 0 {
			slow = 50
		}
		if rng.IntN(10) == 0 {
			most = []int{640, 1280, 1500, 4096}[rng.IntN(4)]
		}
		if most > 0 && l >= w.opt.Links { // no network carries less than the least frame (clause 21.6)
			most = max(most, wire.MinFrame+ipHeaders-ethLen)
		}
		for i := range w.Net[l] {
			w.Net[l][i].Delay *= time.Duration(slow)
			w.Net[l][i].Longest = most
			if rng.IntN(8) == 0 {
				w.Net[l][i].Delay *= time.Duration(1 + rng.IntN(10)) // one direction alone
			}
		}
	}
}
