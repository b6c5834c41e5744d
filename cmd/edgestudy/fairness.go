package main

import (
	"context"
	"os"

	"multiedge/bench/cli"
	"multiedge/bench/fairness"
	"multiedge/bench/report"
)

// fairnessCmd simulates IP links beside TCP, and on long lines.
type fairnessCmd struct {
	Seed uint64 `default:"1" help:"The same seed gives the same figures."`
	resultFlags
}

func (c *fairnessCmd) Run(ctx context.Context) error {
	var progress *report.Progress
	s, err := fairness.Study(ctx, cli.Head(), c.Seed, func(steps int) { progress = report.NewSteps(os.Stderr, steps) },
		func(what string, share float64) { progress.Update(what, share) }, func() { progress.Step() })
	progress.Clear()
	if err != nil {
		return err
	}
	return c.show(s, "fairness")
}
