package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"

	"multiedge/bench/cli"
	"multiedge/bench/report"
	"multiedge/bench/splash"
	"multiedge/bench/xlate"
	"multiedge/bench/xlate/trace"
)

// studyFlags are common to the trace-driven studies.
type studyFlags struct {
	Only  string   `help:"Only tables and figures whose name matches the regular expression, such as table4, figure7, policies." placeholder:"REGEXP"`
	Apps  []string `help:"Only these kernels: fft, lu, barnes, radix, water-cells, ocean, water." placeholder:"NAME,..."`
	Scale float64  `default:"0.25" help:"Size of the problems: 1 is the papers', the default a quarter of their memory." placeholder:"N"`
	Trace string   `help:"Replay this trace, which edgectl trace --lookups wrote, instead of kernels; tables and trends of only the papers' programs are left out." placeholder:"FILE"`
	Seed  uint64   `default:"1" help:"Seed of patterns and of policies that are random; it changes no trace of a kernel."`
	resultFlags
}

// study is a function that carries a study out.
type study func(context.Context, report.Head, xlate.Options) (*xlate.Study, error)

// run carries a study out with progress, prints its trends and writes what is asked for.
func (f *studyFlags) run(ctx context.Context, name string, do study) error {
	o := xlate.Options{Apps: splash.Programs(), Scale: f.Scale, Seed: f.Seed}
	if len(f.Apps) > 0 {
		var err error
		if o.Apps, err = f.apps(o.Apps); err != nil {
			return err
		}
	}
	if f.Only != "" {
		re, err := regexp.Compile(f.Only)
		if err != nil {
			return fmt.Errorf("--only: %w", err)
		}
		o.Only = re
	}
	if f.Trace != "" {
		if len(f.Apps) > 0 || f.Scale != 0.25 {
			return errors.New("--trace replays what was recorded: leave out --apps and --scale")
		}
		if err := f.load(&o); err != nil {
			return err
		}
	}
	var progress *report.Progress
	first := true
	o.Begin = func(steps int) { progress = report.NewProgress(os.Stderr, steps) }
	o.Step = func(what string) {
		if !first {
			progress.Step()
		}
		first = false
		progress.Update(what, 0)
	}
	s, err := do(ctx, cli.Head(), o)
	progress.Clear()
	if err != nil {
		return err
	}
	if f.Trace == "" {
		s.Print(os.Stdout)
	} else if err := printTables(s); err != nil { // there are no trends
		return err
	}
	return f.write(s, name)
}

// apps returns the programs that are asked for.
func (f *studyFlags) apps(all []xlate.Program) (chosen []xlate.Program, err error) {
	for _, name := range f.Apps {
		i := slices.IndexFunc(all, func(p xlate.Program) bool { return p.Name == name })
		if i < 0 {
			return nil, fmt.Errorf("--apps: no kernel %q; edgestudy utlb --help names them", name)
		}
		chosen = append(chosen, all[i])
	}
	return chosen, nil
}

// load reads the trace.
func (f *studyFlags) load(o *xlate.Options) error {
	in, err := os.Open(f.Trace)
	if err != nil {
		return err
	}
	defer in.Close()
	if o.Trace, err = trace.Read(in); err != nil {
		return fmt.Errorf("%s: %w", f.Trace, err)
	}
	o.Name = filepath.Base(f.Trace)
	return nil
}

// utlbCmd repeats the trace-driven study of the UTLB.
type utlbCmd struct {
	studyFlags
}

func (c *utlbCmd) Run(ctx context.Context) error { return c.run(ctx, "utlb", xlate.StudyUTLB) }
