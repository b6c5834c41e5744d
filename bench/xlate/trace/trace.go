// Package trace holds traces of memory that communication touches: what a translation mechanism has to look up, in the
// order of time. It reads and writes them as text, which gzip may compress: a line for each record, after a head that
// gives the shape of the cluster:
//
//	memtrace 1 nodes 4 processes 5
//	1200 0 3 fetch 40003000 4096
//
// that is time in nanoseconds, node, process of the node, operation, address in hexadecimal and length in bytes.
package trace

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
)

// Op says which end of which operation touches the memory.
type Op uint8

const (
	Send    Op = iota // source of a write, at the node that issued it
	Fetch             // destination of a read, at the node that issued it
	Serve             // source of a read, at the node that was asked
	Deposit           // target of a write, at the node that was written to
)

var opNames = [...]string{"send", "fetch", "serve", "deposit"}

func (o Op) String() string { return opNames[o] }

// Local reports whether the node itself issued the operation. The UTLB translates for these alone (its receive buffers
// are exported, and pinned).
func (o Op) Local() bool { return o <= Fetch }

// Leaves reports whether data leaves the node: the send path. The others are the receive path (DHL §IV.B).
func (o Op) Leaves() bool { return o == Send || o == Serve }

// Record is one range of memory that an operation touches.
type Record struct {
	Time    uint64 // nanoseconds since the trace began
	Addr    uint64
	Length  uint32
	Node    uint8
	Process uint8 // of the node
	Op      Op
}

// Trace is what a cluster's nodes touched.
type Trace struct {
	Nodes     int
	Processes int // of each node
	Records   []Record
}

// Bounds of a trace.
const (
	MaxNodes     = 256
	MaxProcesses = 256
	MaxAddr      = 1 << 47 // addresses end here, as those of user space do
	MaxLength    = 1 << 31
	MaxRecords   = 1 << 26
	PageSize     = 4096
	PageBits     = 12
)

// ErrFormat is what errors about text that is no trace wrap.
var ErrFormat = errors.New("not a memory trace")

// Write writes t as text that is compressed.
func (t *Trace) Write(w io.Writer) error {
	z := gzip.NewWriter(w)
	return errors.Join(t.WriteText(z), z.Close())
}

// Read reads a trace as text, compressed or not.
func Read(in io.Reader) (*Trace, error) {
	b := bufio.NewReader(in)
	if head, err := b.Peek(2); err != nil || !bytes.Equal(head, []byte{0x1f, 0x8b}) { // gzip begins so
		return ReadText(b)
	}
	z, err := gzip.NewReader(b)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrFormat, err)
	}
	return ReadText(z)
}

// checkShape refuses impossible clusters.
func (t *Trace) checkShape() error {
	if t.Nodes < 1 || t.Nodes > MaxNodes || t.Processes < 1 || t.Processes > MaxProcesses {
		return fmt.Errorf("%w: %d nodes of %d processes; both are 1 to 256", ErrFormat, t.Nodes, t.Processes)
	}
	return nil
}

// check refuses a record that cannot be in t after one at time last.
func (t *Trace) check(r *Record, last uint64) error {
	switch {
	case r.Time < last:
		return fmt.Errorf("%w: time goes back from %d to %d", ErrFormat, last, r.Time)
	case int(r.Node) >= t.Nodes || int(r.Process) >= t.Processes:
		return fmt.Errorf("%w: process %d of node %d in a trace of %d nodes of %d "+
			"processes", ErrFormat, r.Process, r.Node, t.Nodes, t.Processes)
	case int(r.Op) >= len(opNames):
		return fmt.Errorf("%w: operation %d is unknown", ErrFormat, r.Op)
	case r.Length == 0 || r.Length > MaxLength:
		return fmt.Errorf("%w: a length of %d; choose 1 to %d", ErrFormat, r.Length, uint32(MaxLength))
	case r.Addr > MaxAddr-uint64(r.Length):
		return fmt.Errorf("%w: %d bytes at %#x end beyond 2^47", ErrFormat, r.Length, r.Addr)
	}
	return nil
}

// Check reports the first thing that is wrong with t.
func (t *Trace) Check() error {
	if err := t.checkShape(); err != nil {
		return err
	}
	last := uint64(0)
	for i := range t.Records {
		if err := t.check(&t.Records[i], last); err != nil {
			return fmt.Errorf("record %d: %w", i, err)
		}
		last = t.Records[i].Time
	}
	return nil
}

// Pages returns the first page that r touches and the one after the last: a lookup for each (UTLB §5.2: transfers are
// cut at pages).
func (r *Record) Pages() (first, end uint64) {
	return r.Addr >> PageBits, (r.Addr + uint64(r.Length) + PageSize - 1) >> PageBits
}
