package fabric

import (
	"context"
	"math"
	"slices"
	"time"

	"multiedge/bench/kit"
	"multiedge/internal/mono"
	"multiedge/internal/sim/fabric"
)

// Result is one transport under the traffic of a Spec.
type Result struct {
	Name      string        `json:"name"`
	Flows     []Flow        `json:"flows"`
	Goodput   float64       `json:"goodput"` // bits of payload per second that arrived during Spec.Time, of all hosts
	Used      float64       `json:"used"`    // the same as a share of the links of those hosts that anybody sends to
	Fairness  float64       `json:"fairness"`
	Packets   fabric.Tally  `json:"packets"`
	LateDrops uint64        `json:"late_drops"` // from lateAt on
	Simulated time.Duration `json:"simulated_ns"`
	Wall      time.Duration `json:"wall_ns"`
}

// Flow is a flow and how long it took. Ended is false if it did not arrive until the end of the run, after Took.
type Flow struct {
	Size  int           `json:"size"`
	Took  time.Duration `json:"took_ns"`
	Ideal time.Duration `json:"ideal_ns"`
	Ended bool          `json:"ended"`
}

// Slowdown is how many times as long it took as in an empty network over TCP.
func (f *Flow) Slowdown() float64 { return float64(f.Took) / float64(f.Ideal) }

// lateAt is from when on drops are told apart: what precedes it is how windows begin.
const lateAt = 20 * time.Millisecond

// drainTime is how long flows that have started may take after Spec.Time.
const drainTime = time.Second

// transport is what hosts run.
type transport struct {
	name  string
	model bool
	lanes int
}

// run simulates one transport.
func (s *Spec) run(ctx context.Context, t *traffic, of transport, show func(share float64)) *Result {
	began := mono.Now()
	o := s.options(t.channels)
	o.Model, o.Lanes = of.model, of.lanes
	var n *fabric.Net
	var d driver
	o.Done = func(f *fabric.Flow) { d.done(f) }
	n = kit.Get(fabric.New(o))
	defer n.Close()
	const setUp = 0.1 // of what show is told
	kit.Check(n.Open(func(share float64) { kit.Check(ctx.Err()); show(setUp * share) }))
	d = driver{n: n, t: t, from: n.Now, until: n.Now.Add(s.Time), was: n.Tally()}
	d.begin()
	steps, latest := 0, 0.0
	pause := func() {
		if steps++; steps%(1<<14) == 0 {
			kit.Check(ctx.Err())
			if share := d.share(); share > latest+0.005 {
				latest = share
				show(setUp + (1-setUp)*share)
			}
		}
	}
	var late uint64
	until := func(at mono.Time) {
		kit.Get(n.Run(at, func() bool { pause(); return false }))
	}
	if d.from.Add(lateAt) < d.until {
		until(d.from.Add(lateAt))
		late = n.Tally().Dropped
	}
	until(d.until)
	now := n.Tally()
	r := &Result{Name: of.name, Goodput: float64(now.Payload-d.was.Payload) * 8 / s.Time.Seconds()}
	r.Used = r.Goodput / (s.Rate * float64(receivers(t.channels)))
	if late > 0 {
		r.LateDrops = now.Dropped - late
	}
	kit.Get(n.Run(d.until.Add(drainTime), func() bool { pause(); return d.left == 0 && len(n.Flows) >= d.total }))
	now = n.Tally()
	r.Packets, r.Simulated = now.Since(&d.was), n.Now.Sub(d.from)
	for _, f := range n.Flows {
		c := t.channels[f.Channel]
		g := Flow{Size: f.Size, Ideal: o.Ideal(c, f.Size, fabric.TCPPackets(o.MTU)), Ended: f.End != 0}
		if g.Took = f.Took(); !g.Ended {
			g.Took = n.Now.Sub(f.Start)
		}
		r.Flows = append(r.Flows, g)
	}
	r.Fairness = r.fairness()
	show(1)
	r.Wall = mono.Now().Sub(began)
	return r
}

func receivers(channels []fabric.Channel) int {
	seen := map[int]bool{}
	for _, c := range channels {
		seen[c.To] = true
	}
	return len(seen)
}

// driver starts flows.
type driver struct {
	n           *fabric.Net
	t           *traffic
	from, until mono.Time
	was         fabric.Tally
	total       int // flows of mixed traffic
	bytes       int // of them
	left        int // flows that have started and not arrived
}

// start starts a flow.
func (d *driver) start(channel, size int) {
	d.left++
	d.n.Start(channel, size)
}

func (d *driver) begin() {
	if d.t.message == 0 {
		d.total = len(d.t.arrivals)
		for i, a := range d.t.arrivals {
			d.bytes += a.size
			d.n.After(a.at, func() { d.start(i, a.size) })
		}
		return
	}
	d.round()
}

// round starts a message on each channel.
func (d *driver) round() {
	for i := range d.t.channels {
		d.start(i, d.t.message)
	}
}

// done is told of a flow that has arrived.
func (d *driver) done(f *fabric.Flow) {
	d.left--
	switch {
	case d.t.message == 0 || d.n.Now >= d.until:
	case !d.t.together:
		d.start(f.Channel, d.t.message)
	case d.left == 0:
		d.round()
	}
}

// share is how far the run is.
func (d *driver) share() float64 {
	if d.bytes == 0 {
		return min(1, float64(d.n.Now-d.from)/float64(d.until-d.from))
	}
	now := d.n.Tally()
	return min(1, float64(now.Payload-d.was.Payload)/float64(d.bytes))
}

// fairness is Jain's index of the share of its ideal rate that each flow had which is long enough to share its links
// with others for a while: 1 if all had the same.
func (r *Result) fairness() float64 {
	least := 0
	for i := range r.Flows {
		least = max(least, r.Flows[i].Size)
	}
	least = min(least, longFlow)
	var n, sum, squares float64
	for i := range r.Flows {
		if f := &r.Flows[i]; f.Size >= least {
			x := 1 / f.Slowdown()
			n, sum, squares = n+1, sum+x, squares+x*x
		}
	}
	return sum * sum / (n * squares)
}

// slowdowns are those of flows from least to below most bytes, in order.
func (r *Result) slowdowns(least, most int) (list []float64) {
	for i := range r.Flows {
		if f := &r.Flows[i]; f.Size >= least && f.Size < most {
			list = append(list, f.Slowdown())
		}
	}
	slices.Sort(list)
	return list
}

// unfinished counts flows that did not arrive.
func (r *Result) unfinished() (n int) {
	for i := range r.Flows {
		if !r.Flows[i].Ended {
			n++
		}
	}
	return n
}

// percentile is the least value that so many percent of a sorted list do not exceed.
func percentile(list []float64, p float64) float64 {
	return list[max(0, int(math.Ceil(p/100*float64(len(list))))-1)]
}

// dropped is the share of packets that switches dropped.
func (r *Result) dropped() float64 {
	return float64(r.Packets.Dropped) / float64(max(1, r.Packets.Sent))
}
