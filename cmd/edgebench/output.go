package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"multiedge/bench/figure"
	"multiedge/bench/report"
)

// outputFlags choose where results go and what they look like.
type outputFlags struct {
	Format      string   `enum:"${formats}," default:"" help:"Format of the results on standard output: ${formats} (default: perftest; table where transports or schedulers are compared)." placeholder:"FORMAT"`
	Output      []string `short:"o" help:"Also write the results to a file, in the format its name ends in: .json, .jsonl, .csv, .html, else --format; or into a directory, named with a slash at its end: COMMAND.json, all figures and a page. Repeatable." placeholder:"FILE"`
	ReportGbits bool     `name:"report-gbits" help:"Report Gbit/s instead of MiB/s."`
	CPU         bool     `name:"cpu" help:"Show processor time of both ends."`
}

// output passes results on to all writers and keeps them.
type output struct {
	file     *report.File
	writer   report.Writer
	progress *report.Progress
	files    []*os.File
	pages    []string // HTML files to write at the end
	dirs     []string // directories that get all figures at the end
	title    string
	begun    bool
}

// open prepares the output of a command for a number of measurements. usual is its format unless another is asked for.
func (f *outputFlags) open(steps int, usual string) (*output, error) {
	if f.Format == "" {
		f.Format = usual
	}
	o := &output{title: "MultiEdge benchmark"}
	style := report.Style{Gbits: f.ReportGbits, CPU: f.CPU}
	screen, err := report.NewWriter(f.Format, os.Stdout, style)
	if err != nil {
		return nil, err
	}
	writers := []report.Writer{screen}
	style.Notes = true // on the screen they are shown as they come
	for _, name := range f.Output {
		w, err := o.add(name, f.Format, style)
		if err != nil {
			return nil, errors.Join(err, o.closeFiles())
		}
		if w != nil {
			writers = append(writers, w)
		}
	}
	o.writer = report.Tee(writers...)
	o.file = report.NewFile(report.Head{Created: time.Now().UTC().Truncate(time.Second), Command: command(), Machine: report.ThisMachine()})
	o.progress = report.NewProgress(os.Stderr, steps)
	return o, nil
}

// command is how this program was called, without the path to it.
func command() []string { return append([]string{"edgebench"}, os.Args[1:]...) }

// add opens a result file; nil for a page, which is written at the end.
func (o *output) add(name, format string, style report.Style) (report.Writer, error) {
	if info, err := os.Stat(name); strings.HasSuffix(name, "/") || err == nil && info.IsDir() {
		o.dirs = append(o.dirs, name)
		name = filepath.Join(name, os.Args[1]+".json")
	}
	ext := strings.TrimPrefix(filepath.Ext(name), ".")
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return nil, err
	}
	if ext == "html" {
		file, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE, 0o666) // an hour later is too late to learn that it cannot be written
		if err != nil {
			return nil, err
		}
		o.pages = append(o.pages, name)
		return nil, file.Close()
	}
	if slices.Contains(report.Formats, ext) {
		format = ext
	}
	file, err := os.Create(name)
	if err != nil {
		return nil, err
	}
	o.files = append(o.files, file)
	return report.NewWriter(format, file, style)
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
	o.file.Results = append(o.file.Results, *r)
	return o.writer.Row(r)
}

// begin writes the head, once. Notes were shown already, so people's formats need not repeat them.
func (o *output) begin() error {
	if o.begun {
		return nil
	}
	o.begun = true
	return o.writer.Head(o.file.Head)
}

// close ends all formats and writes the pages. It returns an error, too, when data arrived wrong.
func (o *output) close() error {
	o.progress.Clear()
	err := errors.Join(o.begin(), o.writer.Close(), o.closeFiles())
	for _, dir := range o.dirs {
		_, figErr := figure.WriteDir(dir, o.title, []figure.Source{{File: o.file}})
		if err = errors.Join(err, figErr); figErr == nil {
			fmt.Fprintf(os.Stderr, "results, figures and index.html are in %s\n", dir)
		}
	}
	for _, name := range o.pages {
		err = errors.Join(err, figure.WritePage(name, o.title, []figure.Source{{Name: filepath.Base(name), File: o.file}}))
	}
	bad, disturbed := uint64(0), 0
	for i := range o.file.Results {
		bad += o.file.Results[i].IntegrityErrors
		if o.file.Results[i].Disturbed() {
			disturbed++
		}
	}
	if disturbed > 0 {
		fmt.Fprintf(os.Stderr, "note: in %d of %d measurements other programs used more than a tenth of this machine; repeat them when it is quiet\n", disturbed, len(o.file.Results))
	}
	if bad > 0 {
		err = errors.Join(err, fmt.Errorf("%d integrity errors: data arrived wrong", bad))
	}
	return err
}

func (o *output) closeFiles() error {
	var err error
	for _, f := range o.files {
		err = errors.Join(err, f.Close())
	}
	return err
}

// show updates the progress line.
func (o *output) show(what string, share, throughput float64) {
	if throughput > 0 {
		what += "  " + report.Gbit(throughput)
	}
	o.progress.Update(what, share)
}
