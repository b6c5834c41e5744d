package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"multiedge/bench/figure"
	"multiedge/bench/machine"
	"multiedge/bench/report"
)

// figuresCmd draws the figures of the five papers that can be drawn, and others of this project's: the MultiEdge
// paper's itself, the other papers' by the commands of edgestudy.
type figuresCmd struct {
	Out      string   `short:"o" default:"out/figures" help:"Directory for the figures, the page index.html, and the results of each measurement, in results/ (default: ${default})." placeholder:"DIR"`
	From     string   `help:"Measure nothing: draw the result files in this directory and below it." type:"existingdir" placeholder:"DIR"`
	Duration seconds  `short:"D" default:"0.25" help:"Seconds for each point (default: ${default})." placeholder:"SECONDS"`
	Rounds   count    `default:"3" help:"Measurements of each point (default: ${default})." placeholder:"N"`
	Only     []string `help:"Only these figures, or sets of figures, as --list names them." placeholder:"NAME"`
	List     bool     `help:"List the figures, each with its paper's figure and the command that measures it; measure nothing."`
	Lab      bool     `default:"true" help:"Build the hosts on this machine; figures are measured in no other way."`
}

// figureSet is what is measured together, for some figures.
type figureSet struct {
	name  string
	draws []string          // IDs of figures, or how they begin
	runs  func() [][]string // command lines; what they have in common is added
	turns bool              // the commands have no rounds of their own: all are run so often, in turns
	bare  bool              // takes neither time nor rounds
	study bool              // the command is edgestudy's; its pages lie in a directory of the set's name
}

// figureSets are all of them. Each command is the one a person would type.
func figureSets() []figureSet {
	const sizes = "64,1k,4k,16k,64k,256k,1m"
	one := func(line string) func() [][]string {
		return func() [][]string { return [][]string{strings.Fields(line)} }
	}
	return []figureSet{
		{name: "demo", draws: []string{"beside-"}, runs: one("demo"), bare: true},
		{name: "base", draws: []string{"throughput", "latency", "percentiles", "cpu", "papers"}, turns: true,
			runs: func() (lines [][]string) {
				for _, links := range []string{"1", "2"} {
					for _, test := range []string{report.OneWay, report.TwoWay, report.PingPong, report.Read} {
						lines = append(lines, []string{test, "--lab", "--lab-links", links, "--cpu", "-s", sizes})
					}
				}
				return lines
			}},
		{name: "rate", draws: []string{"rate"}, turns: true, runs: one("rate --lab -s 8,64,512")},
		{name: "polling", draws: []string{"polling", "polling-cpu", "papers"}, runs: one("polling --lab")},
		{name: "schedulers", draws: []string{"schedulers", "papers"}, runs: one("schedulers --lab -s 4k,64k,1m")},
		{name: "links", draws: []string{"links", "papers"}, runs: one("links --lab")},
		{name: "connections", draws: []string{"connections"}, turns: true, runs: func() [][]string {
			return [][]string{strings.Fields("one-way --lab --conns 1,10,100,1000"),
				strings.Fields("rate --lab --conns 1,10,100,1000")}
		}},
		{name: "shards", draws: []string{"shards", "shards-cpu"}, runs: one("shards --lab")},
		{name: "zero-copy", draws: []string{"zero-copy", "zero-copy-cpu", "zero-copy-latency", "alignment", "exchange",
			"papers"},
			runs: one("zero-copy --lab --cpu")},
		{name: "compare", draws: []string{"compare-"}, runs: func() (lines [][]string) {
			for _, test := range []string{report.OneWay, report.TwoWay, report.PingPong, report.Read} {
				lines = append(lines, []string{"compare", test, "--lab"})
			}
			return lines
		}},
		{name: "utlb", study: true, runs: one("utlb")},
		{name: "dhl", study: true, runs: one("dhl")},
		{name: "notify", study: true, runs: one("notify --lab")},
		{name: "eager", study: true, runs: one("eager --lab")},
		{name: "ondemand", study: true, runs: one("ondemand --lab --quick")},
	}
}

