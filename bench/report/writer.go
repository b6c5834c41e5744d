package report

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// Writer renders results as they arrive: Head once, then rows, then Close, which ends the document but not the
// underlying writer.
type Writer interface {
	Head(h Head) error
	Row(r *Row) error
	Close() error
}

// plain is a Writer without head and end.
type plain struct{}

func (plain) Head(Head) error { return nil }
func (plain) Close() error    { return nil }

// Style adjusts the formats meant for people.
type Style struct {
	Gbits bool // report Gbit/s instead of MiB/s (perftest's --report-gbits)
	CPU   bool // add processor columns
	Notes bool // begin with the notes of the head; off where they are shown otherwise
}

// head writes what people shall know of where results come from.
func (s Style) head(w io.Writer, h *Head, machine, note string) error {
	var b strings.Builder
	if c := h.Machine.Card; c != nil {
		fmt.Fprintf(&b, "%s%s\n", machine, c)
	}
	for _, n := range h.Notes {
		if s.Notes {
			fmt.Fprintf(&b, "%s%s\n", note, n)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// Formats are the names NewWriter accepts.
var Formats = []string{"perftest", "table", "csv", "json", "jsonl"}

// NewWriter returns the writer of a format.
func NewWriter(format string, w io.Writer, s Style) (Writer, error) {
	switch format {
	case "perftest":
		return &perftest{w: w, style: s}, nil
	case "table":
		return &table{w: w, style: s}, nil
	case "csv":
		return &csvWriter{w: w}, nil
	case "json":
		return &jsonWriter{w: w}, nil
	case "jsonl":
		return &jsonlWriter{w: w}, nil
	}
	return nil, fmt.Errorf("format %q: want one of %s", format, strings.Join(Formats, ", "))
}

// IsLatencyTest reports whether a test's main result is a latency and not a throughput.
func IsLatencyTest(test string) bool { return test == PingPong || test == SendLatency }

// Tee returns a writer that passes everything to each of ws.
func Tee(ws ...Writer) Writer { return tee(slices.Clone(ws)) }

type tee []Writer

func (t tee) each(f func(Writer) error) error {
	var first error
	for _, w := range t {
		if err := f(w); err != nil && first == nil {
			first = err
		}
	}
	return first
}

func (t tee) Head(h Head) error { return t.each(func(w Writer) error { return w.Head(h) }) }
func (t tee) Row(r *Row) error  { return t.each(func(w Writer) error { return w.Row(r) }) }
func (t tee) Close() error      { return t.each(Writer.Close) }
