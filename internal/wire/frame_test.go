package wire

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"testing"
)

// build lays out a whole frame as the engine does, without its Ethernet header.
func build(h Header, bulk *Bulk, payload, tail []byte) []byte {
	b := make([]byte, FixedLen)
	if bulk != nil {
		h.Flags |= FlagBulk
		bulk.Len = uint16(len(payload))
		b = append(b, make([]byte, BulkLen)...)
		PutBulk(b[FixedLen:], bulk)
	}
	Finish(b, &h, tail)
	return append(append(b, payload...), tail...)
}

var (
	plainHeader = Header{Type: TypeData, Path: 5, Flags: FlagPush, Session: 0x01020304, PN: 0x1112131415161718}
	ping        = []byte{byte(KindPing), 0, 0, 0}
)

func theBulk() *Bulk {
	return &Bulk{
		Kind: KindWrite, Flags: segFlagsKnown, Conn: 0x21222324, Op: 0x31323334, Fence: 0x41424344,
		Key: 0x5152535455565758, Place: 0x6162636465666768,
		Imm: 0x71727374, Sum: Sum(0, []byte("payload!")),
	}
}

// Clauses 2.2 to 2.5: the layout, with the checksums of this very frame.
func TestFrameLayout(t *testing.T) {
	for _, c := range []struct {
		name   string
		frame  []byte
		golden string
	}{
		{"tail only", build(plainHeader, nil, nil, ping),
			"11 00 05 08 01020304 1112131415161718 9178fb3e 0004 0000 0e000000"},
		{"bulk", build(Header{Type: TypeData, Flags: FlagPayloadSum, Session: 9, PN: 1}, theBulk(), []byte("payload!"),
			ping),
			"11 00 00 03 00000009 0000000000000001 4377eb34 0004 0000" +
				"01 3f 0008 21222324 31323334 41424344 5152535455565758 6162636465666768 71727374 f1c7e9e8" +
				hex.EncodeToString([]byte("payload!")) + "0e000000"},
		{"bulk shuffled", build(Header{Type: TypeData, Flags: FlagPayloadSum | FlagShuffled, Shuffle: 78, Session: 9,
			PN: 1}, theBulk(), []byte("payload!"), ping),
			"11 00 00 07 00000009 0000000000000001 ad842510 0004 004e" +
				"01 3f 0008 21222324 31323334 41424344 5152535455565758 6162636465666768 71727374 f1c7e9e8" +
				hex.EncodeToString([]byte("payload!")) + "0e000000"},
		{"hello", build(Header{Type: TypeHello, Path: 63}, nil, nil, unhex(t, goldenHello)),
			"12 00 3f 00 00000000 0000000000000000 3045943d 001e 0000" + goldenHello},
	} {
		if want := unhex(t, c.golden); !bytes.Equal(c.frame, want) {
			t.Errorf("%s:\n got %s\nwant %s", c.name, hex.EncodeToString(c.frame), hex.EncodeToString(want))
		}
	}
	if HeadLen != 78 || TailStart != 38 || HeadLen-EthLen != 64 {
		t.Error("clause 2.3: a bulk payload starts 64 bytes after the Ethernet header")
	}
}

func TestFrameRoundTrip(t *testing.T) {
	var f Frame
	b := build(Header{Type: TypeData, Flags: FlagPayloadSum | FlagShuffled, Shuffle: 78, Path: 63, Session: 9,
		PN: ^uint64(0)}, theBulk(), []byte("payload!"), ping)
	padded := append(append([]byte(nil), b...), make([]byte, 30)...) // clause 2.4: Ethernet padding is ignored
	for _, b := range [][]byte{b, padded} {
		if err := f.Decode(b); err != nil {
			t.Fatal(err)
		}
		want := theBulk()
		want.Len = 8
		if f.PN != ^uint64(0) || f.Path != 63 || f.Session != 9 || f.Shuffle != 78 ||
			f.Flags != FlagBulk|FlagPayloadSum|FlagShuffled || f.Bulk != *want ||
			string(f.Payload) != "payload!" || !bytes.Equal(f.Tail, ping) || !f.PayloadIntact() {
			t.Errorf("decoded %+v", f)
		}
	}
	if err := f.Decode(build(plainHeader, theBulk(), nil, nil)); err != nil || len(f.Payload)+len(f.Tail) != 0 {
		t.Errorf("a frame with an empty bulk segment: %v, %+v", err, f)
	}
	if err := f.Decode(build(plainHeader, nil, nil, nil)); err != nil || f.Payload != nil || len(f.Tail) != 0 {
		t.Errorf("a frame without bulk and tail: %v, payload %v left from the frame before", err, f.Payload)
	}
}

// Clause 14.6: a long send can be strict as a short one can.
func TestFrameStrictSend(t *testing.T) {
	want := theBulk()
	want.Kind, want.Flags, want.Len = KindSend, SegFirst|SegStrict, 8
	var f Frame
	err := f.Decode(build(Header{Type: TypeData, Session: 9}, want, []byte("payload!"), ping))
	if err != nil || f.Bulk != *want {
		t.Errorf("decoded %+v, %v", f.Bulk, err)
	}
	want.Flags |= 1 << 7
	if err := f.Decode(build(Header{Type: TypeData, Session: 9}, want, []byte("payload!"), ping)); err != ErrReserved {
		t.Errorf("bulk flag 7 of a send: %v", err)
	}
}

// Clause 2.7: every truncation is refused, whether it cuts a header, the payload or the tail.
func TestFrameTruncated(t *testing.T) {
	for _, b := range [][]byte{
		build(plainHeader, nil, nil, ping),
		build(Header{Type: TypeData, Flags: FlagPayloadSum, Session: 9}, theBulk(), []byte("payload!"), ping),
	} {
		for n := range b {
			var f Frame
			if err := f.Decode(b[:n:n]); err == nil {
				t.Errorf("%d of %d bytes decode", n, len(b))
			}
		}
	}
}

