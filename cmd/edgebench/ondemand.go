package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"multiedge/bench"
	"multiedge/bench/ondemand"
	"multiedge/bench/report"
	"multiedge/internal/config"
	"multiedge/internal/lab"
)

// onDemandCmd measures memory that is pinned on demand.
type onDemandCmd struct {
	Only     []string `default:"costs,sweep,ways,shares,bystander" enum:"costs,sweep,ways,shares,bystander" help:"What is measured: costs (of a hit, a miss, a check), sweep (sizes, working sets, policies, patterns), ways (registered whole, at each transfer, through a cache, copied), shares (of writes that miss: parked, and dropped to be sent again), bystander." placeholder:"PART,..."`
	Duration seconds  `short:"D" default:"0.4" help:"How long a cell is measured." placeholder:"TIME"`
	Rounds   int      `default:"5" help:"Rounds of what is compared in turns." placeholder:"N"`
	Budget   size     `default:"16m" help:"What a space may pin." placeholder:"SIZE"`
	Quick    bool     `help:"Fewer cells, shorter, fewer rounds: some ten seconds."`
	Output   string   `short:"o" help:"Directory for the result as JSON, the figures and index.html." placeholder:"DIR"`
	transportFlags
	labFlags `prefix:""`
}

// spec is what there is to do.
func (c *onDemandCmd) spec() ondemand.Spec {
	s := ondemand.Spec{Parts: c.Only, Cell: float64(c.Duration) / 1e9, Rounds: c.Rounds, Budget: int(c.Budget),
		Sizes: []int{8, 4096, 64 << 10, 1 << 20}, Sets: []int{1, 50, 100, 200, 400},
		Policies: []string{"lru", "mru", "lfu", "mfu", "random"},
		Patterns: []string{ondemand.Cyclic, ondemand.Uniform, ondemand.Zipf}}
	if c.Quick {
		s.Cell, s.Rounds, s.Budget = 0.06, 1, 8<<20
		s.Sizes, s.Sets = []int{64 << 10}, []int{50, 200}
		s.Policies, s.Patterns = []string{"lru", "mru"}, []string{ondemand.Cyclic, ondemand.Zipf}
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
	if err := lab.EnsurePrivileges(); err != nil {
		return err
	}
	progress := report.NewProgress(os.Stderr, 1)
	spec := c.spec()
	res, err := c.measure(ctx, spec, config.MissesPark, progress.Update)
	if err == nil && slices.Contains(c.Only, ondemand.Shares) {
		spec.Parts, spec.Variant = []string{ondemand.Shares}, config.MissesDrop
		var dropped *ondemand.Result
		if dropped, err = c.measure(ctx, spec, config.MissesDrop, progress.Update); err == nil {
			res.Shares = append(res.Shares, dropped.Shares...)
		}
	}
	progress.Clear()
	if err != nil {
		return err
	}
	s := res.Study(head())
	if err := printStudy(s); err != nil {
		return err
	}
	return writeStudy(s, c.Output, "ondemand")
}

// measure runs daemons that do so with what misses.
func (c *onDemandCmd) measure(ctx context.Context, spec ondemand.Spec, misses string,
	show func(string, float64)) (*ondemand.Result, error) {
	cs := c.cluster(&c.transportFlags, 1)
	cs.Limits, cs.Config = "requests = 65536", fmt.Sprintf("misses = %q\n", misses)
	cl, err := bench.NewCluster(ctx, cs)
	if err != nil {
		return nil, err
	}
	res, err := cl.OnDemand(ctx, spec, show)
	return res, errors.Join(err, cl.Close())
}
