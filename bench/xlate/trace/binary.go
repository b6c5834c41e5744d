package trace

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// The binary form: the magic, nodes, processes and the number of records as unsigned varints; then for each record the
// time since the one before,
// node, process and operation as a byte each, the address less that of the same process's previous record (signed
// varint), and the length.
const magic = "memtrc\x00\x01"

// WriteBinary writes t in the binary form.
func (t *Trace) WriteBinary(w io.Writer) error {
	if err := t.Check(); err != nil {
		return err
	}
	b := bufio.NewWriter(w)
	b.WriteString(magic)
	var buf []byte
	for _, n := range []int{t.Nodes, t.Processes, len(t.Records)} {
		buf = binary.AppendUvarint(buf, uint64(n))
	}
	last, previous := uint64(0), make([]uint64, t.Nodes*t.Processes)
	for i := range t.Records {
		r := &t.Records[i]
		p := &previous[int(r.Node)*t.Processes+int(r.Process)]
		buf = binary.AppendUvarint(buf, r.Time-last)
		buf = append(buf, r.Node, r.Process, byte(r.Op))
		buf = binary.AppendVarint(buf, int64(r.Addr-*p))
		buf = binary.AppendUvarint(buf, uint64(r.Length))
		last, *p = r.Time, r.Addr
		b.Write(buf)
		buf = buf[:0]
	}
	b.Write(buf) // the head of a trace without records
	return b.Flush()
}

// ReadBinary reads a trace in the binary form, to the end of its input. Its memory grows with the bytes that came, not
// with what the head promises.
func ReadBinary(in io.Reader) (*Trace, error) {
	b := bufio.NewReader(in)
	head := make([]byte, len(magic))
	if _, err := io.ReadFull(b, head); err != nil || string(head) != magic {
		return nil, fmt.Errorf("%w: it does not begin with %q", ErrFormat, magic)
	}
	d := decoder{b: b}
	nodes, processes, n := d.uvarint(), d.uvarint(), d.uvarint()
	if d.err != nil {
		return nil, short(d.err)
	}
	if nodes > MaxNodes || processes > MaxProcesses {
		return nil, fmt.Errorf("%w: %d nodes of %d processes; both are 1 to 256", ErrFormat, nodes, processes)
	}
	d.t = &Trace{Nodes: int(nodes), Processes: int(processes)}
	if err := d.t.checkShape(); err != nil {
		return nil, err
	}
	d.previous = make([]uint64, nodes*processes)
	for i := range n {
		if err := d.record(); err != nil {
			return nil, fmt.Errorf("record %d of %d: %w", i, n, err)
		}
	}
	if _, err := b.ReadByte(); err == nil {
		return nil, fmt.Errorf("%w: bytes after the last of %d records", ErrFormat, n)
	} else if err != io.EOF {
		return nil, err
	}
	return d.t, nil
}

// decoder is where ReadBinary is.
type decoder struct {
	b        *bufio.Reader
	err      error // the first of reading
	t        *Trace
	last     uint64
	previous []uint64 // address of each process's latest record
}

func (d *decoder) uvarint() (v uint64) {
	if d.err == nil {
		v, d.err = binary.ReadUvarint(d.b)
	}
	return v
}

// record reads one record.
func (d *decoder) record() error {
	r := Record{Time: d.last + d.uvarint()}
	var who [3]byte
	if d.err == nil {
		_, d.err = io.ReadFull(d.b, who[:])
	}
	if d.err != nil {
		return short(d.err)
	}
	r.Node, r.Process, r.Op = who[0], who[1], Op(who[2])
	if int(r.Node) >= d.t.Nodes || int(r.Process) >= d.t.Processes {
		return d.t.check(&r, 0) // before it is an index
	}
	move, err := binary.ReadVarint(d.b)
	d.err = err
	length := d.uvarint()
	if d.err != nil {
		return short(d.err)
	}
	if length > MaxLength {
		return fmt.Errorf("%w: a length of %d; choose 1 to %d", ErrFormat, length, uint32(MaxLength))
	}
	p := &d.previous[int(r.Node)*d.t.Processes+int(r.Process)]
	r.Addr, r.Length = *p+uint64(move), uint32(length)
	if err := d.t.check(&r, d.last); err != nil {
		return err
	}
	d.last, *p = r.Time, r.Addr
	d.t.Records = append(d.t.Records, r)
	return nil
}

// short explains the end of input in the middle.
func short(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%w: it ends too early", ErrFormat)
	}
	return fmt.Errorf("%w: %w", ErrFormat, err)
}
