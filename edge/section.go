package edge

import (
	"errors"
	"io"
)

// Section is a part of a Region that is read and written from its beginning to its end, for io.Copy and other users of
// readers and writers. Between a Section and a Stream, they use Stream.WriteRegion and Stream.ReadRegion.
type Section struct {
	r        *Region
	off, end int
}

var (
	_ io.WriterTo   = (*Section)(nil)
	_ io.ReaderFrom = (*Section)(nil)
)

// Section returns bytes off to off+n of the region as a reader, which returns io.EOF at their end, and as a writer,
// which returns io.ErrShortWrite there. It is for one goroutine at a time.
func (r *Region) Section(off, n int) (*Section, error) {
	if r.bytes == nil {
		return nil, invalid("Section: a Region of GrantRange has no bytes here; use Register or GrantHeap")
	}
	if n != 0 || off < 0 || off > r.size {
		if err := r.check(off, n); err != nil {
			return nil, err
		}
	}
	return &Section{r, off, off + n}, nil
}

// Read implements io.Reader.
func (x *Section) Read(p []byte) (int, error) {
	n := min(len(p), x.end-x.off)
	if n == 0 && len(p) > 0 {
		return 0, io.EOF
	}
	if err := x.r.copyOut(p[:n], x.off); err != nil {
		return 0, err
	}
	x.off += n
	return n, nil
}

// Write implements io.Writer.
func (x *Section) Write(p []byte) (int, error) {
	n := min(len(p), x.end-x.off)
	if err := x.r.copyIn(x.off, p[:n]); err != nil {
		return 0, err
	}
	x.off += n
	if n < len(p) {
		return n, io.ErrShortWrite
	}
	return n, nil
}

// WriteTo implements io.WriterTo.
func (x *Section) WriteTo(w io.Writer) (int64, error) {
	var n int
	var err error
	if s, ok := w.(*Stream); ok {
		n, err = s.WriteRegion(x.r, x.off, x.end-x.off)
	} else {
		n, err = w.Write(x.r.bytes[x.off:x.end])
	}
	x.off += n
	return int64(n), err
}

// ReadFrom implements io.ReaderFrom: it reads to the end, and says io.ErrShortWrite where the Section ends before.
func (x *Section) ReadFrom(r io.Reader) (total int64, err error) {
	if s, ok := r.(*Stream); ok && x.off < x.end {
		n, err := s.ReadRegion(x.r, x.off, x.end-x.off)
		x.off += n
		if total = int64(n); err == io.EOF || errors.Is(err, io.ErrUnexpectedEOF) {
			return total, nil
		}
		if err != nil {
			return total, err
		}
	}
	var more [1]byte
	for err == nil {
		p := x.r.bytes[x.off:x.end]
		if len(p) == 0 {
			p = more[:]
		}
		var n int
		if n, err = r.Read(p); n > 0 && x.off == x.end {
			return total, io.ErrShortWrite
		}
		x.off += n
		total += int64(n)
	}
	if err == io.EOF {
		err = nil
	}
	return total, err
}
