package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"multiedge/bench/cli"
	"multiedge/bench/kit"
	"multiedge/bench/report"
	"multiedge/bench/scale"
	"multiedge/edge"
)

// scaleCmd finds out what very many connections cost.
type scaleCmd struct {
	Peer    string `arg:"" optional:"" help:"Name of the host that runs \"edgestudy scale --serve\". Not needed with --lab."`
	Conns   int    `default:"10000" help:"Connections to hold open at once." placeholder:"N"`
	Cycles  int    `default:"1000000" help:"Connections to open and close after that." placeholder:"N"`
	Workers int    `default:"32" help:"Cycles that run at once." placeholder:"N"`
	Serve   bool   `help:"Be the server, for a client on another host."`
	Socket  string `help:"Control socket of the daemon (default: $$EDGE_SOCKET or /run/edged/edged.sock)." placeholder:"PATH"`
	JSON    string `help:"File to which the result is also written, as JSON." placeholder:"FILE"`
	resultFlags
	cli.TransportFlags
	cli.LabFlags `prefix:""`
}

func (c *scaleCmd) Run(ctx context.Context) error {
	switch {
	case c.Conns < 1 || c.Conns > 60000 || c.Cycles < 0 || c.Workers < 1 || c.Workers > 1024:
		return errors.New("--conns is 1 to 60000, --cycles not negative, --workers 1 to 1024")
	case c.Embedded:
		return errors.New("scale measures daemons: leave out --embedded")
	case c.Lab && (c.Serve || c.Peer != ""):
		return errors.New("--lab makes both hosts: leave out --serve and the peer")
	case !c.Lab && !c.Serve && c.Peer == "":
		return errors.New("name the host that runs \"edgestudy scale --serve\", or give --lab to run both ends on " +
			"this machine")
	}
	spec := scale.Spec{Peer: c.Peer, Conns: c.Conns, Cycles: c.Cycles, Workers: c.Workers}
	if c.Serve {
		return c.serve(ctx)
	}
	res, err := c.measure(ctx, spec)
	if err != nil {
		return err
	}
	if err := c.show(res.Study(cli.Head()), "scale"); err != nil {
		return err
	}
	if c.JSON != "" {
		text, err := json.MarshalIndent(res, "", "  ")
		if err == nil {
			err = os.WriteFile(c.JSON, append(text, '\n'), 0o644)
		}
		if err != nil {
			return err
		}
	}
	if left := res.Left(); len(left) > 0 {
		return fmt.Errorf("%d things were not given back", len(left))
	}
	return nil
}

func (c *scaleCmd) serve(ctx context.Context) error {
	d, err := edge.Open(ctx, edge.Config{Socket: c.Socket})
	if err != nil {
		return err
	}
	defer d.Close()
	err = kit.Try(func() {
		scale.Serve(ctx, d, func() { fmt.Fprintf(os.Stderr, "serving as %s\n", d.Name()) })
	})
	if ctx.Err() != nil {
		return nil
	}
	return err
}

func (c *scaleCmd) measure(ctx context.Context, spec scale.Spec) (*scale.Result, error) {
	if c.Lab {
		hosts := c.Cluster(&c.TransportFlags, 1)
		hosts.Limits = spec.Limits()
		return inLab(ctx, hosts, scale.InLab, spec)
	}
	d, err := edge.Open(ctx, edge.Config{Socket: c.Socket})
	if err != nil {
		return nil, err
	}
	defer d.Close()
	progress := report.NewProgress(os.Stderr, 1)
	defer progress.Clear()
	var res *scale.Result
	err = kit.Try(func() { res = scale.Run(ctx, d, spec, progress.Update) })
	return res, err
}
