package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"multiedge/bench/contender"
	"multiedge/bench/kit"
	"multiedge/bench/report"
	"multiedge/internal/config"
	"multiedge/internal/lab"
	"multiedge/linkdrv"
)

// Comparison is the same work over several transports, interleaved: in each round every contender runs once, and each
// round begins with another one, so that what the machine does beside affects all of them alike.
type Comparison struct {
	Cluster ClusterSpec
	Plan    Plan // its Sizes and Duration; a number of messages is not supported
	Rounds  int
	Regions []int // bytes of each data region, measured one after the other; empty: the Plan's
	Edge    []EdgeVariant
	Others  []contender.Contender

	Row  func(r *report.Row)         // each result
	Note func(text string)           // what a person should know
	Show func(step int, what string) // before each run
}

// EdgeVariant is one way to set up the edge transport.
type EdgeVariant struct {
	Name     string // for Row.Variant
	Security string
	Checksum string // of plaintext
	Embedded bool
	Driver   string // of links; empty: the cluster's, or frames alone
	Stream   bool   // bytes of streams instead of writes
	Region   bool   // from and into registered memory
	Copied   bool   // that is nevertheless copied
	Heap     bool   // writes and reads of memory that is granted where it is (package edge/heap), at both ends
	Test     string // what it does instead of the comparison's test; only for comparisons of this test, which is Read
}

// EdgeVariants are the known ones. The first is comparable to the others' service: frames are plaintext and trusted to
// the link's own check. Of each form there are two: with frames alone, as NICs get them, and in datagrams ("udp"), as
// is the default on virtual links.
var EdgeVariants = []EdgeVariant{
	{Name: "", Security: config.Plaintext, Checksum: "header"},
	{Name: "crc32c", Security: config.Plaintext, Checksum: "full"},
	{Name: "encrypted", Security: config.Encrypted},
	{Name: "embedded", Security: config.Plaintext, Checksum: "header", Embedded: true},
	{Name: "udp", Security: config.Plaintext, Checksum: "header", Driver: linkdrv.KindUDP},
	{Name: "udp crc32c", Security: config.Plaintext, Checksum: "full", Driver: linkdrv.KindUDP},
	{Name: "udp encrypted", Security: config.Encrypted, Driver: linkdrv.KindUDP},
	{Name: "udp embedded", Security: config.Plaintext, Checksum: "header", Driver: linkdrv.KindUDP, Embedded: true},
	{Name: "stream", Security: config.Plaintext, Checksum: "header", Stream: true},
	{Name: "stream region", Security: config.Plaintext, Checksum: "header", Stream: true, Region: true},
	{Name: "stream encrypted", Security: config.Encrypted, Stream: true},
	{Name: "udp stream", Security: config.Plaintext, Checksum: "header", Driver: linkdrv.KindUDP, Stream: true},
	{Name: "udp stream region", Security: config.Plaintext, Checksum: "header", Driver: linkdrv.KindUDP, Stream: true,
		Region: true},
	{Name: "udp stream copied", Security: config.Plaintext, Checksum: "header", Driver: linkdrv.KindUDP, Stream: true,
		Region: true, Copied: true},
	{Name: "udp stream encrypted", Security: config.Encrypted, Driver: linkdrv.KindUDP, Stream: true},
	{Name: "udp heap", Security: config.Plaintext, Checksum: "header", Driver: linkdrv.KindUDP, Heap: true},
	{Name: "heap encrypted", Security: config.Encrypted, Heap: true},
	{Name: "write", Security: config.Plaintext, Checksum: "header", Test: report.OneWay},
	{Name: "write encrypted", Security: config.Encrypted, Test: report.OneWay},
}

// Does reports whether v belongs into a comparison of test: writes are something to compare reads with, and streams
// have no reads of the peer's memory.
func (v *EdgeVariant) Does(test string) bool {
	if test == report.Read {
		return !v.Stream
	}
	return v.Test == ""
}

