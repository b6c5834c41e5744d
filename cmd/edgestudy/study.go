package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"multiedge/bench/kit"
	"multiedge/bench/machine"
	"multiedge/bench/report"
	"multiedge/bench/xlate"
	"multiedge/internal/lab"
)

// inLab runs a study between two hosts that are made for it, with a progress line.
func inLab[Spec, Result any](ctx context.Context, hosts kit.ClusterSpec, study kit.Study[Spec, Result],
	spec Spec) (*Result, error) {
	if err := lab.EnsurePrivileges(); err != nil {
		return nil, err
	}
	machine.This() // its card is of before the study
	cl, err := kit.NewCluster(ctx, hosts)
	if err != nil {
		return nil, err
	}
	progress := report.NewProgress(os.Stderr, 1)
	res, err := study.Run(ctx, cl, spec, progress.Update)
	progress.Clear()
	return res, errors.Join(err, cl.Close())
}

// resultFlags say where a study goes besides the screen.
type resultFlags struct {
	Output string `short:"o" help:"Directory for the result as JSON and as CSV, the figures and index.html; or a file in the form of its ending: .json, .csv or .html." placeholder:"DIR"`
}

// show prints the tables of a study, and what they say, and writes it where it is asked for.
func (f *resultFlags) show(s *xlate.Study, name string) error {
	if err := printTables(s); err != nil {
		return err
	}
	s.Print(os.Stdout)
	return f.write(s, name)
}

func printTables(s *xlate.Study) (err error) {
	for i := range s.Tables {
		err = errors.Join(err, s.Tables[i].Text(os.Stdout))
	}
	return err
}

func (f *resultFlags) write(s *xlate.Study, name string) error {
	if f.Output == "" {
		return nil
	}
	err := s.Write(f.Output, name)
	if err == nil && f.directory() {
		fmt.Fprintf(os.Stderr, "results, figures and index.html are in %s\n", f.Output)
	}
	return err
}

// directory reports whether the result went into one.
func (f *resultFlags) directory() bool {
	info, err := os.Stat(f.Output)
	return err == nil && info.IsDir()
}
