package bench

import (
	"context"
	"fmt"
	"time"

	"multiedge/bench/contender"
	"multiedge/bench/kit"
	"multiedge/bench/report"
	"multiedge/bench/workload"
	"multiedge/internal/config"
	"multiedge/internal/lab"
	"multiedge/linkdrv"
)

// Demonstration is the paper's three tests over a range of sizes on two links with jumbo frames, and beside edge, in
// turns, what the same hosts do over TCP and over bare packet sockets. Each round begins with another one. It takes
// about a minute, on a slow or busy machine by doing less.
type Demonstration struct {
	Security string // of the edge that checks every byte
	Sizes    []int
	Rounds   int           // at most
	Each     time.Duration // of each size
	Region   int
	// from Run on: no round begins that would end later, and once it has passed nothing begins
	Budget time.Duration
	Row    func(r *report.Row)
	Note   func(text string)
	Show   func(step int, what string) // before each measurement
	Total  func(steps int)             // there will be that many measurements, fewer than Steps said

	began time.Time
	step  int
	fits  map[string]int // by test: the region that the limit on pinned memory leaves edge, and so all others
}

// Variants of edge in a demonstration: one as it is used, with every byte compared where it lands; and one that does no
// more than TCP does on these links, which is neither encrypted nor checked.
const (
	demoChecked = " checked" // after its security
	demoPlain   = "plaintext"
)

var (
	demoSizes = []int{8, 64, 512, 4 << 10, 32 << 10, 256 << 10, 1 << 20}
	fewSizes  = []int{8, 4 << 10, 64 << 10, 1 << 20} // on a busy machine
	demoTests = []string{report.OneWay, report.PingPong, report.TwoWay}
)

const demoParts = 4 // edge twice, TCP, raw

// Demo returns the usual demonstration, or the shorter one for a busy machine; the caller sets what is to be called.
func Demo(security string, busy bool) *Demonstration {
	// The region is larger than caches, yet quickly filled with patterns before each measurement.
	d := &Demonstration{Security: security, Sizes: demoSizes, Rounds: 3, Each: 160 * time.Millisecond, Region: 64 << 20,
		Budget: 70 * time.Second, Total: func(int) {}}
	if busy {
		d.Sizes, d.Each, d.Region, d.Budget = fewSizes, 100*time.Millisecond, 16<<20, 50*time.Second
	}
	return d
}

// Steps returns how many measurements a demonstration takes.
func (d *Demonstration) Steps() int { return d.Rounds * len(demoTests) * demoParts * len(d.Sizes) }

// Spec describes the hosts.
func (d *Demonstration) Spec() ClusterSpec {
	return ClusterSpec{Lab: lab.Spec{Hosts: 2, Links: 2, MTU: 9000}, Pin: true, Security: d.Security}
}

// demoEntrant measures all sizes of a test.
type demoEntrant func(ctx context.Context, test string, round int)

// Run runs the demonstration on hosts that are removed afterwards. It calls begin with the hosts before the first
// measurement.
func (d *Demonstration) Run(ctx context.Context, begin func(*Cluster)) error {
	spec := d.Spec()
	d.began, d.fits = time.Now(), map[string]int{}
	return kit.Try(func() {
		withCluster(ctx, spec, func(checked *Cluster) {
			begin(checked)
			spec.Security, spec.Checksum = config.Plaintext, "header"
			withCluster(ctx, spec, func(plain *Cluster) { d.rounds(ctx, checked, plain) })
		})
	})
}

func (d *Demonstration) rounds(ctx context.Context, checked, plain *Cluster) {
	entrants := []demoEntrant{
		d.edge(checked, d.Security+demoChecked, true), d.edge(plain, demoPlain, false),
		d.other(checked, contender.TCP{}), d.other(checked, contender.Raw{Kind: linkdrv.KindUDP}),
	}
	for round := 1; round <= d.Rounds; round++ {
		start := time.Since(d.began)
		for _, test := range demoTests {
			for i := range entrants {
				if time.Since(d.began) > d.Budget {
					d.Total(d.step)
					d.Note(fmt.Sprintf("round %d ended early, in %s: measuring took %s already", round, test,
						time.Since(d.began).Round(time.Second)))
					return
				}
				entrants[(i+round-1)%len(entrants)](ctx, test, round)
			}
		}
		if now := time.Since(d.began); round < d.Rounds && now+(now-start) > d.Budget {
			d.Total(d.step)
			d.Note(fmt.Sprintf("%d of %d rounds were measured: one more would take %s here", round, d.Rounds,
				(now - start).Round(time.Second)))
			return
		}
	}
}

// region is how much memory every contender has in a test.
func (d *Demonstration) region(test string) int {
	if fits := d.fits[test]; fits > 0 {
		return fits
	}
	return d.Region
}

// show announces a measurement.
func (d *Demonstration) show(test, what string, size int) {
	d.Show(d.step, fmt.Sprintf("%s of %s, %s", test, report.Bytes(size), what))
	d.step++
}

// edge returns the entrant of a variant of edge.
func (d *Demonstration) edge(c *Cluster, variant string, integrity bool) demoEntrant {
	return func(ctx context.Context, test string, round int) {
		specs, region := kit.Get2(Concat(Plan{Sizes: d.Sizes, Spec: workload.Spec{Test: test, Duration: d.Each,
			Integrity: integrity, Seed: uint64(round), Region: d.region(test)}}))
		done := 0
		next := func() {
			if done < len(specs) {
				d.show(test, "edge "+variant, specs[done].Size)
			}
			done++
		}
		next()
		kit.Check(c.Run(ctx, Series{Specs: specs, Region: region, Fit: true, Profile: integrity, Sink: func(e Event) {
			switch {
			case e.Note != "":
				d.Note(e.Note)
			case e.Row != nil:
				e.Row.Round, e.Row.Variant = round, variant
				d.fits[test] = min(d.region(test), e.Row.RegionBytes)
				d.Row(e.Row)
				next()
			}
		}}))
	}
}

// other returns the entrant of another transport between the same hosts.
func (d *Demonstration) other(c *Cluster, o contender.Contender) demoEntrant {
	gone := false
	return func(ctx context.Context, test string, round int) {
		for _, size := range d.Sizes {
			d.show(test, o.Name()+" "+o.Variant(), size)
			if gone {
				continue
			}
			row, err := c.other(ctx, o, Plan{Sizes: []int{size},
				Spec: workload.Spec{Test: test, Duration: d.Each, Region: d.region(test)}})
			kit.Check(ctx.Err())
			if err != nil { // edge is what is demonstrated
				gone = true
				d.Note(fmt.Sprintf("%s is left out: %v", o.Name(), err))
				continue
			}
			row.Round = round
			d.Row(row)
		}
	}
}