// Routed reports whether v runs between hosts with a router between them: IP links are encrypted, of daemons, and have
// one driver.
func (v *EdgeVariant) Routed() bool {
	return v.Security == config.Encrypted && v.Driver == "" && !v.Embedded
}

// entrant is a contender that is ready to run.
type entrant struct {
	name string
	run  func(ctx context.Context, p Plan) (*report.Row, error) // of one size
	gone bool                                                   // it failed
}

// UsualRegions are those of a comparison unless others are asked for: one that caches hold, and one that none holds.
var UsualRegions = []int{4 << 20, DefaultRegion}

// Steps returns how many runs the comparison takes.
func (c *Comparison) Steps() int {
	return c.Rounds * len(c.sizes()) * len(c.regions()) * (len(c.Edge) + len(c.Others))
}

func (c *Comparison) regions() []int {
	if len(c.Regions) > 0 {
		return c.Regions
	}
	return []int{c.Plan.Region}
}

func (c *Comparison) sizes() []int {
	if len(c.Plan.Sizes) > 0 {
		return c.Plan.Sizes
	}
	if c.Plan.Test == report.PingPong || c.Plan.Test == report.Rate {
		return []int{8}
	}
	return []int{1 << 20}
}

// Run runs the comparison. A contender that fails is reported in a note and left out from then on; the error is that of
// the edge transport or of ctx.
func (c *Comparison) Run(ctx context.Context) (err error) {
	clusters := map[EdgeVariant]*Cluster{} // by what matters for the daemons
	defer func() {
		for _, cl := range clusters {
			err = errors.Join(err, cl.Close())
		}
	}()
	return kit.Try(func() {
		var entrants []*entrant
		var hosts *Cluster
		for _, v := range c.Edge {
			spec, key := c.Cluster, EdgeVariant{Security: v.Security, Checksum: v.Checksum, Embedded: v.Embedded,
				Driver: v.Driver, Heap: v.Heap}
			spec.Security, spec.Checksum, spec.Embedded = v.Security, v.Checksum, v.Embedded
			if v.Heap {
				spec.Limits += "couriers = 64\n" // an eighth for each user
			}
			if spec.Driver = cmp.Or(v.Driver, spec.Driver, linkdrv.KindAlone); spec.Lab.Medium == lab.Routed {
				spec.Driver = ""
			}
			if clusters[key] == nil {
				clusters[key] = kit.Get(NewCluster(ctx, spec))
			}
			hosts = cmp.Or(hosts, clusters[key])
			entrants = append(entrants, c.edge(clusters[key], v))
		}
		if hosts == nil {
			kit.Fail("a comparison needs at least one variant of edge")
		}
		for _, o := range c.Others {
			entrants = append(entrants, c.other(hosts, o))
		}
		step := 0
		for _, region := range c.regions() {
			for i, size := range c.sizes() {
				p := c.Plan
				p.Sizes, p.Region = []int{size}, region
				if i == 0 {
					for _, r := range FirstTouch(p.region()) {
						c.Row(r)
					}
				}
				c.turns(ctx, p, entrants, &step)
			}
		}
	})
}

// turns does all rounds of one size. Where the limit on pinned memory leaves edge a smaller region, the others have no
// larger one.
func (c *Comparison) turns(ctx context.Context, p Plan, entrants []*entrant, step *int) {
	inTurns(c.Rounds, entrants, func(round int, e *entrant) {
		c.Show(*step, fmt.Sprintf("round %d: %s, %s over %s, region %s", round, p.Test, report.Bytes(p.Sizes[0]),
			e.name, report.Bytes(p.region())))
		*step++
		if e.gone {
			return
		}
		row, err := e.run(ctx, p)
		kit.Check(ctx.Err())
		switch {
		case err != nil && row != nil && row.Transport == report.TransportEdge:
			kit.Fail("%s: %w", e.name, err)
		case errors.Is(err, lab.ErrCongestion):
			kit.Check(err)
		case err != nil:
			e.gone = true
			c.Note(fmt.Sprintf("%s is left out: %v", e.name, err))
			return
		case row.Transport == report.TransportEdge:
			p.Region = min(p.region(), row.RegionBytes)
		}
		row.Round = round
		c.Row(row)
	})
}

