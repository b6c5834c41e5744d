package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"multiedge/bench/cli"
	"multiedge/bench/handles"
	"multiedge/bench/report"
)

// handlesCmd finds out what exports cost that are not used.
type handlesCmd struct {
	Exports []int    `default:"1000,10000,100000,1000000" help:"Numbers of exports, one step after the other." placeholder:"N,..."`
	InUse   int      `default:"1000" help:"Number of exports in use." placeholder:"N"`
	Ways    []string `default:"catalog,granted" enum:"catalog,granted" help:"Ways to export: catalog (looked up on request), granted (on connections; all are advertised to the peer)." placeholder:"WAY,..."`
	Writes  int      `default:"5000" help:"Writes in a round." placeholder:"N"`
	resultFlags
	cli.TransportFlags
	cli.LabFlags `prefix:""`
}

func (c *handlesCmd) Run(ctx context.Context) error {
	slices.Sort(c.Exports)
	switch {
	case c.InUse < 1 || c.InUse > 2000 || c.Writes < 100:
		return errors.New("--in-use is 1 to 2000, --writes 100 at least")
	case len(c.Exports) == 0 || c.Exports[0] < c.InUse || c.Exports[len(c.Exports)-1] > 4000000:
		return fmt.Errorf("--exports are %d (--in-use) to 4000000", c.InUse)
	case c.Embedded:
		return errors.New("handles measures daemons: leave out --embedded")
	}
	res := &handles.Result{Spec: handles.Spec{Exports: c.Exports, InUse: c.InUse, Writes: c.Writes}}
	progress := report.NewProgress(os.Stderr, 1)
	for _, n := range c.Exports {
		progress.Update(fmt.Sprintf("table: %d exports", n), 0)
		step, err := handles.RunTable(n, c.InUse)
		if err != nil {
			return err
		}
		res.Steps = append(res.Steps, step)
	}
	progress.Clear()
	if c.Lab {
		res.Ways = c.Ways
		hosts := c.Cluster(&c.TransportFlags, 1)
		hosts.Limits = res.Spec.Limits()
		got, err := inLab(ctx, hosts, handles.InLab, res.Spec)
		if err != nil {
			return err
		}
		res.Steps = append(res.Steps, got.Steps...)
	}
	if err := c.show(res.Study(cli.Head()), "handles"); err != nil {
		return err
	}
	if !c.Lab {
		fmt.Println("only the table was measured; --lab writes through daemons on two hosts, too")
	}
	return nil
}
