package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"multiedge/bench"
	"multiedge/bench/cli"
	"multiedge/bench/figure"
	"multiedge/bench/report"
	"multiedge/internal/lab"
)

// outputFlags choose where results go and what they look like.
type outputFlags struct {
	Format      string   `enum:"${formats}," default:"" help:"Format of the results on standard output: ${formats} (default: perftest; table where transports or schedulers are compared)." placeholder:"FORMAT"`
	Output      []string `short:"o" help:"Also write the results to a file, in the format of its ending (.json, .jsonl, .csv, .html, otherwise --format), or into a directory, named with a slash at the end: COMMAND.json, COMMAND.csv, all figures and a page. Repeatable." placeholder:"FILE"`
	ReportGbits bool     `name:"report-gbits" help:"Report Gbit/s instead of MiB/s."`
	CPU         bool     `name:"cpu" help:"Show processor time of both ends."`
}

// silent is the format of commands that print what they found themselves, at the end.
const silent = "silent"

// output passes results on to all writers and keeps them.
type output struct {
	file     *report.File
	screen   report.Writer
	writer   report.Writer // of the screen and all files
	progress *report.Progress
	files    []*os.File
	created  []string // of files and pages, those that were not there before
	pages    []string // HTML files to write at the end
	dirs     []string // directories that get all figures at the end
	title    string
	format   string
	begun    bool
	warned   bool
}

// open prepares the output of a command for a number of measurements. The title is that of pages; usual is the format
// unless another is asked for.
func (f *outputFlags) open(title string, steps int, usual string) (*output, error) {
	if f.Format == "" {
		f.Format = usual
	}
	o := &output{title: title, format: f.Format}
	style := report.Style{Gbits: f.ReportGbits, CPU: f.CPU}
	var err error
	screen := report.Tee() // writes nothing
	if f.Format != silent {
		if screen, err = report.NewWriter(f.Format, os.Stdout, style); err != nil {
			return nil, err
		}
	}
	writers := []report.Writer{screen}
	style.Notes = true // on the screen they are shown as they come
	for _, name := range f.Output {
		w, err := o.add(name, f.Format, style)
		if err != nil {
			return nil, errors.Join(err, o.discard())
		}
		if w != nil {
			writers = append(writers, w)
		}
	}
	o.screen, o.writer = screen, report.Tee(writers...)
	o.file = report.NewFile(cli.Head())
	o.progress = report.NewProgress(os.Stderr, steps)
	return o, nil
}

// measure opens the output for do, and ends it.
func (f *outputFlags) measure(title string, steps int, usual string, do func(*output) error) error {
	o, err := f.open(title, steps, usual)
	if err != nil {
		return err
	}
	return errors.Join(do(o), o.close())
}

// inLab is measure for what builds hosts on this machine.
func (f *outputFlags) inLab(title string, steps int, usual string, do func(*output) error) error {
	if err := lab.EnsurePrivileges(); err != nil {
		return err
	}
	return f.measure(title, steps, usual, do)
}

// summary prints at the end what people shall see below the rows.
func (o *output) summary(text func()) {
	o.progress.Clear()
	if o.format == "table" || o.format == "perftest" {
		text()
	}
}

// add opens a result file; nil for a page, which is written at the end.
func (o *output) add(name, format string, style report.Style) (report.Writer, error) {
	if info, err := os.Stat(name); strings.HasSuffix(name, "/") || err == nil && info.IsDir() {
		o.dirs = append(o.dirs, name)
		asJSON, err := o.add(filepath.Join(name, os.Args[1]+".json"), format, style)
		if err != nil {
			return nil, err
		}
		asCSV, err := o.add(filepath.Join(name, os.Args[1]+".csv"), format, style)
		return report.Tee(asJSON, asCSV), err
	}
	ext := strings.TrimPrefix(filepath.Ext(name), ".")
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return nil, err
	}
	file, err := o.create(name) // an hour later is too late to learn that it cannot be written
	if err != nil {
		return nil, err
	}
	if ext == "html" {
		o.pages = append(o.pages, name)
		return nil, file.Close()
	}
	if slices.Contains(report.Formats, ext) {
		format = ext
	}
	o.files = append(o.files, file)
	return report.NewWriter(format, file, style)
}

