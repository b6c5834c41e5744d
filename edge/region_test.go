package edge_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"testing"
	"testing/iotest"

	"multiedge/edge"
	"multiedge/edge/fabric"
	"multiedge/edge/heap"
)

// A part of a region is a reader and a writer of the standard library, and nothing beside the part changes.
func TestRegionIsReaderAtAndWriterAt(t *testing.T) {
	fab := fabric.New()
	defer fab.Close()
	d := open(fab, "a")
	r, err := d.Register(4096)
	must(t, err)
	want := []byte("what the part has, and nothing beside it")
	n, err := io.Copy(io.NewOffsetWriter(r, 100), iotest.HalfReader(bytes.NewReader(want)))
	must(t, err)
	if int(n) != len(want) || len(bytes.Trim(r.Bytes()[:100], "\x00")) > 0 ||
		len(bytes.Trim(r.Bytes()[100+len(want):], "\x00")) > 0 {
		t.Errorf("%d bytes were written, or others", n)
	}
	must(t, iotest.TestReader(io.NewSectionReader(r, 100, int64(len(want))), want))
	if n, err := r.WriteAt([]byte("beyond"), 4094); n != 2 || err != io.ErrShortWrite {
		t.Errorf("a write across the end: %d, %v", n, err)
	}
	if n, err := r.ReadAt(make([]byte, 10), 4094); n != 2 || err != io.EOF {
		t.Errorf("a read across the end: %d, %v", n, err)
	}
	for _, off := range []int64{-1, 4097} {
		if err := second(r.ReadAt(nil, off)); !errors.Is(err, edge.ErrBounds) {
			t.Errorf("a read at %d: %v", off, err)
		}
		if err := second(r.WriteAt(nil, off)); !errors.Is(err, edge.ErrBounds) {
			t.Errorf("a write at %d: %v", off, err)
		}
	}
	addresses, err := heap.Range(testContext(t), d, 0, 1<<20)
	must(t, err)
	if err := second(addresses.ReadAt(make([]byte, 1), 0)); !errors.Is(err, edge.ErrInvalid) {
		t.Errorf("a read of addresses: %v", err)
	}
	must(t, r.Close())
	if err := second(r.ReadAt(make([]byte, 1), 0)); !errors.Is(err, net.ErrClosed) {
		t.Errorf("a read of a closed region: %v", err)
	}
}
