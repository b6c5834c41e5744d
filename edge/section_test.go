package edge

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"testing"
	"testing/iotest"
)

// io.Copy from registered memory through a stream into registered memory has every byte up to the end of the stream,
// and nothing behind it.
func TestSectionsOverAStream(t *testing.T) {
	n := newStreamNet(t, StreamConfig{})
	const size, skip = 3 << 20, 1000
	out, in, from, to := regionPair(t, n, size)
	rand.NewChaCha8([32]byte{1}).Read(from.Bytes())
	source, err := from.Section(skip, size-2*skip)
	must(t, err)
	target, err := to.Section(0, size)
	must(t, err)
	written := make(chan error, 1)
	go func() {
		m, err := io.Copy(out, source)
		if m != size-2*skip {
			t.Errorf("%d bytes were written of %d", m, size-2*skip)
		}
		written <- errors.Join(err, out.CloseWrite())
	}()
	m, err := io.Copy(target, in)
	must(t, err)
	must(t, <-written)
	if m != size-2*skip || !bytes.Equal(to.Bytes()[:m], from.Bytes()[skip:size-skip]) {
		t.Errorf("%d bytes were read of %d, or others", m, size-2*skip)
	}
	if _, err := source.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("what was written has more: %v", err)
	}
	if left := len(bytes.Trim(to.Bytes()[m:], "\x00")); left > 0 {
		t.Errorf("%d bytes behind were written", left)
	}
	if rest, err := in.ReadRegion(to, 0, 1); rest != 0 || err != io.EOF {
		t.Errorf("behind the end: %d, %v", rest, err)
	}
	must(t, in.Close())
	must(t, out.Close())
}

// A stream that is longer than the Section is not read as if it ended there.
func TestSectionIsTooShort(t *testing.T) {
	n := newStreamNet(t, StreamConfig{})
	out, in, from, to := regionPair(t, n, 1<<16)
	must(t, second(out.WriteRegion(from, 0, 1<<16)))
	x, err := to.Section(0, 1<<15)
	must(t, err)
	if m, err := io.Copy(x, in); m != 1<<15 || !errors.Is(err, io.ErrShortWrite) {
		t.Errorf("%d bytes, %v; want io.ErrShortWrite", m, err)
	}
	must(t, in.Close())
	must(t, out.Close())
}

// Beside streams it is any reader and writer, and reaches nothing beside its part.
func TestSection(t *testing.T) {
	n := newStreamNet(t, StreamConfig{})
	r, err := n.a.Register(4096)
	must(t, err)
	want := []byte("what a section has, and nothing beside it")
	x, err := r.Section(100, len(want))
	must(t, err)
	m, err := io.Copy(x, iotest.HalfReader(bytes.NewReader(want)))
	if int(m) != len(want) || err != nil || len(bytes.Trim(r.Bytes()[:100], "\x00")) > 0 {
		t.Errorf("%d bytes were copied: %v", m, err)
	}
	if k, err := x.Write([]byte("x")); k != 0 || err != io.ErrShortWrite {
		t.Errorf("a write behind its end: %d, %v", k, err)
	}
	x, err = r.Section(100, len(want))
	must(t, err)
	must(t, iotest.TestReader(struct{ io.Reader }{x}, want))
	x, err = r.Section(100, len(want))
	must(t, err)
	var b bytes.Buffer
	if k, err := io.Copy(&b, x); int(k) != len(want) || err != nil || !bytes.Equal(b.Bytes(), want) {
		t.Errorf("%q was copied: %v", b.Bytes(), err)
	}
	for what, x := range map[string]struct{ off, n int }{"before": {-1, 1}, "behind": {4096, 1}, "long": {1, 4096},
		"negative": {1, -1}, "nothing behind": {4097, 0}} {
		if _, err := r.Section(x.off, x.n); !errors.Is(err, ErrBounds) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := r.Section(4096, 0); err != nil {
		t.Errorf("nothing at the end: %v", err)
	}
}
