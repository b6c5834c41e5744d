package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"multiedge/bench"
	"multiedge/internal/lab"
)

// demoCmd is what "make demo" runs.
type demoCmd struct {
	Security string `enum:"encrypted,plaintext" default:"encrypted" help:"encrypted or plaintext (default: ${default})." placeholder:"WHAT"`
	Out      string `short:"o" default:"out" help:"Directory for demo.json and demo.html." placeholder:"DIR"`
}

func (c *demoCmd) Run(ctx context.Context) (err error) {
	if err := lab.EnsurePrivileges(); err != nil {
		return err
	}
	spec, plans := bench.Demo()
	spec.Security = c.Security
	specs, region, err := bench.Concat(plans...)
	if err != nil {
		return err
	}
	files := []string{filepath.Join(c.Out, "demo.json"), filepath.Join(c.Out, "demo.html")}
	o, err := (&outputFlags{Format: "perftest", Output: files, ReportGbits: true, CPU: true}).open(len(specs), "perftest")
	if err != nil {
		return err
	}
	o.title = "MultiEdge demonstration"
	done := false
	defer func() {
		err = errors.Join(err, o.close())
		if err == nil && done {
			fmt.Fprintf(os.Stderr, "figures: %s\nresults: %s\n", files[1], files[0])
		}
	}()
	fmt.Fprintf(os.Stderr, "two hosts on this machine, %d links of MTU %d, a daemon in each; frames are %s, every byte is checked\n", spec.Lab.Links, spec.Lab.MTU, spec.Security)
	cl, err := bench.NewCluster(ctx, spec)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, cl.Close()) }()
	o.file.Lab = cl.Report()
	if lab.Unprivileged() {
		o.note("run as an ordinary user: hosts live in a user namespace, where the limit on pinned memory holds")
	}
	err = runSession(ctx, cl, bench.Session{Specs: specs, Region: region, Fit: true, Profile: true}, o)
	done = err == nil
	return err
}
