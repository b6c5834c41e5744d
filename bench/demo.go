package bench

import (
	"context"
	"fmt"
	"time"

	"multiedge/bench/contender"
	"multiedge/bench/report"
	"multiedge/internal/config"
	"multiedge/internal/lab"
	"multiedge/linkdrv"
)

// Demonstration is the paper's three tests over a range of sizes on two links with jumbo frames, and beside edge, in
// turns, what the same hosts do over TCP and over bare packet sockets. Each round begins with another one. It takes
// about a minute.
type Demonstration struct {
	Security string // of the edge that checks every byte
	Sizes    []int
	Rounds   int
	Each     time.Duration // of each size
	Row      func(r *report.Row)
	Note     func(text string)
	Show     func(step int, what string) // before each measurement
}

// Variants of edge in a demonstration: one as it is used, with every byte compared where it lands; and one that does no
// more than TCP does on these links, which is neither encrypted nor checked.
const (
	demoChecked = " checked" // after its security
	demoPlain   = "plaintext"
)

var (
	demoSizes = []int{8, 64, 512, 4 << 10, 32 << 10, 256 << 10, 1 << 20}
	demoTests = []string{report.OneWay, report.TwoWay, report.PingPong}
)

const (
	// demoRegion is larger than caches, yet quickly filled with patterns before each measurement.
	demoRegion = 64 << 20
	demoParts  = 4 // edge twice, TCP, raw
)

// Demo returns the usual demonstration; the caller sets what is to be called.
func Demo(security string) *Demonstration {
	return &Demonstration{Security: security, Sizes: demoSizes, Rounds: 3, Each: 160 * time.Millisecond}
}

// Steps returns how many measurements a demonstration takes.
func (d *Demonstration) Steps() int { return d.Rounds * len(demoTests) * demoParts * len(d.Sizes) }

// Spec describes the hosts.
func (d *Demonstration) Spec() ClusterSpec {
	return ClusterSpec{Lab: lab.Spec{Hosts: 2, Links: 2, MTU: 9000}, Pin: true, Security: d.Security}
}

// demoEntrant measures all sizes of a test.
type demoEntrant func(ctx context.Context, test string, round int) error

// Run runs the demonstration on hosts that are removed afterwards. It calls begin with the hosts before the first
// measurement.
func (d *Demonstration) Run(ctx context.Context, begin func(*Cluster)) error {
	spec := d.Spec()
	return withCluster(ctx, spec, func(checked *Cluster) error {
		begin(checked)
		spec.Security, spec.Checksum = config.Plaintext, "header"
		return withCluster(ctx, spec, func(plain *Cluster) error { return d.rounds(ctx, checked, plain) })
	})
}

func (d *Demonstration) rounds(ctx context.Context, checked, plain *Cluster) error {
	step := 0
	show := func(test, what string, size int) {
		d.Show(step, fmt.Sprintf("%s of %s, %s", test, report.Bytes(size), what))
		step++
	}
	entrants := []demoEntrant{
		d.edge(checked, d.Security+demoChecked, true, show), d.edge(plain, demoPlain, false, show),
		d.other(checked, contender.TCP{}, show), d.other(checked, contender.Raw{Kind: linkdrv.KindUDP}, show),
	}
	for round := 1; round <= d.Rounds; round++ {
		for _, test := range demoTests {
			for i := range entrants {
				if err := entrants[(i+round-1)%len(entrants)](ctx, test, round); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// edge returns the entrant of a variant of edge.
func (d *Demonstration) edge(c *Cluster, variant string, integrity bool, show func(test, what string,
	size int)) demoEntrant {
	return func(ctx context.Context, test string, round int) error {
		specs, region, err := Concat(Plan{Test: test, Sizes: d.Sizes, Duration: d.Each, Integrity: integrity,
			Seed: uint64(round), Region: demoRegion})
		if err != nil {
			return err
		}
		done := 0
		next := func() {
			if done < len(specs) {
				show(test, "edge "+variant, specs[done].Size)
			}
			done++
		}
		next()
		return c.Run(ctx, Session{Specs: specs, Region: region, Fit: true, Profile: integrity, Sink: func(e Event) {
			switch {
			case e.Note != "":
				d.Note(e.Note)
			case e.Row != nil:
				e.Row.Round, e.Row.Variant = round, variant
				d.Row(e.Row)
				next()
			}
		}})
	}
}

// other returns the entrant of another transport between the same hosts.
func (d *Demonstration) other(c *Cluster, o contender.Contender, show func(test, what string, size int)) demoEntrant {
	gone := false
	return func(ctx context.Context, test string, round int) error {
		for _, size := range d.Sizes {
			show(test, o.Name(), size)
			if gone {
				continue
			}
			row, err := c.other(ctx, o, &contender.Job{Test: test, Size: size, Duration: d.Each, Region: demoRegion})
			switch {
			case ctx.Err() != nil:
				return ctx.Err()
			case err != nil: // edge is what is demonstrated
				gone = true
				d.Note(fmt.Sprintf("%s is left out: %v", o.Name(), err))
				continue
			}
			row.Round = round
			d.Row(row)
		}
		return nil
	}
}