func (c *figuresCmd) Run(ctx context.Context) error {
	sets, err := c.chosen()
	switch {
	case err != nil:
		return err
	case c.From != "" && len(c.Only) > 0:
		return errors.New("--only chooses what is measured, --from measures nothing: leave one of them out")
	}
	if c.List {
		printExhibits(os.Stdout)
		printCatalogue(os.Stdout, figure.Catalogue(), false)
		return nil
	}
	from := c.From
	var failed error
	if from == "" {
		from = filepath.Join(c.Out, "results")
		if failed = c.measure(ctx, sets, from); ctx.Err() != nil {
			return ctx.Err()
		}
	}
	sources, err := c.sources(from)
	if err != nil {
		return errors.Join(failed, err)
	}
	studies, err := studiesIn(c.Out)
	if err != nil {
		return errors.Join(failed, err)
	}
	names, err := figure.WriteIndex(c.Out, "MultiEdge: all figures", sources, studyNames(studies))
	if err != nil {
		return errors.Join(failed, err)
	}
	printCatalogue(os.Stdout, figure.Found(sources), true)
	figure.PrintClaims(os.Stdout, figure.Claims(sources))
	for _, s := range studies {
		fmt.Println(s)
	}
	fmt.Fprintf(os.Stderr, "%d files; open %s\n", len(names), filepath.Join(c.Out, "index.html"))
	return failed
}

// chosen returns the sets that --only asks for; all of them without it.
func (c *figuresCmd) chosen() (sets []figureSet, err error) {
	all := figureSets()
	if len(c.Only) == 0 {
		return all, nil
	}
	var names []string
	for _, want := range c.Only {
		found := false
		for _, s := range all {
			if s.name == want || slices.ContainsFunc(s.draws, func(id string) bool {
				return id == want ||
					strings.HasSuffix(id, "-") && strings.HasPrefix(want, id)
			}) {
				found = true
				if !slices.ContainsFunc(sets, func(o figureSet) bool { return o.name == s.name }) {
					sets = append(sets, s)
				}
			}
		}
		if !found {
			for _, s := range all {
				names = append(names, s.name)
			}
			return nil, fmt.Errorf("--only %q: want a set (%s) or a figure that edgebench figures --list names", want,
				strings.Join(names, ", "))
		}
	}
	return sets, nil
}

// measure runs the commands of sets, each as a person would. One that fails does not keep the others from being drawn.
func (c *figuresCmd) measure(ctx context.Context, sets []figureSet, dir string) (failed error) {
	machine.This() // the commands that are run have its card from here
	self, err := os.Executable()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	var runs []figureRun
	for _, s := range sets {
		more, err := c.runsOf(s, dir, len(runs))
		if err != nil {
			return err
		}
		runs = append(runs, more...)
	}
	p := report.NewProgress(os.Stderr, len(runs))
	defer p.Clear()
	for i, r := range runs {
		line := r.program + " " + strings.Join(r.args, " ")
		if p == nil {
			fmt.Fprintf(os.Stderr, "[%d/%d] %s\n", i+1, len(runs), line)
		}
		p.Update(line, 0)
		if err := r.run(ctx, self); err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			failed = errors.Join(failed, fmt.Errorf("%s: %w", line, err))
		}
		p.Step()
	}
	return failed
}

// figureRun is one command line that measures.
type figureRun struct {
	program string // edgebench or edgestudy
	args    []string
	file    string // that the results go to; empty: the command line says it
}

// runsOf are the command lines of a set. The results of an earlier run, which would be drawn as well, are removed. from
// numbers the files.
func (c *figuresCmd) runsOf(s figureSet, dir string, from int) (runs []figureRun, err error) {
	if s.study {
		args := append(s.runs()[0], "-o", filepath.Join(c.Out, s.name)+"/")
		return []figureRun{{program: "edgestudy", args: args}}, nil
	}
	old, _ := filepath.Glob(filepath.Join(dir, s.name+".*.json"))
	for _, name := range old {
		if err := os.Remove(name); err != nil {
			return nil, err
		}
	}
	times := 1
	if s.turns {
		times = int(c.Rounds)
	}
	for range times {
		for _, line := range s.runs() {
			r := figureRun{"edgebench", line, filepath.Join(dir, fmt.Sprintf("%s.%d.json", s.name, from+len(runs)))}
			if !s.bare {
				r.args = append(r.args, "-D", fmt.Sprint(time.Duration(c.Duration)), "-o", r.file)
				if !s.turns {
					r.args = append(r.args, "--rounds", fmt.Sprint(c.Rounds))
				}
			}
			runs = append(runs, r)
		}
	}
	return runs, nil
}

