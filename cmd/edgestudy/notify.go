package main

import (
	"context"
	"errors"

	"multiedge/bench/cli"
	"multiedge/bench/notify"
)

// notifyCmd takes notifications apart.
type notifyCmd struct {
	Rounds int      `short:"n" default:"2000" help:"Notifications for each way to wait." placeholder:"N"`
	Size   int      `short:"s" default:"64" help:"Bytes of a write, up to 4096." placeholder:"BYTES"`
	Waits  []string `default:"block,adaptive" enum:"block,adaptive,busy" help:"How the receiving program waits: block, adaptive, busy." placeholder:"MODE,..."`
	resultFlags
	cli.TransportFlags
	cli.LabFlags `prefix:""`
}

func (c *notifyCmd) Run(ctx context.Context) error {
	switch {
	case c.Rounds < 10 || c.Rounds > 100000 || c.Size < 1 || c.Size > 4096:
		return errors.New("-n is 10 to 100000, -s 1 to 4096")
	case !c.Lab:
		return errors.New("notify compares the clocks of both hosts, which must be on this machine: add --lab")
	case c.Embedded:
		return errors.New("notify measures daemons: leave out --embedded")
	}
	res, err := inLab(ctx, c.Cluster(&c.TransportFlags, 1), notify.InLab,
		notify.Spec{Rounds: c.Rounds, Bytes: c.Size, Waits: c.Waits})
	if err != nil {
		return err
	}
	return c.show(res.Study(cli.Head()), "notify")
}
