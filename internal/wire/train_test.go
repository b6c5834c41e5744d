package wire

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"testing"
)

// trainFrame is a frame after its Ethernet header.
func trainFrame(h Header, b Bulk, payload, tail []byte, full bool) []byte {
	out := make([]byte, FixedLen+BulkLen, FixedLen+BulkLen+len(payload)+len(tail))
	h.Type, h.Flags, b.Len = TypeData, h.Flags|FlagBulk, uint16(len(payload))
	if full {
		h.Flags |= FlagPayloadSum
		b.Sum = Sum(0, payload)
	}
	PutBulk(out[FixedLen:], &b)
	Finish(out, &h, tail)
	return append(append(out, payload...), tail...)
}

// The headers of a frame without a tail are summed as all others (clause 2.5).
func TestBulkSum(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	b := make([]byte, FixedLen+BulkLen+8)
	for range 200 {
		for i := range b {
			b[i] = byte(rng.Uint32())
		}
		if got, want := bulkSum(b), Sum(Sum(0, b[:16]), b[20:FixedLen+BulkLen]); got != want {
			t.Fatalf("sum %08x of % x, want %08x", got, b, want)
		}
	}
}

// A train takes the frame behind the one before, whatever its length, and none that differs in anything else.
func TestTrain(t *testing.T) {
	for _, full := range []bool{false, true} {
		h := Header{Path: 3, Session: 0x01020304, PN: 7}
		b := Bulk{Kind: KindWrite, Flags: SegFirst | SegNotify, Conn: 5, Op: 6, Fence: 9, Key: 10, Place: 11, Imm: 1000}
		first := trainFrame(h, b, make([]byte, 100), []byte{0, 0, 0, 0}, full)
		var f Frame
		if err := f.Decode(first); err != nil {
			t.Fatal(err)
		}
		var tr Train
		if !tr.Begin(&f) || tr.PN() != 8 || tr.Follows() != 1000 {
			t.Fatalf("%+v", tr)
		}
		h.PN, b.Flags, b.Place, b.Imm = 8, SegNotify, 111, 700
		payload := bytes.Repeat([]byte{0xa5}, 300)
		next := trainFrame(h, b, payload, nil, full)
		if got := tr.Plain(next); !bytes.Equal(got, payload) {
			t.Errorf("full %v: the next frame is not taken: %d bytes", full, len(got))
		}
		if got := tr.Plain(append(bytes.Clone(next), 0, 0)); !bytes.Equal(got, payload) { // Ethernet's padding
			t.Errorf("full %v: with padding %d bytes", full, len(got))
		}
		for cut := range len(next) {
			if tr.Plain(next[:cut]) != nil {
				t.Errorf("full %v: a frame cut at %d is taken", full, cut)
			}
		}
		for bit := range 8 * len(next) {
			bad := bytes.Clone(next)
			bad[bit/8] ^= 1 << (bit % 8)
			switch at := bit / 8; {
			case at >= FixedLen+BulkLen && !full: // nothing sums the payload
			case at >= FixedLen+36 && at < FixedLen+BulkLen && !full: // nor does anything look at its sum
			case tr.Plain(bad) != nil:
				t.Errorf("full %v: bit %d of byte %d is wrong, and the frame is taken", full, bit%8, at)
			case at < 16 || at >= 20: // a frame that is as it was meant, but not the next
				binary.BigEndian.PutUint32(bad[16:], bulkSum(bad))
				if tr.Plain(bad) != nil {
					t.Errorf("full %v: bit %d of byte %d is another, and the frame is taken", full, bit%8, at)
				}
			}
		}
		tr.Advance(300)
		if tr.PN() != 9 || tr.Follows() != 700 || tr.Plain(next) != nil {
			t.Errorf("full %v: %+v", full, tr)
		}
	}
}

// Frames after which nothing certain comes begin no train.
func TestNoTrain(t *testing.T) {
	for name, f := range map[string]Frame{
		"no payload":      {Header: Header{Type: TypeData}, Bulk: Bulk{Imm: 1}},
		"the sender ends": {Header: Header{Type: TypeData, Flags: FlagBulk | FlagPush}, Bulk: Bulk{Imm: 1}},
		"shuffled":        {Header: Header{Type: TypeData, Flags: FlagBulk | FlagShuffled}, Bulk: Bulk{Imm: 1}},
		"last of its operation": {Header: Header{Type: TypeData, Flags: FlagBulk},
			Bulk: Bulk{Imm: 1, Flags: SegLast}},
		"says nothing of what is":   {Header: Header{Type: TypeData, Flags: FlagBulk}},
		"more than the field holds": {Header: Header{Type: TypeData, Flags: FlagBulk}, Bulk: Bulk{Imm: 1<<32 - 1}},
	} {
		if (&Train{}).Begin(&f) {
			t.Errorf("%s: a train", name)
		}
	}
}

// FuzzTrain has a train look at any frame behind any other: what it takes, Decode takes too, and finds the same.
func FuzzTrain(f *testing.F) {
	h := Header{Session: 1, PN: 7}
	b := Bulk{Kind: KindReadData, Conn: 5, Op: 6, Imm: 1000}
	first := trainFrame(h, b, make([]byte, 100), nil, true)
	h.PN, b.Place, b.Imm = 8, 100, 900
	next := trainFrame(h, b, make([]byte, 100), nil, true)
	f.Add(first, next)
	f.Add(first, first)
	f.Fuzz(func(t *testing.T, first, next []byte) {
		var x, y Frame
		var tr Train
		if x.Decode(first) != nil || !tr.Begin(&x) {
			return
		}
		if len(next) >= FixedLen+BulkLen { // or no fuzzer finds the sum
			binary.BigEndian.PutUint32(next[16:], bulkSum(next))
		}
		payload := tr.Plain(next)
		if payload == nil {
			return
		}
		if err := y.Decode(next); err != nil || !y.PayloadIntact() || !bytes.Equal(y.Payload, payload) ||
			len(y.Tail) > 0 {
			t.Fatalf("a train takes % x, Decode says %v", next, err)
		}
		z, b := y.Header, y.Bulk
		z.PN, z.TailLen = x.PN, x.TailLen
		b.Len, b.Imm, b.Place, b.Sum, b.Flags = x.Bulk.Len, x.Bulk.Imm, x.Bulk.Place, x.Bulk.Sum, x.Bulk.Flags
		if y.PN != x.PN+1 || y.Bulk.Place != x.Bulk.Place+uint64(x.Bulk.Len) ||
			uint64(y.Bulk.Imm)+uint64(len(payload)) != uint64(x.Bulk.Imm) || z != x.Header || b != x.Bulk ||
			y.Bulk.Flags != x.Bulk.Flags&^SegFirst {
			t.Fatalf("%+v behind %+v", y, x)
		}
	})
}