// create opens a file to be written. What it holds stays until there are results.
func (o *output) create(name string) (*os.File, error) {
	file, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if errors.Is(err, fs.ErrExist) {
		return os.OpenFile(name, os.O_WRONLY, 0)
	}
	if err == nil {
		o.created = append(o.created, name)
	}
	return file, err
}

// discard leaves all files as they were before.
func (o *output) discard() error {
	err := o.closeFiles()
	for _, name := range o.created {
		err = errors.Join(err, os.Remove(name))
	}
	return err
}

// note tells a person something: in the head of the results while there are none yet, and on standard error.
func (o *output) note(text string) {
	if slices.Contains(o.file.Notes, text) {
		return
	}
	o.file.Notes = append(o.file.Notes, text)
	o.progress.Clear()
	fmt.Fprintf(os.Stderr, "note: %s\n", text)
}

// row takes a result.
func (o *output) row(r *report.Row) error {
	o.progress.Clear()
	if err := o.begin(); err != nil {
		return err
	}
	r.Judge()
	o.file.Results = append(o.file.Results, *r)
	return o.writer.Row(r)
}

// begin writes the head, once. Notes were shown already, so people's formats need not repeat them.
func (o *output) begin() error {
	if o.begun {
		return nil
	}
	o.begun = true
	for _, f := range o.files {
		if info, err := f.Stat(); err == nil && info.Mode().IsRegular() {
			if err := f.Truncate(0); err != nil {
				return err
			}
		}
	}
	return o.writer.Head(o.file.Head)
}

// close ends all formats and writes the pages; without results it leaves files and pages alone. It returns an error,
// too, when data arrived wrong.
func (o *output) close() error {
	o.progress.Clear()
	if !o.begun {
		return errors.Join(o.screen.Head(o.file.Head), o.screen.Close(), o.discard())
	}
	err := errors.Join(o.writer.Close(), o.closeFiles())
	for _, dir := range o.dirs {
		_, figErr := figure.WriteDir(dir, o.title, []figure.Source{{File: o.file}})
		if err = errors.Join(err, figErr); figErr == nil {
			fmt.Fprintf(os.Stderr, "results, figures and index.html are in %s\n", dir)
		}
	}
	for _, name := range o.pages {
		err = errors.Join(err, figure.WritePage(name, o.title,
			[]figure.Source{{Name: filepath.Base(name), File: o.file}}))
	}
	bad := uint64(0)
	for i := range o.file.Results {
		bad += o.file.Results[i].IntegrityErrors
	}
	o.warn(os.Stderr)
	if bad > 0 {
		err = errors.Join(err, fmt.Errorf("%d integrity errors: data arrived wrong", bad))
	}
	return err
}

// warn says what disturbed the results, once.
func (o *output) warn(w io.Writer) {
	if o.warned {
		return
	}
	o.warned = true
	for _, text := range o.file.Disturbances() {
		fmt.Fprintln(w, "warning:", text)
	}
}

func (o *output) closeFiles() error {
	var err error
	for _, f := range o.files {
		err = errors.Join(err, f.Close())
	}
	return err
}

// labOf describes the hosts of runs that make several clusters.
func labOf(c *bench.ClusterSpec) *report.Lab {
	s := &c.Lab
	return &report.Lab{Hosts: s.Hosts, Links: s.Links, MTU: s.MTU, Rates: s.Rates, Loss: s.Loss,
		Unprivileged: lab.Unprivileged()}
}

// steps shows steps by their numbers, each when it begins.
func (o *output) steps() func(n int, what string) {
	step := 0
	return func(n int, what string) {
		for ; step < n; step++ {
			o.progress.Step()
		}
		o.show(what, 0, 0)
	}
}

// show updates the progress line.
func (o *output) show(what string, share, throughput float64) {
	if throughput > 0 {
		what += "  " + report.Gbit(throughput)
	}
	o.progress.Update(what, share)
}
