package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"multiedge/bench/cli"
	"multiedge/bench/kit"
	"multiedge/bench/machine"
	"multiedge/bench/report"
	"multiedge/bench/splash"
	"multiedge/edge"
	"multiedge/edge/dsm"
	"multiedge/internal/lab"
)

// splashCmd runs parallel programs on shared memory.
type splashCmd struct {
	Kernels []string       `arg:"" optional:"" help:"Kernels: fft, lu, lu-rows, radix, ocean, barnes, water, water-cells (default: all)." placeholder:"KERNEL"`
	Ranks   int            `short:"n" default:"2" help:"Ranks, each on a host of its own: 2 to 16 (default: ${default})." placeholder:"N"`
	Size    map[string]int `short:"s" help:"Sizes of kernels other than the default." placeholder:"KERNEL=N;..."`
	Paper   bool           `help:"The papers' sizes, of the kernels for which they have one."`
	Costs   int            `help:"Rounds of measuring what single steps cost, beside the operations they are made of (default: none)." placeholder:"ROUNDS"`
	Cut     bool           `help:"Cut links in turn while the kernels run: add --lab-links 2 or more."`
	Kill    bool           `help:"Kill a rank at the end, and see how the others end."`
	Mixed   bool           `help:"Every other rank is a program in C, from rank 1 on: kernels radix, ocean, lu and lu-rows. make -C edge/dsm/c tests builds it."`
	Program string         `help:"The program with kernels in C, for --mixed (default: out/dsm/plain/kernel)." placeholder:"FILE"`
	resultFlags
	cli.TransportFlags
	cli.LabFlags `prefix:""`
}

func (c *splashCmd) spec() (splash.Spec, error) {
	s := splash.Spec{Costs: c.Costs, Cut: c.Cut, Kill: c.Kill}
	for name := range c.Size {
		if _, ok := splash.Named(name); !ok {
			return s, fmt.Errorf("--size names %q, which is no kernel", name)
		}
	}
	for _, name := range c.Kernels {
		if _, ok := splash.Named(name); !ok {
			return s, fmt.Errorf("there is no kernel %q; edgestudy splash --help names them", name)
		}
	}
	if c.Mixed {
		var err error
		if s.Program, err = splash.ProgramInC(c.Program, "kernel"); err != nil {
			return s, err
		}
	}
	if c.Costs > 0 {
		var err error
		if s.CostsInC, err = splash.ProgramInC("", "cost"); err != nil {
			fmt.Fprintf(os.Stderr, "steps in C are left out: %v\n", err)
		}
	}
	for _, k := range splash.Kernels {
		if c.Mixed && !slices.Contains(splash.Mixed, k.Name) {
			if slices.Contains(c.Kernels, k.Name) {
				return s, fmt.Errorf("%s is not there in C: --mixed runs %s", k.Name, strings.Join(splash.Mixed, ", "))
			}
			continue
		}
		size := k.Size
		if c.Paper && k.Paper > 0 {
			size = k.Paper
		}
		if n, ok := c.Size[k.Name]; ok {
			size = n
		}
		if !k.Valid(size) {
			return s, fmt.Errorf("%s has no run of size %d: LU needs a multiple of 16, FFT a power of two", k.Name,
				size)
		}
		if len(c.Kernels) == 0 || slices.Contains(c.Kernels, k.Name) {
			s.Tasks = append(s.Tasks, splash.Task{Kernel: k.Name, Size: size})
		}
	}
	return s, nil
}

func (c *splashCmd) Run(ctx context.Context) error {
	place := os.Getenv(dsm.Variable)
	switch {
	case c.Ranks < 2 || c.Ranks > 16:
		return errors.New("-n is 2 to 16")
	case !c.Lab && place == "":
		return errors.New("add --lab, which builds a host for each rank; or start it on each of your hosts with " +
			"EDGE_DSM=NAME,RANK,RANKS,ROOT in the environment")
	case !c.Lab && (c.Costs > 0 || c.Cut || c.Kill || c.Mixed):
		return errors.New("--costs, --cut, --kill and --mixed need --lab")
	case c.LabHosts != 2:
		return errors.New("there is a host for each rank: leave out --lab-hosts, -n says how many")
	case c.Embedded:
		return errors.New("splash measures daemons: leave out --embedded")
	case c.Costs < 0 || c.Costs > 100000:
		return errors.New("--costs is 0 to 100000 rounds")
	case c.Program != "" && !c.Mixed:
		return errors.New("--program is for --mixed")
	case c.Mixed && c.Costs > 0:
		return errors.New("--costs measures ranks in Go: leave out --mixed")
	case c.Cut && c.LabLinks < 2:
		return errors.New("--cut leaves one link whole: add --lab-links 2 or more")
	}
	spec, err := c.spec()
	if err != nil {
		return err
	}
	var res *splash.Result
	if c.Lab {
		res, err = c.measure(ctx, spec)
	} else {
		res, err = c.here(ctx, spec, place)
	}
	if err != nil {
		return err
	}
	if err := c.show(res.Study(cli.Head()), "splash"); err != nil {
		return err
	}
	for _, row := range res.Rows {
		if !row.Same {
			return fmt.Errorf("%s has other bits than its sequential run", row.Kernel)
		}
	}
	return nil
}

// here is one rank of several, each of which a user starts at the daemon of its host.
func (c *splashCmd) here(ctx context.Context, spec splash.Spec, place string) (*splash.Result, error) {
	d, err := edge.Open(ctx, edge.Config{Spin: dsm.Spin})
	if err != nil {
		return nil, err
	}
	defer d.Close()
	return splash.Here(ctx, d, spec, place)
}

func (c *splashCmd) measure(ctx context.Context, spec splash.Spec) (*splash.Result, error) {
	if err := lab.EnsurePrivileges(); err != nil {
		return nil, err
	}
	machine.This() // its card is of before the study
	hosts := c.Cluster(&c.TransportFlags, 1)
	hosts.Lab.Hosts = c.Ranks
	if c.Cut {
		hosts.Lab.Medium = lab.Switch // which can cut links between two hosts, too
	}
	cl, err := kit.NewCluster(ctx, hosts)
	if err != nil {
		return nil, err
	}
	progress := report.NewProgress(os.Stderr, 1)
	res, err := splash.Run(ctx, cl, spec, progress.Update)
	progress.Clear()
	return res, errors.Join(err, cl.Close())
}