// edge returns the entrant of a variant of the edge transport: a series of its own for each run.
func (c *Comparison) edge(cl *Cluster, v EdgeVariant) *entrant {
	proto := report.Row{Transport: report.TransportEdge, Setup: report.Setup{Variant: v.Name}}
	return &entrant{name: proto.Contender(), run: func(ctx context.Context, p Plan) (*report.Row, error) {
		row := &report.Row{Transport: report.TransportEdge}
		p.ByteStream, p.Registered, p.Copied, p.Heap = v.Stream, v.Region, v.Copied, v.Heap
		p.Test = cmp.Or(v.Test, p.Test)
		specs, region, err := Concat(p)
		if err != nil {
			return row, err
		}
		err = cl.Run(ctx, Series{Specs: specs, Region: region, Sink: func(e Event) {
			if e.Row != nil {
				row = e.Row
				row.Test, row.Variant = c.Plan.Test, v.Name
				if c.Cluster.Lab.Medium == lab.Routed { // as the others say it: an IP link's has no IP headers
					row.MTU = cmp.Or(c.Cluster.Lab.MTU, 9000)
				}
			}
			if e.Note != "" {
				c.Note(e.Note)
			}
		}})
		if err == nil && row.Test == "" {
			err = errors.New("the benchmark reported nothing")
		}
		return row, err
	}}
}

// other returns the entrant of another transport, between the same hosts.
func (c *Comparison) other(cl *Cluster, o contender.Contender) *entrant {
	proto := report.Row{Transport: o.Name(), Setup: report.Setup{Variant: o.Variant()}}
	return &entrant{name: proto.Contender(), run: func(ctx context.Context, p Plan) (*report.Row, error) {
		row, err := cl.other(ctx, o, p)
		if row != nil {
			row.Test = p.Test
		}
		return row, err
	}}
}

// other has another transport do a plan's test with its first size between the first two hosts.
func (c *Cluster) other(ctx context.Context, o contender.Contender, p Plan) (*report.Row, error) {
	return kit.Outcome(func() *report.Row {
		row := o.Run(ctx, &contender.Job{Test: standIn(p.Test), Size: p.Sizes[0], Duration: p.Duration,
			Warmup: warmup(&p.Spec), Region: p.region(), MTU: cmp.Or(c.spec.Lab.MTU, 9000), Self: c.spec.Self,
			Hosts: [2]*lab.Host{c.lab.Host(0), c.lab.Host(1)}, CPUs: [2][]int{c.CPUs(0), c.CPUs(1)}})
		c.complete(row)
		return row
	})
}

// offloads names those of the links; "unknown" where the kernel does not say.
func (c *Cluster) offloads() string {
	on, err := c.lab.Host(0).Offloads()
	if err != nil {
		return "unknown"
	}
	return on
}

// standIn is what other transports do in a comparison of test: for reads, which they do not have, they send the same
// bytes in one direction.
func standIn(test string) string {
	if test == report.Read {
		return report.OneWay
	}
	return test
}

// CanDo says whether a contender can take part in a comparison of test.
func CanDo(test string, o contender.Contender) bool { return o.Does(standIn(test)) }

// Contenders returns those that can do a test, of all that are known; what is not installed is described in notes.
func Contenders(test string, all []contender.Contender) (able []contender.Contender, notes []string) {
	for _, o := range all {
		switch missing := o.Missing(); {
		case !CanDo(test, o):
		case missing != "":
			if !slices.Contains(notes, missing) {
				notes = append(notes, missing)
			}
		default:
			able = append(able, o)
		}
	}
	return able, notes
}
