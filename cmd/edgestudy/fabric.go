package main

import (
	"context"
	"os"
	"time"

	"multiedge/bench/cli"
	"multiedge/bench/fabric"
	"multiedge/bench/report"
)

// fabricCmd simulates a data centre.
type fabricCmd struct {
	Hosts    int           `default:"64" help:"Hosts, 16 to a leaf switch, under 4 spine switches (default: ${default})." placeholder:"N"`
	Workload string        `default:"websearch" enum:"websearch,datamining,permutation,incast" help:"Traffic: flows of the sizes of DCTCP's web search or of VL2's data mining, each host to one other (permutation), or many hosts to one at once (incast)." placeholder:"NAME"`
	Load     float64       `default:"0.8" help:"Load of hosts' links by flows of websearch and datamining, 0 to 1 (default: ${default})." placeholder:"P"`
	FanIn    int           `default:"32" help:"Senders of incast (default: ${default})." placeholder:"N"`
	Lanes    int           `default:"4" help:"Lanes of the run that sprays over several paths; 1: none such (default: ${default})." placeholder:"N"`
	Time     time.Duration `default:"10ms" help:"How long flows start, in simulated time (default: ${default})." placeholder:"T"`
	Rate     string        `default:"10gbit" help:"Rate of hosts' links; those between switches carry all of it (default: ${default})." placeholder:"RATE"`
	MTU      int           `name:"mtu" default:"1500" help:"MTU of all links (default: ${default})." placeholder:"M"`
	Buffer   cli.Size      `help:"Buffer of each port of a switch (default: 200 us of its host's link)." placeholder:"SIZE"`
	Shared   bool          `help:"The ports of a switch share their buffers, with dynamic thresholds."`
	Mark     cli.Size      `help:"Bytes in a queue from which on packets are marked, ECN (default: 25 us of a host's link)." placeholder:"SIZE"`
	Fail     int           `help:"Links between switches that carry nothing for the middle third of the time." placeholder:"N"`
	Seed     uint64        `default:"1" help:"The same seed gives the same figures."`
	resultFlags
}

func (c *fabricCmd) Run(ctx context.Context) error {
	rate, err := report.ParseRate(c.Rate)
	if err != nil {
		return err
	}
	spec := fabric.Spec{Hosts: c.Hosts, Workload: c.Workload, Load: c.Load, Lanes: c.Lanes, FanIn: c.FanIn,
		Time: c.Time, Rate: rate, MTU: c.MTU, Buffer: int(c.Buffer), Shared: c.Shared, Mark: int(c.Mark),
		Fails: c.Fail, Seed: c.Seed}
	spec.SetDefaults()
	var progress *report.Progress
	s, err := fabric.Study(ctx, cli.Head(), spec, func(steps int) { progress = report.NewSteps(os.Stderr, steps) },
		func(what string, share float64) { progress.Update(what, share) }, func() { progress.Step() })
	progress.Clear()
	if err != nil {
		return err
	}
	return c.show(s, "fabric")
}
