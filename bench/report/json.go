package report

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
)

// jsonWriter collects rows and writes one File when closed.
type jsonWriter struct {
	w io.Writer
	f File
}

func (j *jsonWriter) Head(h Head) error {
	j.f = *NewFile(h)
	return nil
}

func (j *jsonWriter) Row(r *Row) error {
	j.f.Results = append(j.f.Results, *r)
	return nil
}

func (j *jsonWriter) Close() error {
	j.f.Format, j.f.Version = Format, Version
	if j.f.Results == nil {
		j.f.Results = []Row{} // an empty list, not null
	}
	j.f.Busy = j.f.Disturbances()
	return Indented(j.w, &j.f)
}

// Indented writes v as JSON for people to read.
func Indented(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// jsonlWriter writes one line for each row.
type jsonlWriter struct {
	plain
	w io.Writer
}

// line is one line of the JSON lines format: the head or a row.
type line struct {
	Format  string `json:"format"`
	Version int    `json:"version"`
	Head    *Head  `json:"head,omitempty"`
	*Row
}

func (j *jsonlWriter) Head(h Head) error {
	return json.NewEncoder(j.w).Encode(line{Format: Format, Version: Version, Head: &h})
}

func (j *jsonlWriter) Row(r *Row) error {
	return json.NewEncoder(j.w).Encode(line{Format: Format, Version: Version, Row: r})
}

// ReadFile reads a result file in either JSON format.
func ReadFile(name string) (*File, error) {
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	f, err := Parse(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return f, nil
}

// ErrFormat is returned for a file that holds no results of a version this program knows.
var ErrFormat = errors.New("not an edgebench result file of a known version")

// Parse reads results in either JSON format: a File, or JSON lines.
func Parse(data []byte) (*File, error) {
	var f File
	if err := json.Unmarshal(data, &f); err == nil && f.Results != nil {
		return &f, known(f.Format, f.Version)
	}
	return parseLines(data)
}

func parseLines(data []byte) (*File, error) {
	f := NewFile(Head{})
	sc := bufio.NewScanner(bytes.NewReader(data))
	sc.Buffer(nil, 16<<20)
	for n := 1; sc.Scan(); n++ {
		if len(bytes.TrimSpace(sc.Bytes())) == 0 {
			continue
		}
		var l line
		if err := json.Unmarshal(sc.Bytes(), &l); err != nil {
			return nil, fmt.Errorf("line %d: %w (write results with --format json or jsonl)", n, ErrFormat)
		}
		if err := known(l.Format, l.Version); err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		if l.Head != nil {
			f.Head = *l.Head
		}
		if l.Row != nil {
			f.Results = append(f.Results, *l.Row)
		}
	}
	if err := sc.Err(); err != nil {
		return nil, err
	}
	if len(f.Results) == 0 {
		return nil, fmt.Errorf("%w: it has no results", ErrFormat)
	}
	return f, nil
}

func known(format string, version int) error {
	switch {
	case format != Format:
		return fmt.Errorf("%w: format is %q, want %q", ErrFormat, format, Format)
	case version != Version:
		return fmt.Errorf("%w: version %d, this program reads %d: use the edgebench that wrote it, or measure again",
			ErrFormat, version, Version)
	}
	return nil
}
