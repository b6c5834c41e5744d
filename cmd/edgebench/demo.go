package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
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

// lookAround is how long the demonstration watches what else the machine does before it begins.
const lookAround = 300 * time.Millisecond

func (c *demoCmd) Run(ctx context.Context) (err error) {
	if err := lab.EnsurePrivileges(); err != nil {
		return err
	}
	busy := report.Busy(report.BusyNow(lookAround))
	d := bench.Demo(c.Security, busy != "")
	files := []string{filepath.Join(c.Out, "demo.json"), filepath.Join(c.Out, "demo.html")}
	o, err := (&outputFlags{Format: silent, Output: files}).open("MultiEdge demonstration", d.Steps(), silent)
	if err != nil {
		return err
	}
	o.progress = report.NewSteps(os.Stderr, d.Steps())
	o.progress.Limit = d.Budget
	began, done := time.Now(), false
	defer func() {
		err = errors.Join(err, o.close())
		if err == nil && done {
			fmt.Fprintf(os.Stderr, "%.0f seconds\nfigures: %s\nresults: %s\n", time.Since(began).Seconds(), files[1],
				files[0])
		}
	}()
	if busy != "" {
		o.note(busy + "; fewer sizes are measured, for a shorter time")
	}
	fmt.Fprintf(os.Stderr, "two hosts on this machine, %d links of MTU %d, a daemon in each; frames are %s, every "+
		"byte is checked\n"+
		"beside it, in turns: edge in plaintext unchecked, TCP (cubic, one link), raw packet sockets; at most %s and "+
		"what was begun then\n", d.Spec().Lab.Links, d.Spec().Lab.MTU, c.Security, d.Budget)
	var failed error
	d.Row = func(r *report.Row) { failed = errors.Join(failed, o.row(r)) }
	d.Note = o.note
	d.Show = o.steps()
	d.Total = o.progress.SetTotal
	err = errors.Join(d.Run(ctx, func(cl *bench.Cluster) {
		o.file.Lab = cl.Report()
		if lab.Unprivileged() {
			o.note("run as an ordinary user: hosts live in a user namespace, where the limit on pinned memory holds")
		}
	}), failed)
	done = err == nil
	o.progress.Clear()
	o.warn(os.Stdout)
	printDemo(os.Stdout, figure.Besides([]figure.Source{{File: o.file}}))
	return err
}

// printDemo prints headlines, tables, and how to read them.
func printDemo(w io.Writer, tables []figure.Beside) {
	for _, h := range figure.Headlines(tables) {
		unit, form := "Gbit/s", func(v float64) float64 { return v * 8 / 1e9 }
		if report.IsLatencyTest(h.Test) {
			unit, form = "us", func(v float64) float64 { return v / 1e3 }
		}
		fmt.Fprintf(w, "%-10s %6s: %s %.3f %s, %s %.3f: %s\n", h.Test, report.Bytes(h.Size), h.Edge, form(h.Ours), unit,
			h.TCP, form(h.TCPs), h.Verdict())
	}
	printBeside(w, tables)
	if len(tables) > 0 {
		fmt.Fprint(w, strings.TrimLeft(rawExplained, "\n"))
	}
}

const rawExplained = `
raw is the limit for one thread at either end that sends a frame for each message. edge may pass it: it packs small
writes that wait into one frame, and on Intel it prefetches large payloads for the kernel's copy; raw does neither.
`
