package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"multiedge/bench"
	"multiedge/bench/contender"
	"multiedge/bench/figure"
	"multiedge/bench/report"
	"multiedge/internal/lab"
)

// compareCmd runs the same work over several transports.
type compareCmd struct {
	Test     string   `arg:"" optional:"" default:"one-way" enum:"one-way,two-way,ping-pong,read" help:"one-way, two-way, ping-pong or read."`
	Rounds   count    `default:"5" help:"Runs of each contender, in turns (default: ${default})." placeholder:"N"`
	Only     []string `help:"Contenders besides edge (default: all that are installed): raw, tcp, iperf3, tls, ktls, ucx, libfabric." placeholder:"NAME"`
	TCPCC    []string `name:"tcp-cc" help:"Congestion controls of TCP; what runs above TCP has the first (default: cubic, and bbr where the kernel has it)." placeholder:"NAME"`
	Cores    []string `name:"tcp-cores" default:"pinned" enum:"pinned,free" help:"Where the threads of TCP and iperf3 run: pinned (to their host's processors, as edge's), free (anywhere), or both (default: ${default})." placeholder:"HOW"`
	Offloads string   `default:"on" enum:"on,off" help:"off turns TSO, USO, GSO and GRO of the links off: every frame crosses alone, as from NICs without them (default: ${default})." placeholder:"HOW"`
	Edge     []string `help:"Variants of edge (default: plain,crc32c,encrypted,udp,udp-crc32c,udp-encrypted,write; with --lab-router encrypted,write-encrypted, which with stream-encrypted are all that cross a router): plain (plaintext, payload checksum off, as TCP's is on these links), crc32c (plaintext), encrypted, embedded (plain); stream (byte streams, net.Conn, plain, not beside read), stream-region (from and into registered memory), udp-stream-copied (the same memory, by Write and Read), stream-encrypted; udp-heap and heap-encrypted (memory granted where it is); each of the others also as udp, udp-crc32c and so on, with that driver; write (plain, only beside read) and write-encrypted." placeholder:"NAME"`
	sizeFlags
	workFlags
	transportFlags
	labFlags    `prefix:""`
	outputFlags `prefix:""`
}

func (c *compareCmd) Run(ctx context.Context) (err error) {
	if c.Iters > 0 {
		return errors.New("a comparison takes the same time for each contender: use -D instead of -n")
	}
	if c.Security != "" || c.Checksum != "" {
		return errors.New("compare runs variants side by side: choose them by --edge plain,crc32c,encrypted and " +
			"leave out --security and --checksum")
	}
	if err := lab.EnsurePrivileges(); err != nil {
		return err
	}
	p := plan(c.Test, &c.sizeFlags, &c.workFlags)
	if p.Duration == 0 {
		p.Duration = time.Second
	}
	cmp := &bench.Comparison{Cluster: c.cluster(&c.transportFlags, c.Seed), Plan: p, Rounds: int(c.Rounds)}
	cmp.Cluster.Lab.NoOffloads = c.Offloads == "off"
	if c.Region == 0 {
		cmp.Regions = bench.UsualRegions
	}
	if cmp.Edge, err = c.variants(); err != nil {
		return err
	}
	others, notes, err := c.others()
	if err != nil {
		return err
	}
	cmp.Others = others
	o, err := c.outputFlags.open("MultiEdge compared: "+c.Test, cmp.Steps(), "table")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, o.close()) }()
	for _, n := range notes {
		o.note(n)
	}
	if c.Test == report.Read {
		o.note("edge reads; the other transports send the same bytes in one direction, as does \"edge write\"")
	}
	return c.compare(ctx, cmp, o)
}

func (c *compareCmd) compare(ctx context.Context, cmp *bench.Comparison, o *output) error {
	var failed error
	cmp.Note = o.note
	cmp.Row = func(r *report.Row) { failed = errors.Join(failed, o.row(r)) }
	cmp.Show = o.steps()
	o.file.Lab = labOf(&cmp.Cluster)
	err := errors.Join(cmp.Run(ctx), failed)
	o.progress.Clear()
	if c.Format == "perftest" || c.Format == "table" {
		printSummary(os.Stdout, figure.Summarize([]figure.Source{{File: o.file}}))
	}
	return err
}

