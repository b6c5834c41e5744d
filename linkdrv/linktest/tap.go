package linktest

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"

	"multiedge/linkdrv"
)

// Tapped is a driver that writes every frame that passes, in either direction, as a record of a pcap file with nanoseconds, which
// tcpdump and Wireshark read.
type Tapped struct {
	linkdrv.Driver // the driver below

	// Now says when a frame passed; replace it before the first frame to run on a virtual clock.
	Now func() time.Time

	w    *bufio.Writer
	err  error    // the first error of w; nothing is written after it
	head [24]byte // scratch
}

const (
	pcapNanoseconds = 0xa1b23c4d
	pcapEthernet    = 1
	pcapSnapLen     = 1 << 18
)

// Tap wraps a driver and writes the file's header. Frames reach w at the latest by Flush or Close, which do not close it.
func Tap(d linkdrv.Driver, w io.Writer) *Tapped {
	t := &Tapped{Driver: d, Now: time.Now, w: bufio.NewWriterSize(w, 1<<16)}
	h := &t.head
	le := binary.LittleEndian
	le.PutUint32(h[0:], pcapNanoseconds)
	le.PutUint16(h[4:], 2) // version 2.4; no time zone, no accuracy
	le.PutUint16(h[6:], 4)
	le.PutUint32(h[16:], pcapSnapLen)
	le.PutUint32(h[20:], pcapEthernet)
	t.write(h[:])
	return t
}

// Send implements linkdrv.Driver. Frames that were taken are recorded, a refused one is not.
func (t *Tapped) Send(frames []linkdrv.TxFrame) (int, error) {
	n, err := t.Driver.Send(frames)
	taken := n
	if errors.Is(err, linkdrv.ErrTooLong) || errors.Is(err, linkdrv.ErrBadFrame) {
		taken--
	}
	for i := range frames[:taken] {
		f := &frames[i]
		t.record(f.Len(), f.Head, f.Bulk, f.Tail)
	}
	return n, err
}

// Recv implements linkdrv.Driver.
func (t *Tapped) Recv(dst [][]byte) (int, error) {
	n, err := t.Driver.Recv(dst)
	for _, f := range dst[:n] {
		t.record(len(f), f, nil, nil)
	}
	return n, err
}

func (t *Tapped) record(size int, a, b, c []byte) {
	now := t.Now()
	h := t.head[:16]
	le := binary.LittleEndian
	le.PutUint32(h[0:], uint32(now.Unix()))
	le.PutUint32(h[4:], uint32(now.Nanosecond()))
	le.PutUint32(h[8:], uint32(size))
	le.PutUint32(h[12:], uint32(size))
	t.write(h)
	t.write(a)
	t.write(b)
	t.write(c)
}

func (t *Tapped) write(b []byte) {
	if t.err == nil {
		_, t.err = t.w.Write(b)
	}
}

// Flush writes what is buffered and returns the first error of writing.
func (t *Tapped) Flush() error {
	if t.err == nil {
		t.err = t.w.Flush()
	}
	if t.err != nil {
		return fmt.Errorf("linktest: pcap: %w", t.err)
	}
	return nil
}

// Close flushes and closes the driver below.
func (t *Tapped) Close() error { return errors.Join(t.Flush(), t.Driver.Close()) }