// Clause 2.5: one wrong bit anywhere in headers or tail fails the header checksum or an earlier check; in the payload,
// the payload's.
func TestFrameEveryBit(t *testing.T) {
	b := build(Header{Type: TypeData, Flags: FlagPayloadSum, Session: 9, PN: 77}, theBulk(), []byte("payload!"), ping)
	for i := range 8 * len(b) {
		b[i/8] ^= 1 << (i % 8)
		var f Frame
		if err := f.Decode(b); err == nil && f.PayloadIntact() {
			t.Errorf("bit %d of byte %d flipped: accepted", i%8, i/8)
		}
		b[i/8] ^= 1 << (i % 8)
	}
}

// reseal recomputes the header checksum after a test changed the frame.
func reseal(b []byte) []byte {
	tail := int(binary.BigEndian.Uint16(b[20:]))
	binary.BigEndian.PutUint32(b[16:], headSum(b, b[3], b[len(b)-tail:]))
	return b
}

func TestFrameRefused(t *testing.T) {
	change := func(at int, v byte, bulk bool) []byte {
		b := build(plainHeader, nil, nil, ping)
		if bulk {
			b = build(plainHeader, theBulk(), []byte("payload!"), ping)
		}
		b[at] = v
		return reseal(b)
	}
	for _, c := range []struct {
		name, clause string
		frame        []byte
		want         error
	}{
		{"version 0", "2.2", change(0, 0x01, false), ErrVersion},
		{"version 2", "2.2", change(0, 0x21, false), ErrVersion},
		{"key epoch while in plaintext", "2.2", change(1, 1, false), ErrReserved},
		{"path 64", "1.2", change(2, 64, false), ErrReserved},
		{"flag 4", "2.2", change(3, 0x10, false), ErrReserved},
		{"flag 7", "2.2", change(3, 0x80, false), ErrReserved},
		{"byte 22 without SHUFFLED", "2.2", change(22, 1, false), ErrReserved},
		{"byte 23 without SHUFFLED", "2.2", change(23, 1, true), ErrReserved},
		{"SHUFFLED by nothing", "2.6", change(3, FlagBulk|FlagShuffled, true), ErrReserved},
		{"bulk kind 2", "2.3", change(FixedLen, 2, true), ErrReserved},
		{"bulk kind 0", "2.3", change(FixedLen, 0, true), ErrReserved},
		{"bulk kind 32", "2.3", change(FixedLen, MaxKinds, true), ErrReserved},
		{"bulk kind 255", "2.3", change(FixedLen, 255, true), ErrReserved},
		{"bulk flag 6", "2.3, 6.2", change(FixedLen+1, 0x40, true), ErrReserved},
		{"bulk of 65535 in a short frame", "2.7", change(FixedLen+2, 0xff, true), ErrShort},
		{"wrong checksum", "2.5", func() []byte { b := change(3, 0, false); b[16]++; return b }(), ErrHeadSum},
		{"empty", "2.7", nil, ErrShort},
	} {
		var f Frame
		if err := f.Decode(c.frame); !errors.Is(err, c.want) {
			t.Errorf("%s (clause %s): %v, want %v", c.name, c.clause, err, c.want)
		}
	}
}

// Clause 2.5: without PAYLOAD-SUM the payload is trusted to the link.
func TestPayloadSumOptional(t *testing.T) {
	var f Frame
	b := build(Header{Type: TypeData}, theBulk(), []byte("another."), nil)
	if err := f.Decode(b); err != nil || !f.PayloadIntact() {
		t.Errorf("%v: a frame without PAYLOAD-SUM must not be judged by it", err)
	}
	b = build(Header{Type: TypeData, Flags: FlagPayloadSum}, theBulk(), []byte("another."), nil)
	if err := f.Decode(b); err != nil || f.PayloadIntact() {
		t.Errorf("%v: a wrong payload passes", err)
	}
}

// Nothing on the packet path allocates.
func TestAllocations(t *testing.T) {
	b := build(Header{Type: TypeData, Flags: FlagPayloadSum}, theBulk(), []byte("payload!"), ping)
	var f Frame
	zero := func(name string, do func()) {
		if n := testing.AllocsPerRun(100, do); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
	zero("Frame.Decode", func() {
		if f.Decode(b) != nil || !f.PayloadIntact() {
			panic("refused")
		}
	})
	h, bulk := plainHeader, theBulk()
	zero("PutBulk and Finish", func() { PutBulk(b[FixedLen:], bulk); Finish(b, &h, ping) })
	var tail []byte
	for i := range messages {
		if m := &messages[i]; m.before == "" {
			tail = m.seg.AppendTo(tail)
		}
	}
	var s Segment
	zero("Segment.Next", func() {
		for rest := tail; len(rest) > 0; {
			var err error
			if rest, err = s.Next(rest); err != nil {
				panic(err)
			}
		}
	})
	buf := make([]byte, 0, 1024)
	zero("Segment.AppendTo", func() {
		for i := range messages {
			buf = messages[i].seg.AppendTo(buf[:0])
		}
	})
	words := []uint64{1, 2}
	zero("PutAck and PutOpAck", func() {
		PutAck(buf[:ackLen+16], &s, words)
		PutOpAck(buf[:opAckLen+16], &s, 2, func(i int) bool { return i&1 == 0 })
	})
	hello, body := unhex(t, goldenInit), Init{}
	zero("Init", func() {
		if body.Decode(hello) != nil {
			panic("refused")
		}
		buf = body.AppendTo(buf[:0])
	})
}