// run runs it; edgestudy lies beside this program, or where commands are found.
func (r figureRun) run(ctx context.Context, self string) error {
	if r.program == "edgestudy" {
		path := filepath.Join(filepath.Dir(self), r.program)
		if _, err := os.Stat(path); err != nil {
			if path, err = exec.LookPath(r.program); err != nil {
				return fmt.Errorf("%w: it draws this paper's figures; put it beside edgebench", err)
			}
		}
		return runQuiet(ctx, path, r.args)
	}
	return runSelf(ctx, self, r.args, r.file)
}

// runSelf runs a command of this program that leaves its results in file.
func runSelf(ctx context.Context, self string, args []string, file string) error {
	if args[0] != "demo" {
		return runQuiet(ctx, self, args)
	}
	dir, err := os.MkdirTemp(filepath.Dir(file), "demo") // it writes two files of its own names
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := runQuiet(ctx, self, append(slices.Clone(args), "-o", dir)); err != nil {
		return err
	}
	return os.Rename(filepath.Join(dir, "demo.json"), file)
}

// runQuiet runs a command; what it says is shown if it fails.
func runQuiet(ctx context.Context, self string, args []string) error {
	cmd := exec.CommandContext(ctx, self, args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGINT) } // it removes its hosts
	var said bytes.Buffer
	cmd.Stderr = &said
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%w\n%s", err, strings.TrimSpace(said.String()))
	}
	return nil
}

// sources reads all result files of a directory. A set's files are one source, so that its configurations have no other
// names. What is no result file is passed over.
func (c *figuresCmd) sources(dir string) (list []figure.Source, err error) {
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		ext := filepath.Ext(path)
		if err != nil || d.IsDir() || ext != ".json" && ext != ".jsonl" {
			return err
		}
		f, err := report.ReadFile(path)
		if errors.Is(err, report.ErrFormat) {
			fmt.Fprintf(os.Stderr, "note: %s holds no results and is passed over\n", path)
			return nil
		}
		if err != nil {
			return err
		}
		name, _, _ := strings.Cut(filepath.Base(path), ".")
		list = append(list, figure.Source{Name: name, File: f})
		return nil
	})
	if err == nil && len(list) == 0 {
		err = fmt.Errorf("%s holds no result files: measure without --from, or keep results by -o DIR/NAME.json", dir)
	}
	return list, err
}

// printExhibits lists every figure and table of the papers, and what draws it.
func printExhibits(w io.Writer) {
	for _, e := range figure.Exhibits() {
		by := strings.Join(e.Figures, ", ")
		if e.Study != "" {
			by = strings.TrimPrefix(by+", edgestudy "+e.Study, ", ")
		}
		if e.Why != "" {
			by = "not drawn: " + e.Why
		}
		fmt.Fprintf(w, "%-21s %-58s %s\n", e.Paper+" "+e.Name, e.What, by)
		if e.Differs != "" {
			fmt.Fprintf(w, "%80s (%s)\n", "", e.Differs)
		}
	}
	fmt.Fprintln(w)
}

// printCatalogue lists figures; with found, whether each was drawn.
func printCatalogue(w io.Writer, list []figure.Drawn, found bool) {
	fmt.Fprintf(w, "%-20s %-40s %s\n", "figure", "of the paper", "what it shows")
	for _, d := range list {
		state := ""
		if found && !d.Here {
			state = " (no results)"
		}
		fmt.Fprintf(w, "%-20s %-40s %s%s\n", d.ID, cmp.Or(d.Paper, "-"), d.What, state)
		if !found {
			fmt.Fprintf(w, "%-61s %s\n", "", d.Command)
		}
	}
	if !found {
		var names []string
		for _, s := range figureSets() {
			names = append(names, strings.TrimSuffix(s.name+" ("+strings.Join(s.draws, ", ")+")", " ()"))
		}
		fmt.Fprintf(w, "\nsets for --only: %s\n", strings.Join(names, "; "))
	}
}
