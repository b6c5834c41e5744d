package main

import (
	"context"
	"errors"
	"fmt"

	"multiedge/bench/cli"
	"multiedge/bench/eager"
	"multiedge/edge/compose"
)

// eagerCmd compares eager transfer with gathering and copying.
type eagerCmd struct {
	Rounds  int        `short:"n" default:"2000" help:"Messages for each size, way and time of composing, from each end." placeholder:"N"`
	Size    []cli.Size `short:"s" default:"64,256,1k,4k" help:"Bytes of a message, 64 to 64k." placeholder:"SIZE,..."`
	MTU     []int      `name:"mtu" default:"1500,9000" help:"MTUs of the links, one run for each." placeholder:"M,..."`
	Compose []int      `default:"1280,20000" help:"Nanoseconds to compose a KiB. 1280 is the EDT paper's, as far as it tells; programs that compute their data take longer." placeholder:"NS,..."`
	Marks   int        `default:"4" help:"Maximum number of parts, of 512 bytes or more, of an eager message; each but the last travels as soon as it is written." placeholder:"N"`
	Rates   []string   `default:"1gbit,10gbit,100gbit" help:"Rates of additional simulated links; none: no simulation. (The shaped links of --lab-rates pass a short message in one burst.)" placeholder:"RATE,..."`
	resultFlags
	cli.TransportFlags
	cli.LabFlags `prefix:""`
}

func (c *eagerCmd) Run(ctx context.Context) error {
	sizes := cli.Ints(c.Size)
	for _, s := range sizes {
		if s < 64 || s > compose.MaxSize {
			return fmt.Errorf("messages of %d bytes: choose 64 to 64k", s)
		}
	}
	switch {
	case c.Rounds < 8 || c.Rounds > 1e6 || c.Marks < 1 || len(c.MTU) == 0 || len(sizes) == 0 || len(c.Compose) == 0:
		return errors.New("-n is 8 to 1000000, --marks 1 or more, and -s, --mtu and --compose name one at least")
	case !c.Lab:
		return errors.New("eager builds hosts for each MTU: add --lab")
	case c.Embedded:
		return errors.New("eager measures daemons, which send while the program composes: leave out --embedded")
	}
	var results []*eager.Result
	for _, mtu := range c.MTU {
		hosts := c.Cluster(&c.TransportFlags, 1)
		hosts.Lab.MTU = mtu
		r, err := inLab(ctx, hosts, eager.InLab, eager.Spec{MTU: mtu, Rounds: c.Rounds, Sizes: sizes,
			Compose: c.Compose, Marks: c.Marks})
		if err != nil {
			return err
		}
		results = append(results, r)
	}
	models, err := eager.Simulate(c.MTU, c.Rates, eager.Spec{Sizes: sizes, Compose: c.Compose, Marks: c.Marks})
	if err != nil {
		return err
	}
	err = c.show(eager.Study(cli.Head(), results, models), "eager")
	if err == nil && c.directory() {
		err = eager.WriteRows(c.Output, results, models)
	}
	return err
}
