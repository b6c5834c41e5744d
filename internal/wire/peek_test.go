package wire

import (
	"bytes"
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

// PeekBulk verifies nothing, and sees only what has a bulk header.
func TestPeekBulk(t *testing.T) {
	want := theBulk()
	b := build(plainHeader, want, []byte("payload!"), ping)
	var got Bulk
	if !PeekBulk(b[:FixedLen+BulkLen], &got) || got != *want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if PeekBulk(append(build(plainHeader, nil, nil, ping), make([]byte, BulkLen)...), &got) {
		t.Error("a bulk header where none is")
	}
}

// A frame in pieces is what the whole one is, if the pieces are cut where they should be.
func TestPartsRefused(t *testing.T) {
	const headers = FixedLen + BulkLen
	bulk := build(plainHeader, theBulk(), []byte("payload!"), ping)
	change := func(at int, v byte) []byte {
		b := bytes.Clone(bulk)
		b[at] = v
		return reseal(b)
	}
	for _, c := range []struct {
		name      string
		b         []byte
		head, end int // of the payload
		want      error
	}{
		{"as it should be", bulk, headers, headers + 8, nil},
		{"head too long", bulk, headers + 1, headers + 8, ErrShort},
		{"head too short", bulk, headers - 1, headers + 8, ErrShort},
		{"payload too long", append(bytes.Clone(bulk), 0), headers, headers + 9, ErrShort},
		{"payload too short", change(FixedLen+3, 9), headers, headers + 8, ErrShort},
		{"no bulk", change(3, FlagPush), headers, headers + 8, ErrShort},
		{"path 64", change(2, 64), headers, headers + 8, ErrReserved},
		{"key epoch while in plaintext", change(1, 1), headers, headers + 8, ErrReserved},
		{"no tail", bulk[:headers+8], headers, headers + 8, ErrShort},
	} {
		var f Frame
		if err := f.DecodeParts(c.b[:c.head], c.b[c.head:c.end], c.b[c.end:]); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		} else if err == nil && (string(f.Payload) != "payload!" || !bytes.Equal(f.Tail, ping)) {
			t.Errorf("%s: %+v", c.name, f)
		}
	}
}
