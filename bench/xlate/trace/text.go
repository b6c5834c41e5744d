package trace

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// WriteText writes t as text.
func (t *Trace) WriteText(w io.Writer) error {
	if err := t.Check(); err != nil {
		return err
	}
	b := bufio.NewWriter(w)
	fmt.Fprintf(b, "memtrace 1 nodes %d processes %d\n", t.Nodes, t.Processes)
	for _, r := range t.Records {
		fmt.Fprintf(b, "%d %d %d %s %x %d\n", r.Time, r.Node, r.Process, r.Op, r.Addr, r.Length)
	}
	return b.Flush()
}

// ReadText reads a trace as text. Empty lines and lines that begin with # are left out.
func ReadText(in io.Reader) (*Trace, error) {
	scan := bufio.NewScanner(in)
	var t *Trace
	last := uint64(0)
	for line := 1; scan.Scan(); line++ {
		f := strings.Fields(scan.Text())
		if len(f) == 0 || strings.HasPrefix(f[0], "#") {
			continue
		}
		var err error
		if t == nil {
			t, err = textHead(f)
		} else {
			var r Record
			if r, err = textRecord(f); err == nil {
				err = t.check(&r, last)
			}
			if len(t.Records) == MaxRecords {
				err = fmt.Errorf("%w: more than %d records", ErrFormat, MaxRecords)
			}
			t.Records, last = append(t.Records, r), r.Time
		}
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", line, err)
		}
	}
	if err := scan.Err(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrFormat, err)
	}
	if t == nil {
		return nil, fmt.Errorf("%w: there is no head", ErrFormat)
	}
	return t, nil
}

func textHead(f []string) (*Trace, error) {
	if len(f) != 6 || f[0] != "memtrace" || f[1] != "1" || f[2] != "nodes" || f[4] != "processes" {
		return nil, fmt.Errorf(`%w: the head reads "memtrace 1 nodes N processes N"`, ErrFormat)
	}
	nodes, err1 := strconv.ParseUint(f[3], 10, 16)
	processes, err2 := strconv.ParseUint(f[5], 10, 16)
	if err1 != nil || err2 != nil {
		return nil, fmt.Errorf("%w: nodes %q, processes %q: write numbers from 1 to 256", ErrFormat, f[3], f[5])
	}
	t := &Trace{Nodes: int(nodes), Processes: int(processes)}
	return t, t.checkShape()
}

func textRecord(f []string) (r Record, err error) {
	if len(f) != 6 {
		return r, fmt.Errorf("%w: %d words; write time, node, process, operation, address and "+
			"length", ErrFormat, len(f))
	}
	var v [6]uint64
	for i, bits := range []int{64, 8, 8, 0, 64, 32} {
		if base := 10; bits != 0 {
			if i == 4 {
				base = 16
			}
			if v[i], err = strconv.ParseUint(f[i], base, bits); err != nil {
				return r, fmt.Errorf("%w: %q is no number, or too large", ErrFormat, f[i])
			}
		}
	}
	op := slices.Index(opNames[:], f[3])
	if op < 0 {
		return r, fmt.Errorf("%w: operation %q; choose one of %v", ErrFormat, f[3], opNames)
	}
	return Record{Time: v[0], Node: uint8(v[1]), Process: uint8(v[2]), Op: Op(op), Addr: v[4], Length: uint32(v[5])},
		nil
}
