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

// showStudy prints the tables of a study, and what they say, and writes it into a directory, if one is named.
func showStudy(s *xlate.Study, dir, name string) error {
	if err := printTables(s); err != nil {
		return err
	}
	s.Print(os.Stdout)
	return writeStudy(s, dir, name)
}

func printTables(s *xlate.Study) (err error) {
	for i := range s.Tables {
		err = errors.Join(err, s.Tables[i].Text(os.Stdout))
	}
	return err
}

func writeStudy(s *xlate.Study, dir, name string) error {
	if dir == "" {
		return nil
	}
	if err := s.Write(dir, name); err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "results, figures and index.html are in %s\n", dir)
	return nil
}
