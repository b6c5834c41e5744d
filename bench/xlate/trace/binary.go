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
	var shape [3]uint64
	for i := range shape {
		v, err := binary.ReadUvarint(b)
		if err != nil {
			return nil, short(err)
		}
		shape[i] = v
	}
	if shape[0] > MaxNodes || shape[1] > MaxProcesses {
		return nil, fmt.Errorf("%w: %d nodes of %d processes; both are 1 to 256", ErrFormat, shape[0], shape[1])
	}
	t := &Trace{Nodes: int(shape[0]), Processes: int(shape[1])}
	if err := t.checkShape(); err != nil {
		return nil, err
	}
	d := decoder{b: b, t: t, previous: make([]uint64, t.Nodes*t.Processes)}
	for i := uint64(0); i < shape[2]; i++ {
		if err := d.record(); err != nil {
			return nil, fmt.Errorf("record %d of %d: %w", i, shape[2], err)
		}
	}
	if _, err := b.ReadByte(); err == nil {
		return nil, fmt.Errorf("%w: bytes after the last of %d records", ErrFormat, shape[2])
	} else if err != io.EOF {
		return nil, err
	}
	return t, nil
}

// decoder is where ReadBinary is.
type decoder struct {
	b        *bufio.Reader
	t        *Trace
	last     uint64
	previous []uint64 // address of each process's latest record
}

// record reads one record.
func (d *decoder) record() error {
	after, err := binary.ReadUvarint(d.b)
	if err != nil {
		return short(err)
	}
	var who [3]byte
	if _, err := io.ReadFull(d.b, who[:]); err != nil {
		return short(err)
	}
	r := Record{Time: d.last + after, Node: who[0], Process: who[1], Op: Op(who[2])}
	if int(r.Node) >= d.t.Nodes || int(r.Process) >= d.t.Processes {
		return d.t.check(&r, 0) // before it is an index
	}
	move, err := binary.ReadVarint(d.b)
	if err != nil {
		return short(err)
	}
	length, err := binary.ReadUvarint(d.b)
	if err != nil {
		return short(err)
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
