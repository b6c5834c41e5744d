package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"multiedge/bench/cli"
	"multiedge/bench/faults"
	"multiedge/bench/report"
	"multiedge/internal/lab"
)

// soakCmd mixes faults for a long time.
type soakCmd struct {
	Lab      bool        `help:"Build the hosts on this machine; a soak runs in no other way."`
	Duration cli.Seconds `short:"D" default:"60" help:"Duration in seconds, or with a unit, such as 1h." placeholder:"SECONDS"`
	Seed     uint64      `default:"1" help:"Seed of faults and contents."`
	Spaces   bool        `help:"Put the memory of servers and clients into sparse spaces of 64 GiB, of which little may be pinned, so that nearly all operations miss."`
	Driver   string      `enum:"alone,udp," default:"" help:"udp: long frames travel as super-frames (GSO, GRO); alone: one by one (default: udp, but alone on links with rates)." placeholder:"NAME"`
	Format   string      `enum:"table,json,csv,markdown" default:"table" help:"Format on standard output: table, json, csv or markdown." placeholder:"FORMAT"`
	Output   string      `short:"o" help:"Directory for soak.json, soak.csv, soak.md, index.html and the figures, or a file in the form of its ending: .json, .csv, .md or .html." placeholder:"DIR"`
}

func (c *soakCmd) Run(ctx context.Context) error {
	if !c.Lab {
		return errors.New("a soak runs in a lab of hosts on this machine: add --lab")
	}
	if err := lab.EnsurePrivileges(); err != nil {
		return err
	}
	f := faults.NewFile(cli.Head(), false, c.Seed)
	d := time.Duration(c.Duration)
	progress := report.NewProgress(os.Stderr, 1)
	if c.Format == "table" {
		fmt.Printf("%8s %10s %10s %6s %6s %6s %6s %10s %10s %8s %7s  %s\n", "seconds", "host0 MiB", "host1 MiB", "fds0",
			"fds1", "gor0", "gor1", "p50", "p99", "Gbit/s", "stolen", "fault")
	}
	row, samples, ended := faults.Soak(ctx, faults.SoakOptions{Duration: d, Seed: c.Seed, Driver: c.Driver,
		Spaces: c.Spaces},
		func(s *faults.Sample) {
			progress.Clear()
			if c.Format == "table" {
				a, b := &s.Daemons[0], &s.Daemons[1]
				fmt.Printf("%8.1f %10.1f %10.1f %6d %6d %6d %6d %10s %10s %8.2f %6.1f%%  %s\n", s.Seconds,
					float64(a.Resident)/(1<<20), float64(b.Resident)/(1<<20),
					a.Descriptors, b.Descriptors, a.Goroutines, b.Goroutines, report.Nanos(s.P50), report.Nanos(s.P99),
					s.Goodput*8/1e9, 100*s.Stolen, s.Fault)
			}
			progress.Update("soak", s.Seconds/d.Seconds())
		})
	progress.Clear()
	if ended != nil && len(samples) == 0 {
		return ended
	}
	f.Rows, f.Samples = []faults.Row{*row}, samples // of what there was, if it was interrupted
	var err error
	if c.Format == "table" {
		err = errors.Join(faults.TableHead(os.Stdout), faults.TableRow(os.Stdout, row))
	}
	err = errors.Join(err, writeFaults(f, c.Format, c.Output, "soak", "MultiEdge under mixed faults",
		faults.SoakFigures(samples)))
	if failed := f.Failed(); ended == nil && len(failed) > 0 {
		err = errors.Join(err, fmt.Errorf("the soak failed: %s", failed[0]))
	}
	return errors.Join(ended, err)
}
