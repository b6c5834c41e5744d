package ipc

import (
	"encoding/binary"
	"math"
	"strings"
	"time"
	"unicode/utf8"
)

// body reads or writes the fields of a struct. b has the whole of it: what a shorter packet does not have is zero
// (A3.4). The first field that cannot be is in err, and what was read is not used then.
type body struct {
	b       []byte
	writing bool
	err     error
}

func (f *body) fail(format string, args ...any) {
	if f.err == nil {
		f.err = Errorf(CodeInvalid, format, args...)
	}
}

func (f *body) u16(at int, v *uint16) {
	if f.writing {
		binary.LittleEndian.PutUint16(f.b[at:], *v)
	} else {
		*v = binary.LittleEndian.Uint16(f.b[at:])
	}
}

func (f *body) u32(at int, v *uint32) {
	if f.writing {
		binary.LittleEndian.PutUint32(f.b[at:], *v)
	} else {
		*v = binary.LittleEndian.Uint32(f.b[at:])
	}
}

func (f *body) u64(at int, v *uint64) {
	if f.writing {
		binary.LittleEndian.PutUint64(f.b[at:], *v)
	} else {
		*v = binary.LittleEndian.Uint64(f.b[at:])
	}
}

// count is a u32 that an int of any machine holds.
func (f *body) count(at int, name string, v *int) {
	if f.writing && (*v < 0 || *v > math.MaxInt32) {
		f.fail("field %s is %d; it must be from 0 to %d", name, *v, math.MaxInt32)
		return
	}
	n := uint32(*v)
	f.u32(at, &n)
	if n > math.MaxInt32 {
		f.fail("field %s is %d; at most %d is allowed", name, n, math.MaxInt32)
	}
	*v = int(n)
}

// flags is a u32 whose bits, from 0 on, are these; the others ask for what this release does not know (A3.6).
func (f *body) flags(at int, on ...*bool) {
	var n uint32
	for i, b := range on {
		if *b {
			n |= 1 << i
		}
	}
	f.u32(at, &n)
	if most := uint32(1)<<len(on) - 1; n > most {
		f.fail("flags %#x are not known to this daemon; use those of the features in force", n&^most)
	}
	for i, b := range on {
		*b = n>>i&1 != 0
	}
}

func (f *body) perm(at int, p *uint8) {
	n := uint32(*p)
	f.u32(at, &n)
	if n > math.MaxUint8 {
		f.fail("permissions %#x are not known", n)
	}
	*p = uint8(n)
}

func (f *body) nanoseconds(at int, d *time.Duration) {
	if *d < 0 {
		f.fail("a negative timeout")
		return
	}
	n := uint64(*d)
	f.u64(at, &n)
	if n > math.MaxInt64 {
		f.fail("a timeout of %d ns; at most 2^63-1 is allowed", n)
	}
	*d = time.Duration(n)
}

// name, data and text are a u16 that says how many of the bytes behind it count (A3.7). Strings are UTF-8: in what is
// written a question mark stands for what is not, such as in names that peers chose.
func (f *body) name(at int, name string, s *string) { f.str(at, MaxName, name, s) }
func (f *body) text(at int, s *string)              { f.str(at, MaxText, "text", s) }

func (f *body) data(at int, p *[]byte) { f.bytes(at, MaxData, "data", p) }

func (f *body) str(at, most int, name string, s *string) {
	var p []byte
	if f.writing {
		p = []byte(strings.ToValidUTF8(*s, "?"))
	}
	f.bytes(at, most, name, &p)
	if f.writing {
		return
	}
	if !utf8.Valid(p) {
		f.fail("field %s is not UTF-8", name)
	}
	*s = string(p)
}

func (f *body) bytes(at, most int, name string, p *[]byte) {
	n := uint16(min(len(*p), math.MaxUint16))
	f.u16(at, &n)
	if int(n) > most {
		f.fail("field %s has %d bytes; at most %d are allowed", name, n, most)
		return
	}
	if at += 2; f.writing {
		copy(f.b[at:at+most], *p)
		return
	}
	*p = append([]byte(nil), f.b[at:at+int(n)]...)
}