// The variants of edge where none are asked for.
var (
	usualVariants  = []string{"plain", "crc32c", "encrypted", "udp", "udp-crc32c", "udp-encrypted", "write"}
	routedVariants = []string{"encrypted", "write-encrypted"}
)

// variants returns the set-ups of edge that were asked for.
func (c *compareCmd) variants() ([]bench.EdgeVariant, error) {
	var out []bench.EdgeVariant
	names, wanted := []string{}, c.Edge
	if len(wanted) == 0 {
		wanted = usualVariants
		if c.LabRouter {
			wanted = routedVariants
		}
	}
	for _, v := range bench.EdgeVariants {
		name := strings.ReplaceAll(v.Name, " ", "-")
		if name == "" {
			name = "plain"
		}
		names = append(names, name)
		if !slices.Contains(wanted, name) || !v.Does(c.Test) {
			continue
		}
		if c.LabRouter && !v.Routed() {
			return nil, fmt.Errorf("--edge %s does not cross a router, where links are encrypted and have the driver "+
				"ip: choose from encrypted, stream-encrypted, write-encrypted", name)
		}
		out = append(out, v)
	}
	for _, want := range wanted {
		if !slices.Contains(names, want) {
			return nil, fmt.Errorf("--edge %q: want %s", want, strings.Join(names, ", "))
		}
	}
	return out, nil
}

// overs returns the settings of TCP to measure, the one for what runs above TCP first.
func (c *compareCmd) overs() (overs []contender.Over) {
	controls := c.TCPCC
	if len(controls) == 0 {
		controls = contender.Usual()
	}
	for _, cores := range c.Cores {
		for _, name := range controls {
			overs = append(overs, contender.Over{Congestion: name, Free: cores == report.CoresFree})
		}
	}
	return overs
}

// others returns the contenders that were asked for and can run, and how to install what cannot.
func (c *compareCmd) others() ([]contender.Contender, []string, error) {
	all := contender.All(c.overs())
	var names []string
	for _, o := range all {
		names = append(names, o.Name())
	}
	for _, want := range c.Only {
		if !slices.Contains(names, want) {
			return nil, nil, fmt.Errorf("--only %q: want some of %s", want, strings.Join(slices.Compact(names), ", "))
		}
	}
	if len(c.Only) > 0 {
		all = slices.DeleteFunc(all, func(o contender.Contender) bool { return !slices.Contains(c.Only, o.Name()) })
	}
	able, notes := bench.Contenders(c.Test, all)
	if len(c.Only) == 0 {
		notes = append(notes, wireGuard())
	}
	// raw IP sockets stand for packet sockets beyond a router, and beside them show what it costs
	able = slices.DeleteFunc(able, func(o contender.Contender) bool {
		raw, ok := o.(contender.Raw)
		switch {
		case !ok:
			return false
		case c.LabRouter:
			return !raw.Routed()
		}
		return raw.Routed() && c.Test != report.PingPong
	})
	if c.LabRouter {
		notes = append(notes, "raw packet sockets do not cross a router and are left out; raw ip is UDP sockets")
	}
	for _, want := range c.Only {
		if !slices.ContainsFunc(all, func(o contender.Contender) bool {
			return o.Name() == want &&
				bench.CanDo(c.Test, o)
		}) {
			notes = append(notes, fmt.Sprintf("%s has no %s and is left out", want, c.Test))
		}
	}
	return able, notes, nil
}

// wireGuard says why encrypted edge does not stand beside WireGuard.
func wireGuard() string {
	has, err := lab.KernelHas("wireguard")
	switch {
	case err != nil:
		return "WireGuard is left out: " + err.Error()
	case has:
		return "WireGuard is left out: this kernel has it, and edgebench does not set it up"
	}
	return "WireGuard is left out: this kernel has none"
}
