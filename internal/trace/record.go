// Package trace is how frames get from a daemon to whoever traces it: as records in a pipe. Describe says what is in a
// frame.
//
//	shard: a tapped driver (internal/daemon) -> Begin -> pipe -> Reader -> edgectl trace:
//	a line by Describe, or a block of a pcapng file
package trace

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"multiedge/internal/mono"
)

// Record is a frame that passed one of the daemon's links, or the beginning of it.
type Record struct {
	Time mono.Time // on the daemon's clock: before its driver sent the frame, after it received it
	Link uint8     // its number
	Sent bool      // else received
	Lost uint32    // frames before this one for which there was no room
	Len  int       // of the frame, in bytes
	Data []byte    // its first bytes, from the Ethernet header on
}

// Link is one of the links whose frames are traced.
type Link struct {
	Number int    `json:"number"`
	Name   string `json:"name"`
	MAC    string `json:"mac"`
	MTU    int    `json:"mtu"`
}

// Start is what the daemon says before the first record.
type Start struct {
	Now       mono.Time `json:"now"`       // the daemon's clock
	Monotonic int64     `json:"monotonic"` // CLOCK_MONOTONIC at that moment, in nanoseconds
	Links     []Link    `json:"links"`
}

// MaxFrame bounds what is taken for a frame, in bytes.
const MaxFrame = 1 << 17

const (
	headLen  = 24
	flagSent = 1 << 0
)

// ErrRecord is returned for what cannot be a record.
var ErrRecord = errors.New("trace: malformed record")

// Begin appends to b the head of a record whose Data is the first cut bytes of pieces, and those. It leaves r.Data
// alone.
func (r *Record) Begin(b []byte, cut int, pieces ...[]byte) []byte {
	le := binary.LittleEndian
	cut = min(cut, r.Len)
	b = le.AppendUint64(b, uint64(r.Time))
	b = le.AppendUint32(b, r.Lost)
	b = le.AppendUint32(b, uint32(r.Len))
	b = le.AppendUint32(b, uint32(cut))
	flags := byte(0)
	if r.Sent {
		flags = flagSent
	}
	b = append(b, r.Link, flags, 0, 0)
	for _, p := range pieces {
		n := min(cut, len(p))
		b = append(b, p[:n]...)
		cut -= n
	}
	return b
}

// Reader reads records.
type Reader struct {
	r    *bufio.Reader
	data []byte
}

// NewReader returns a Reader of what Begin wrote.
func NewReader(r io.Reader) *Reader { return &Reader{r: bufio.NewReaderSize(r, 1<<16)} }

// Idle reports whether Next has to wait for the daemon.
func (r *Reader) Idle() bool { return r.r.Buffered() == 0 }

// Next reads a record. Its Data is the Reader's until the next call. The error is io.EOF between two records,
// io.ErrUnexpectedEOF inside one, and wraps ErrRecord for nonsense.
func (r *Reader) Next(rec *Record) error {
	var h [headLen]byte
	if _, err := io.ReadFull(r.r, h[:]); err != nil {
		return err
	}
	le := binary.LittleEndian
	n, size := int(le.Uint32(h[12:])), int(le.Uint32(h[16:]))
	if n > MaxFrame || size > n || h[21]&^flagSent != 0 || h[22] != 0 || h[23] != 0 {
		return fmt.Errorf("%w: % x", ErrRecord, h)
	}
	if cap(r.data) < size {
		r.data = make([]byte, size, MaxFrame)
	}
	*rec = Record{Time: mono.Time(le.Uint64(h[:])), Lost: le.Uint32(h[8:]), Len: n, Link: h[20],
		Sent: h[21]&flagSent != 0, Data: r.data[:size]}
	if _, err := io.ReadFull(r.r, rec.Data); err != nil {
		return io.ErrUnexpectedEOF
	}
	return nil
}
