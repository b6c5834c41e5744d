package wire

import (
	"errors"
	"testing"
)

// Of a frame that was cut off, Peek says what is there; nothing of it is verified.
func TestPeek(t *testing.T) {
	bulk := build(Header{Type: TypeData, Path: 2, Session: 9, PN: 7}, theBulk(), []byte("payload!"), ping)
	bulk[16] ^= 1 // the checksum
	sealed := buildOpened(sealedHeader, nil, nil, ping)
	const headers = FixedLen + BulkLen
	for _, c := range []struct {
		name          string
		b             []byte
		err           error
		payload, tail int
	}{
		{"whole", bulk, nil, 8, 4},
		{"cut in the tail", bulk[:headers+8+1], nil, 8, 1},
		{"cut in the payload", bulk[:headers+5], nil, 5, 0},
		{"headers alone", bulk[:headers], nil, 0, 0},
		{"cut in the bulk header", bulk[:headers-1], ErrShort, 0, 0},
		{"cut in the fixed header", bulk[:FixedLen-1], ErrShort, 0, 0},
		{"nothing", nil, ErrShort, 0, 0},
		{"sealed, clear part", sealed[:ClearLen], nil, 0, 0},
		{"sealed, less", sealed[:ClearLen-1], ErrShort, 0, 0},
		{"another version", []byte{2 << 4, ClearLen: 0, FixedLen: 0}, ErrVersion, 0, 0},
	} {
		f := Frame{Payload: []byte("old"), Tail: []byte("old")}
		if err := f.Peek(c.b[:len(c.b):len(c.b)]); !errors.Is(err, c.err) {
			t.Errorf("%s: %v, want %v", c.name, err, c.err)
		} else if err == nil && (len(f.Payload) != c.payload || len(f.Tail) != c.tail || f.Session == 0) {
			t.Errorf("%s: %+v, want %d bytes of payload and %d of tail", c.name, f, c.payload, c.tail)
		}
	}
}
