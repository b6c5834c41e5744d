package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"multiedge/bench/cli"
	"multiedge/bench/ondemand"
	"multiedge/bench/xlate"
	"multiedge/internal/config"
)

// onDemandCmd measures memory that is pinned on demand.
type onDemandCmd struct {
	Only     []string    `default:"costs,sweep,ways,shares,misses,prefetch,bystander" enum:"costs,sweep,ways,shares,misses,prefetch,bystander" help:"Parts to measure: costs (of a hit, a miss, a check), sweep (sizes, working sets, policies, patterns), ways (registered whole, at each transfer, through a cache, copied), shares (of writes that miss: parked, used in place if pinned before, and dropped to be sent again), misses (of a ping-pong, over sizes, and how long they take: the DHL paper's figure 4 and its times of misses), prefetch (exact, sequential, off), bystander." placeholder:"PART,..."`
	Duration cli.Seconds `short:"D" default:"0.4" help:"Duration of each cell." placeholder:"TIME"`
	Rounds   int         `default:"5" help:"Rounds of comparisons that are made in turns." placeholder:"N"`
	Budget   cli.Size    `default:"16m" help:"Bytes that a space may pin." placeholder:"SIZE"`
	Quick    bool        `help:"Fewer cells, shorter, fewer rounds: some ten seconds."`
	resultFlags
	cli.TransportFlags
	cli.LabFlags `prefix:""`
}

// spec is what there is to do.
func (c *onDemandCmd) spec() ondemand.Spec {
	s := ondemand.Spec{Parts: c.Only, Cell: float64(c.Duration) / 1e9, Rounds: c.Rounds, Budget: int(c.Budget),
		Sizes: []int{8, 4096, 64 << 10, 1 << 20}, Sets: []int{1, 50, 100, 200, 400},
		Policies: []string{"lru", "mru", "lfu", "mfu", "random"},
		Patterns: []string{xlate.Cyclic, xlate.Uniform, xlate.Zipf}}
	if c.Quick {
		s.Cell, s.Rounds, s.Budget = 0.06, 1, 8<<20
		s.Sizes, s.Sets = []int{64 << 10}, []int{50, 200}
		s.Policies, s.Patterns = []string{"lru", "mru"}, []string{xlate.Cyclic, xlate.Zipf}
	}
	return s
}

func (c *onDemandCmd) Run(ctx context.Context) error {
	switch {
	case c.Duration > 10e9 || c.Rounds < 1 || c.Rounds > 100:
		return errors.New("-D is at most 10 seconds, --rounds 1 to 100")
	case c.Budget < 4<<20 || c.Budget > 1<<30:
		return errors.New("--budget is 4m to 1g: half of it is held in some cells, and four times as much is used")
	case !c.Lab:
		return errors.New("ondemand measures daemons of two hosts on this machine: add --lab")
	case c.Embedded:
		return errors.New("ondemand measures daemons: leave out --embedded")
	}
	spec := c.spec()
	res, err := c.measure(ctx, spec)
	for _, other := range []ondemand.Spec{{Parts: []string{ondemand.Shares}, Variant: config.MissesInline},
		{Parts: []string{ondemand.Shares}, Variant: config.MissesDrop},
		{Parts: []string{ondemand.Misses}, Variant: config.MissesDrop},
		{Parts: []string{ondemand.Bystander}, Variant: config.MissesInline},
		{Parts: []string{ondemand.Prefetch}, Ahead: "sequential"}, {Parts: []string{ondemand.Prefetch}, Ahead: "off"}} {
		if err != nil || !slices.Contains(c.Only, other.Parts[0]) {
			continue
		}
		spec.Parts, spec.Variant, spec.Ahead = other.Parts, other.Variant, other.Ahead
		var more *ondemand.Result
		if more, err = c.measure(ctx, spec); err == nil {
			res.Shares, res.Foresights = append(res.Shares, more.Shares...), append(res.Foresights, more.Foresights...)
			res.Pings, res.Times = append(res.Pings, more.Pings...), append(res.Times, more.Times...)
			res.Besides = append(res.Besides, more.Besides...)
		}
	}
	if err != nil {
		return err
	}
	return c.show(res.Study(cli.Head()), "ondemand")
}

// measure runs daemons that do with what misses, and before it does, as the spec has it.
func (c *onDemandCmd) measure(ctx context.Context, spec ondemand.Spec) (*ondemand.Result, error) {
	cs := c.Cluster(&c.TransportFlags, 1)
	cs.Limits, cs.Config = "requests = 65536", fmt.Sprintf("misses = %q\nprefetch = %q\n",
		cmp.Or(spec.Variant, config.MissesPark), cmp.Or(spec.Ahead, "exact"))
	return inLab(ctx, cs, ondemand.InLab, spec)
}
