package wire

import (
	"bytes"
	"encoding/hex"
	"errors"
	"testing"
)

var sealedHeader = Header{Type: TypeData, KeyEpoch: 7, Path: 5, Flags: FlagPush, Session: 0x01020304,
	PN: 0x1112131415161718}

// buildOpened lays out a frame as it stands before it is sealed and after it is opened.
func buildOpened(h Header, bulk *Bulk, payload, tail []byte) []byte {
	b := build(h, bulk, payload, tail)
	if bulk != nil {
		h.Flags |= FlagBulk
	}
	FinishOpen(b, &h, tail)
	return b
}

// Clauses 2.2 and 10.5: the layout is that of plaintext, with a key epoch and without checksum.
func TestOpenedLayout(t *testing.T) {
	for _, c := range []struct {
		name   string
		frame  []byte
		golden string
	}{
		{"tail only", buildOpened(sealedHeader, nil, nil, ping),
			"11 07 05 08 01020304 1112131415161718 00000000 0004 0000 0e000000"},
		{"bulk", buildOpened(Header{Type: TypeData, KeyEpoch: 255, Session: 9, PN: 1}, theBulk(), []byte("payload!"),
			ping),
			"11 ff 00 01 00000009 0000000000000001 00000000 0004 0000" +
				"01 3f 0008 21222324 31323334 41424344 5152535455565758 6162636465666768 71727374 f1c7e9e8" +
				hex.EncodeToString([]byte("payload!")) + "0e000000"},
		{"crypto", buildOpened(Header{Type: TypeCrypto, KeyEpoch: 1, Session: 9, PN: 2}, nil, nil,
			unhex(t, goldenCrypto)),
			"17 01 00 00 00000009 0000000000000002 00000000 000b 0000" + goldenCrypto},
	} {
		if want := unhex(t, c.golden); !bytes.Equal(c.frame, want) {
			t.Errorf("%s:\n got %s\nwant %s", c.name, hex.EncodeToString(c.frame), hex.EncodeToString(want))
		}
	}
	if MinSealed < EthLen+FixedLen+TagLen {
		t.Error("clause 10.5: a sealed frame without tail is shorter than the least length, and its tag could be " +
			"taken for padding")
	}
}

// Clause 2.2: the clear part tells what is needed to open the frame; what was sealed is told apart from what was not.
func TestClearPart(t *testing.T) {
	for _, b := range [][]byte{
		append(buildOpened(sealedHeader, nil, nil, nil), make([]byte, TagLen)...),
		append(buildOpened(sealedHeader, nil, nil, ping), bytes.Repeat([]byte{0xee}, TagLen)...),
	} {
		var h Header
		if err := h.DecodeClear(b); err != nil || h != sealedHeader || !Sealed(b) {
			t.Errorf("%v, sealed %v: %+v", err, Sealed(b), h)
		}
		for n := range FixedLen + TagLen {
			if err := h.DecodeClear(b[:n:n]); !errors.Is(err, ErrShort) {
				t.Errorf("%d bytes: %v, want %v", n, err, ErrShort)
			}
			if Sealed(b[:n:n]) != (n >= ClearLen) {
				t.Errorf("%d bytes are sealed: %v", n, Sealed(b[:n:n]))
			}
		}
	}
	if Sealed(build(plainHeader, nil, nil, ping)) {
		t.Error("a frame in plaintext passes for a sealed one")
	}
}

// Clause 2.7 for sealed frames; an opened frame may be padded (clause 2.4).
func TestOpenedTruncated(t *testing.T) {
	for _, b := range [][]byte{
		buildOpened(sealedHeader, nil, nil, ping),
		buildOpened(sealedHeader, theBulk(), []byte("payload!"), ping),
	} {
		var f Frame
		for n := range b {
			if err := f.DecodeOpened(b[:n:n]); err == nil {
				t.Errorf("%d of %d bytes decode", n, len(b))
			}
		}
		if err := f.DecodeOpened(append(b, 1, 2, 3)); err != nil || !bytes.Equal(f.Tail, ping) {
			t.Errorf("padded: %v, tail %x", err, f.Tail)
		}
	}
}

func TestSealedRefused(t *testing.T) {
	change := func(at int, v byte, bulk bool) []byte {
		b := buildOpened(sealedHeader, nil, nil, ping)
		if bulk {
			b = buildOpened(sealedHeader, theBulk(), []byte("payload!"), ping)
		}
		b[at] = v
		return b
	}
	shuffled := change(3, FlagBulk|FlagShuffled, true)
	shuffled[23] = 4
	for _, c := range []struct {
		name, clause string
		frame        []byte
		want         error
		clear        bool // the clear part alone shows it
	}{
		{"version 2", "2.2", change(0, 0x21, false), ErrVersion, true},
		{"no key epoch", "2.2", change(1, 0, false), ErrReserved, true},
		{"path 64", "1.2", change(2, 64, false), ErrReserved, true},
		{"flag 4", "2.2", change(3, 0x10, false), ErrReserved, true},
		{"PAYLOAD-SUM", "10.5", change(3, FlagBulk|FlagPayloadSum, true), ErrReserved, false},
		{"SHUFFLED", "10.5", shuffled, ErrReserved, false},
		{"a checksum", "10.5", change(19, 1, false), ErrReserved, false},
		{"byte 23 without SHUFFLED", "2.2", change(23, 1, true), ErrReserved, false},
		{"bulk kind 2", "2.3", change(FixedLen, 2, true), ErrReserved, false},
		{"bulk flag 6", "2.3, 6.2", change(FixedLen+1, 0x40, true), ErrReserved, false},
		{"bulk of 65535 in a short frame", "2.7", change(FixedLen+2, 0xff, true), ErrShort, false},
	} {
		var f Frame
		if err := f.DecodeOpened(c.frame); !errors.Is(err, c.want) {
			t.Errorf("%s (clause %s): %v, want %v", c.name, c.clause, err, c.want)
		}
		var h Header
		err := h.DecodeClear(append(c.frame, make([]byte, TagLen)...))
		if c.clear && !errors.Is(err, c.want) || !c.clear && err != nil {
			t.Errorf("%s (clause %s): the clear part decodes with %v", c.name, c.clause, err)
		}
	}
	var f Frame
	if err := f.Decode(buildOpened(sealedHeader, nil, nil, ping)); !errors.Is(err, ErrReserved) {
		t.Errorf("a sealed frame decodes as plaintext: %v", err)
	}
}
