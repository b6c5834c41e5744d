package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"multiedge/bench"
	"multiedge/bench/figure"
	"multiedge/bench/report"
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
	d := bench.Demo(c.Security)
	files := []string{filepath.Join(c.Out, "demo.json"), filepath.Join(c.Out, "demo.html")}
	o, err := (&outputFlags{Format: silent, Output: files}).open("MultiEdge demonstration", d.Steps(), silent)
	if err != nil {
		return err
	}
	began, done := time.Now(), false
	defer func() {
		err = errors.Join(err, o.close())
		if err == nil && done {
			fmt.Fprintf(os.Stderr, "%.0f seconds\nfigures: %s\nresults: %s\n", time.Since(began).Seconds(), files[1],
				files[0])
		}
	}()
	lab0 := d.Spec().Lab
	fmt.Fprintf(os.Stderr, "two hosts on this machine, %d links of MTU %d, a daemon in each; frames are %s, every "+
		"byte is checked\n"+
		"beside it, in turns: edge in plaintext unchecked, TCP, raw packet sockets; about a minute\n", lab0.Links,
		lab0.MTU, c.Security)
	var failed error
	d.Row = func(r *report.Row) { failed = errors.Join(failed, o.row(r)) }
	d.Note = o.note
	d.Show = o.steps()
	err = errors.Join(d.Run(ctx, func(cl *bench.Cluster) {
		o.file.Lab = cl.Report()
		if lab.Unprivileged() {
			o.note("run as an ordinary user: hosts live in a user namespace, where the limit on pinned memory holds")
		}
	}), failed)
	done = err == nil
	o.progress.Clear()
	printBeside(os.Stdout, figure.Besides([]figure.Source{{File: o.file}}))
	return err
}
