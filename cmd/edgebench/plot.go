package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"multiedge/bench/figure"
	"multiedge/bench/report"
)

// plotCmd draws result files.
type plotCmd struct {
	Files []string `arg:"" type:"existingfile" help:"Result files, as written with --format json or jsonl, or -o FILE.json."`
	Out   string   `short:"o" default:"out" help:"Directory for the figures and the page, or an .html file for only the page." placeholder:"DIR"`
	Title string   `default:"MultiEdge benchmark" help:"Title of the page."`
}

func (c *plotCmd) Run() error {
	var sources []figure.Source
	for _, name := range c.Files {
		f, err := report.ReadFile(name)
		if err != nil {
			return err
		}
		base := filepath.Base(name)
		sources = append(sources, figure.Source{Name: strings.TrimSuffix(base, filepath.Ext(base)), File: f})
	}
	if strings.HasSuffix(c.Out, ".html") {
		return figure.WritePage(c.Out, c.Title, sources)
	}
	names, err := figure.WriteDir(c.Out, c.Title, sources)
	for _, n := range names {
		fmt.Fprintln(os.Stdout, n)
	}
	return err
}
