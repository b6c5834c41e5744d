package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"

	"multiedge/bench/cli"
	"multiedge/bench/faults"
	"multiedge/bench/figure"
	"multiedge/bench/report"
	"multiedge/internal/lab"
)

// runCmd runs the fault scenarios.
type runCmd struct {
	Lab    bool   `help:"Build the hosts on this machine; these scenarios run in no other way."`
	Only   string `help:"Only scenarios whose name or group matches the regular expression." placeholder:"REGEXP"`
	Short  bool   `help:"The short form, which runs for every change: fewer scenarios, brief windows, figures of speed not judged."`
	List   bool   `help:"List the scenarios and when each passes, and exit."`
	Seed   uint64 `default:"1" help:"Seed of faults and contents: the same seed spoils the same frames."`
	Driver string `enum:"alone,udp," default:"" help:"udp: long frames travel as super-frames (GSO, GRO); alone: one by one (default: udp, but alone on links with rates)." placeholder:"NAME"`
	Format string `enum:"table,json,csv,markdown" default:"table" help:"Format on standard output: table, json, csv or markdown." placeholder:"FORMAT"`
	Output string `short:"o" help:"Directory for faults.json, faults.csv, faults.md and index.html, or a file in the form of its ending: .json, .csv, .md or .html." placeholder:"DIR"`
}

func (c *runCmd) Run(ctx context.Context) error {
	o := faults.Options{Short: c.Short, Seed: c.Seed, Driver: c.Driver}
	if c.Only != "" {
		re, err := regexp.Compile(c.Only)
		if err != nil {
			return fmt.Errorf("--only: %w", err)
		}
		o.Only = re
	}
	scenarios := faults.Select(o)
	switch {
	case c.List:
		for _, s := range scenarios {
			fmt.Printf("%-9s %-11s %-44s %s\n", s.Group, s.Forms(), s.Name, s.Criteria)
		}
		return nil
	case !c.Lab:
		return errors.New("faults are injected in a lab of hosts on this machine: add --lab")
	case len(scenarios) == 0:
		return fmt.Errorf("--only %q matches no scenario: edgefault --list names them", c.Only)
	}
	if err := lab.EnsurePrivileges(); err != nil {
		return err
	}
	f := faults.NewFile(cli.Head(), c.Short, c.Seed)
	progress := report.NewProgress(os.Stderr, len(scenarios))
	if c.Format == "table" {
		faults.TableHead(os.Stdout)
	}
	err := faults.Run(ctx, scenarios, o, func(_ int, s *faults.Scenario) { progress.Update(s.Name, 0) },
		func(r *faults.Row) error {
			progress.Clear()
			if r.Verdict != faults.Again {
				progress.Step()
			}
			f.Rows = append(f.Rows, *r)
			if c.Format == "table" {
				return faults.TableRow(os.Stdout, r)
			}
			return nil
		})
	progress.Clear()
	err = errors.Join(err, writeFaults(f, c.Format, c.Output, "faults", "MultiEdge under faults", nil))
	if failed := f.Failed(); len(failed) > 0 {
		err = errors.Join(err, fmt.Errorf("%d of %d scenarios failed:\n%s", len(failed), len(scenarios),
			strings.Join(failed, "\n")))
	}
	return err
}

// writeFaults writes results to standard output, unless that was a table, and where else it is asked for.
func writeFaults(f *faults.File, format, to, name, title string, figures []figure.Figure) error {
	forms := f.Forms(title, figures)
	var err error
	if put := forms[strings.Replace(format, "markdown", "md", 1)]; put != nil {
		err = put(os.Stdout)
	}
	if to == "" {
		return err
	}
	failed := forms.Save(to, name, figures)
	if failed == nil {
		fmt.Fprintf(os.Stderr, "results are in %s\n", to)
	}
	return errors.Join(err, failed)
}
