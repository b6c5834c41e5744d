package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"multiedge/bench/machine"
	"multiedge/bench/report"
)

// machineCmd prints what elementary operations cost on this machine.
type machineCmd struct {
	Format string   `enum:"table,json" default:"table" help:"Format on standard output: ${enum} (default: ${default})." placeholder:"FORMAT"`
	Output []string `short:"o" help:"Also write it to a file, as JSON if its name ends in .json. Repeatable." placeholder:"FILE"`
}

func (c *machineCmd) Run() error {
	m := machine.This()
	if err := writeMachine(os.Stdout, &m, c.Format == "json"); err != nil {
		return err
	}
	for _, name := range c.Output {
		f, err := os.Create(name)
		if err != nil {
			return err
		}
		err = writeMachine(f, &m, strings.HasSuffix(name, ".json"))
		if err = errors.Join(err, f.Close()); err != nil {
			return err
		}
	}
	return nil
}

// writeMachine writes a machine as JSON or as a table.
func writeMachine(w io.Writer, m *report.Machine, asJSON bool) error {
	if asJSON {
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		return enc.Encode(m)
	}
	_, err := fmt.Fprintf(w, "%s: %d x %s, %s, %s\n", m.Hostname, m.CPUs, m.CPUModel, m.Kernel, m.Go)
	for _, l := range m.Card.Lines() {
		if err == nil {
			_, err = fmt.Fprintf(w, "  %-22s %10s   %s\n", l.What, l.Value, l.How)
		}
	}
	return err
}
