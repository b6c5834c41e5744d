package main

import (
	"context"
	"fmt"
	"os"

	"multiedge/bench"
)

// serverCmd serves benchmark clients until it is interrupted.
type serverCmd struct {
	transportFlags
	localFlags `prefix:""`
	Region     region `default:"256m" help:"Largest memory to register for each direction of a client."`
	Depth      count  `short:"t" default:"1024" help:"Maximum of operations in flight that clients may request from this end."`
}

func (c *serverCmd) Run(ctx context.Context) error {
	t, err := c.localFlags.transport(&c.transportFlags, int(c.Depth))
	if err != nil {
		return err
	}
	return bench.Work(ctx, &bench.Job{Server: true, Transport: t, Region: int(c.Region)}, func(e bench.Event) {
		switch {
		case e.Started:
			fmt.Fprintln(os.Stderr, "waiting for clients; end with Ctrl-C")
		case e.Note != "":
			fmt.Fprintln(os.Stderr, e.Note)
		}
	})
}
