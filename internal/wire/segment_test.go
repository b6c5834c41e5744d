package wire

import (
	"bytes"
	"encoding/hex"
	"errors"
	"strings"
	"testing"
)

// Clause 3.4: the layout of every segment is what the table in the specification says, byte for byte.
func TestSegmentLayout(t *testing.T) {
	for _, m := range messages {
		want := unhex(t, m.golden)
		got := m.seg.AppendTo(nil)
		if !bytes.Equal(got, want) {
			t.Errorf("%s (clause %s):\n got %s\nwant %s", m.name, m.clause, hex.EncodeToString(got),
				hex.EncodeToString(want))
		}
		if m.seg.Len() != len(want) {
			t.Errorf("%s (clause %s): Len says %d, the encoding has %d", m.name, m.clause, m.seg.Len(), len(want))
		}
	}
}

func TestSegmentRoundTrip(t *testing.T) {
	for _, m := range messages {
		var s Segment
		m.prime(t, &s)
		if rest, err := s.Next(unhex(t, m.golden)); err != nil || len(rest) != 0 || !equal(&s, &m.seg) {
			t.Errorf("%s (clause %s), alone: error %v, %d bytes left, %+v", m.name, m.clause, err, len(rest), s)
		}
		s = Segment{}
		m.prime(t, &s)
		rest, err := s.Next(append(unhex(t, m.golden), 0xEE))
		if err != nil || len(rest) != 1 || rest[0] != 0xEE {
			t.Errorf("%s (clause %s): error %v, %d bytes left, want the one behind it", m.name, m.clause, err,
				len(rest))
			continue
		}
		if !equal(&s, &m.seg) {
			t.Errorf("%s (clause %s):\n got %+v\nwant %+v", m.name, m.clause, s, m.seg)
		}
	}
}

// Clause 2.7: whatever is shorter than its own lengths say is malformed.
func TestSegmentTruncated(t *testing.T) {
	for _, m := range messages {
		b := unhex(t, m.golden)
		for n := range b {
			var s Segment
			m.prime(t, &s)
			if rest, err := s.Next(b[:n:n]); err == nil {
				t.Errorf("%s (clause %s): %d of %d bytes decode, leaving %d", m.name, m.clause, n, len(b), len(rest))
			}
		}
	}
}

// Clauses 2.7 and 3.4: reserved bits, fields that must be zero, and values beyond their limits are refused, whatever
// follows: not for being short.
func TestSegmentRefused(t *testing.T) {
	long := func(n int) string { return hex.EncodeToString(make([]byte, n)) }
	atomic := func(head, function string) string {
		return "13" + head + "00000001 00000002 0000000000000003 0000000000000008" + function + long(16)
	}
	for _, c := range []struct{ name, clause, bytes string }{
		{"unknown kind 30", "3.4", "1e 00 0000"},
		{"unknown kind 32", "3.4", "20 00 0000"},
		{"unknown kind 255", "3.4", "ff 00 0000"},
		{"pad flags", "3.4 kind 0", "00 01 0000"},
		{"write flag 6", "6.2", "01 40 0000 00000001 00000002 0000000000000003 0000000000000004"},
		{"write flag 7", "6.2", "01 83 0000 00000001 00000002 0000000000000003 0000000000000004"},
		{"write next without a write", "3.4 kind 2", "02 03 0000 0000000000000001"},
		{"read request with n", "3.4 kind 3",
			"03 03 0001 00000001 00000002 0000000000000003 0000000000000004 0000000000000005 00"},
		{"read request flag 7", "6.2",
			"03 83 0000 00000001 00000002 0000000000000003 0000000000000004 0000000000000005"},
		{"read data flag 6", "6.2", "04 40 0000 00000001 00000002 0000000000000003"},
		{"op ack u16", "3.4 kind 5", "05 00 0001 00000001 00000002 00000003"},
		{"op ack u16 high", "3.4 kind 5", "05 00 0100 00000001 00000002 00000003"},
		{"op nak u16", "3.4 kind 6", "06 01 0001 00000001 00000002 00"},
		{"op nak of success", "6.9", "06 00 0000 00000001 00000002"},
		{"ack path 64", "1.2, 3.4 kind 7", "07 40 00 00 00000000 0000000000000001 0000000000000002"},
		{"ack flag 2", "3.4 kind 7", "07 00 04 00 00000000 0000000000000001 0000000000000002"},
		{"ack floor above largest+1", "8.1", "07 00 00 00 00000000 0000000000000001 0000000000000003"},
		{"ack floor largest+1 with a bitmap", "8.1",
			"07 00 00 01 00000000 0000000000000001 0000000000000002 0000000000000001"},
		{"open flag 2", "5.3", "08 04 0002 00000001 00000002 01 61"},
		{"open without room for the name length", "3.4 kind 8", "08 00 0000 00000001 00000002 00"},
		{"open name longer than n", "3.4 kind 8", "08 00 0002 00000001 00000002 02 6161"},
		{"open name of 65", "3.4 kind 8", "08 00 0042 00000001 00000002 41" + long(65)},
		{"open private data of 513", "5.2", "08 00 0203 00000001 00000002 01 61" + long(513)},
		{"accept u8", "3.4 kind 9", "09 01 0000 00000001 00000002 00000003"},
		{"accept private data of 513", "5.2", "09 00 0201 00000001 00000002 00000003" + long(513)},
		{"refuse text of 513", "3.4 kind 10", "0a 09 0201 00000001" + long(513)},
		{"close flag 1", "3.4 kind 11", "0b 00 0002 00000001"},
		{"close flag 8", "3.4 kind 11", "0b 00 0100 00000001"},
		{"advert name of 65", "3.4 kind 12", "0c 03 0041 00000001 00000000 0000000000000002 0000000000000003" +
			long(65)},
		{"advert permission 8", "3.4 kind 12", "0c 08 0001 00000001 00000000 0000000000000002 0000000000000003 61"},
		{"withdraw u8", "3.4 kind 13", "0d 01 0000 00000001 00000000 0000000000000002"},
		{"withdraw u16", "3.4 kind 13", "0d 00 0001 00000001 00000000 0000000000000002 00"},
		{"ping u8", "3.4 kind 14", "0e 01 0000"},
		{"ping u16", "3.4 kind 14", "0e 00 0001 00"},
		{"probe u8", "3.4 kind 15", "0f 01 0000 0000000000000001"},
		{"probe u16", "3.4 kind 15", "0f 00 0001 0000000000000001 00"},
		{"echo u8", "3.4 kind 16", "10 01 0000 0000000000000001"},
		{"echo u16", "3.4 kind 16", "10 00 8000 0000000000000001"},
		{"echo of 5 bytes", "9.3", "10 00 0005 0000000000000001 0000000000"},
		{"send flag 7", "6.2, 14.1", "15 83 0000 00000001 00000002 00000003 00000004"},
		{"send next without a send", "14.1", "16 03 0000"},
		{"tell flag 7", "6.2, 14.9", "1d 93 0000 00000001 00000002 00000003 00000004 00000005"},
		{"tell with bytes", "14.9", "1d 13 0001 00000001 00000002 00000003 00000004 00000005 00"},
		{"tell without an immediate", "14.9", "1d 03 0000 00000001 00000002 00000003 00000004"},
		{"first part of a tell", "14.9", "1d 11 0000 00000001 00000002 00000003 00000004 00000005"},
		{"last part of a tell", "14.9", "1d 12 0000 00000001 00000002 00000003 00000004 00000005"},
		{"credit flag 1", "14.5", "17 02 0000 00000001 00000002"},
		{"credit u16", "14.4", "17 00 0001 00000001 00000002 00"},
		{"want u8", "14.5", "18 01 0000 00000001 00000002"},
		{"keys flag 1", "10.6", "12 02 0020 00000007" + long(32)},
		{"keys of 31 bytes", "10.6", "12 00 001f 00000007" + long(31)},
		{"keys of 33 bytes", "10.6", "12 00 0021 00000007" + long(33)},
		{"atomic function 0", "13.2", atomic("03 0008", "00 08 0000")},
		{"atomic function 11", "13.2", atomic("03 0008", "0b 08 0000")},
		{"atomic of 2 bytes", "13.1", atomic("03 0008", "01 02 0000")},
		{"atomic u16 of zeros", "13.1", atomic("03 0008", "01 08 0001")},
		{"swap of two operands", "13.1", atomic("03 0010", "01 08 0000")},
		{"compare-and-swap of one", "13.1", atomic("03 0008", "02 08 0000")},
		{"atomic result u8", "13.1", "14 01 0008 00000001 00000002 0000000000000000"},
		{"atomic result of 4 bytes", "13.1", "14 00 0004 00000001 00000002 00000000"},
		{"link 64", "1.2, 3.4 kind 17", "11 40 0100 01020304 00002328 004e 020000000001"},
		{"link of MTU 639", "9.2, 10.4", "11 00 0100 01020304 0000027f 004e 020000000001"},
	} {
		t.Run(c.name, func(t *testing.T) { refused(t, c.clause, unhex(t, c.bytes)) })
	}
}

// refused wants a segment to be refused, also with more behind it.
func refused(t *testing.T, clause string, b []byte) {
	for _, b := range [][]byte{b, append(b, make([]byte, 1024)...)} {
		var s Segment
		if rest, err := s.Next(b); err == nil {
			t.Errorf("clause %s: accepted as %+v, %d bytes left", clause, s, len(rest))
		} else if !errors.Is(err, ErrSegment) && !errors.Is(err, ErrReserved) && !errors.Is(err, ErrKind) {
			t.Errorf("clause %s: unexpected error %v", clause, err)
		}
	}
}

// Clause 18: what of composed messages no peer may say.
func TestEagerSegmentsRefused(t *testing.T) {
	for _, c := range []struct{ name, clause, bytes string }{
		{"stage of nothing", "18.2", "19 00 0000 00000001 00000002 00000001 00000000 00000040"},
		{"stage u8", "18.2", "19 01 0001 00000001 00000002 00000001 00000000 00000001 61"},
		{"stage without a stamp", "18.2", "19 00 0001 00000001 00000002 00000000 00000000 00000001 61"},
		{"stage in the middle of a block", "18.2", "19 00 0001 00000001 00000002 00000001 00000001 00000002 61"},
		{"stage of less than a block", "18.2", "19 00 0001 00000001 00000002 00000001 00000000 00000002 61"},
		{"stage beyond the end", "18.2", "19 00 0002 00000001 00000002 00000001 00000000 00000001 6161"},
		{"stage of a block beyond the end", "18.2", "19 00 0080 00000001 00000002 00000001 00000000 00000040" +
			strings.Repeat("61", 128)},
		{"stage of 65537 bytes", "18.1", "19 00 0001 00000001 00000002 00000001 00010000 00010001 61"},
		{"commit of half an operation", "18.4",
			"1a 01 0008 00000001 00000002 0000000000000003 0000000000000004 00000005 01000006 00000006" +
				" 0000000000000000"},
		{"commit flag 7", "18.4",
			"1a 83 0008 00000001 00000002 0000000000000003 0000000000000004 00000005 01000006 00000006" +
				" 0000000000000000"},
		{"commit of a strict write", "18.4",
			"1a 43 0008 00000001 00000002 0000000000000003 0000000000000004 00000005 01000006 00000006" +
				" 0000000000000000"},
		{"commit of a read", "18.4",
			"1a 03 0008 00000001 00000002 0000000000000003 0000000000000004 00000005 03000006 00000006" +
				" 0000000000000000"},
		{"commit of more than the message", "18.4",
			"1a 03 0008 00000001 00000002 0000000000000003 0000000000000004 00000005 01000006 00000007" +
				" 0000000000000000"},
		{"commit of 65537 bytes", "18.1",
			"1a 03 0008 00000001 00000002 0000000000000003 0000000000000004 00000005 01010001 00000006" +
				" 0000000000000000"},
		{"commit of none", "18.1",
			"1a 03 0008 00000001 00000002 0000000000000003 0000000000000004 00000005 01000000 00000000" +
				" 0000000000000000"},
		{"commit of a send with a place", "18.4",
			"1a 03 0008 00000001 00000002 0000000000000003 0000000000000004 00000005 15000006 00000006" +
				" 0000000000000000"},
		{"commit of a send with a key", "18.4",
			"1a 03 0008 00000001 00000002 0000000100000003 0000000000000000 00000005 15000006 00000006" +
				" 0000000000000000"},
		{"commit without a sum", "18.4",
			"1a 03 0000 00000001 00000002 0000000000000003 0000000000000004 00000005 01000006 00000006"},
		{"discard u8", "18.5", "1b 01 0000 00000001 00000002"},
		{"discard u16", "18.5", "1b 00 0001 00000001 00000002 00"},
		{"unstaged u8", "18.5", "1c 01 0000 00000001 00000002"},
	} {
		var s Segment
		if _, err := s.Next(unhex(t, c.bytes)); !errors.Is(err, ErrReserved) {
			t.Errorf("%s, clause %s: accepted as %+v, or error %v", c.name, c.clause, s, err)
		}
	}
}

// Limits themselves are allowed: clause 5.2 says at most 512 bytes, clause 3.4 names of up to 64.
func TestSegmentLimits(t *testing.T) {
	name, data := bytes.Repeat([]byte{'n'}, 64), bytes.Repeat([]byte{'d'}, 512)
	for _, s := range []Segment{
		{Kind: KindOpen, From: 1, Window: 2, Name: name, Data: data},
		{Kind: KindAccept, Conn: 1, From: 1, Window: 2, Data: data},
		{Kind: KindRefuse, Status: 9, Conn: 1, Data: data},
		{Kind: KindAdvert, Perm: 3, Conn: 1, Key: 1, Size: 2, Name: name},
		{Kind: KindAck, Path: 63, Flags: AckNack, Size: 1 << 63, Place: 1<<63 - 64*255, Data: make([]byte, 8*MaxWords)},
		{Kind: KindAck, Flags: AckNack | AckMarks, Size: 9, Window: 1<<32 - 1, Limit: 1,
			Data: make([]byte, 8*MaxWords)},
		{Kind: KindOpAck, Conn: 1, Op: 1, Limit: 1, Data: make([]byte, 8*MaxWords)},
		{Kind: KindWrite, Conn: 1, Op: 1, Data: make([]byte, 65000)},
		{Kind: KindPad, Data: make([]byte, 65500)},
		{Kind: KindAtomic, Conn: 1, Op: 1, Size: AtomicSize(AtomicSwap, 4), Data: make([]byte, 8)},
		{Kind: KindAtomic, Conn: 1, Op: 1, Size: AtomicSize(AtomicMaxSigned, 8), Data: make([]byte, 8)},
		{Kind: KindStage, Conn: 1, Op: 1, Stamp: 1, Place: MaxStaged - 64, Size: MaxStaged, Data: make([]byte, 64)},
		{Kind: KindStage, Conn: 1, Op: 1, Stamp: 1, Place: 64, Size: 256, Data: make([]byte, 64)},
		{Kind: KindCommit, Flags: SegFirst | SegLast, Status: uint8(KindSend), Conn: 1, Op: 1, Size: MaxStaged,
			Bytes: MaxStaged, Data: make([]byte, 8)},
	} {
		var got Segment
		if rest, err := got.Next(s.AppendTo(nil)); err != nil || len(rest) != 0 || !equal(&got, &s) {
			t.Errorf("kind %d at its limits: error %v, %d bytes left", s.Kind, err, len(rest))
		}
	}
}

// Clause 8.1: the largest packet number there is does not wrap the check of the floor.
func TestAckAtTheEndOfNumbers(t *testing.T) {
	for _, c := range []struct {
		largest, floor uint64
		words          int
		ok             bool
	}{{0, 0, 0, true}, {0, 0, 1, true}, {0, 1, 0, true}, {0, 1, 1, false}, {0, 2, 0, false},
		{^uint64(0), ^uint64(0), 1, true}, {^uint64(0) - 1, ^uint64(0), 0, true}} {
		s := Segment{Kind: KindAck, Size: c.largest, Place: c.floor, Data: make([]byte, 8*c.words)}
		if _, err := s.Next(s.AppendTo(nil)); (err == nil) != c.ok {
			t.Errorf("largest %d floor %d, %d words: error %v, want accepted %v", c.largest, c.floor, c.words, err,
				c.ok)
		}
	}
}

// Clause 3.4 kind 2: a run of WriteNext counts operations from the Write, and nothing but a Write or WriteNext may
// stand before one.
func TestWriteNextChain(t *testing.T) {
	write := Segment{Kind: KindWrite, Flags: SegFirst | SegLast | SegFenced, Conn: 5, Op: 0xfffffffe, Fence: 3, Key: 6,
		Place: 7, Data: []byte{1}}
	b := write.AppendTo(nil)
	for i := range 4 {
		next := Segment{Kind: KindWriteNext, Flags: SegFirst | SegLast | SegFenced, Place: uint64(i),
			Data: []byte{byte(i)}}
		b = next.AppendTo(b)
	}
	var s Segment
	for i := 0; len(b) > 0; i++ {
		var err error
		if b, err = s.Next(b); err != nil {
			t.Fatal(err)
		}
		if s.Op != 0xfffffffe+uint32(i) || s.Conn != 5 || s.Key != 6 || s.Fence != 3 {
			t.Errorf("segment %d resolves to %+v", i, s)
		}
	}
	for _, m := range messages {
		var s Segment
		m.prime(t, &s)
		s.Next(unhex(t, m.golden))
		_, err := s.Next(unhex(t, "02 03 0000 0000000000000001"))
		if may := m.seg.Kind == KindWrite || m.seg.Kind == KindWriteNext; (err == nil) != may {
			t.Errorf("WriteNext behind %s: error %v, want allowed %v", m.name, err, may)
		}
	}
	s = Segment{Kind: KindWrite}
	if _, err := s.Next(unhex(t, "02 43 0000 0000000000000001")); err == nil {
		t.Error("a WriteNext with flag 6 is accepted")
	}
}

// Clause 14.1: a SendNext is a whole message behind a Send or SendNext, with the next numbers, which wrap.
func TestSendNextChain(t *testing.T) {
	send := Segment{Kind: KindSend, Flags: SegFirst | SegLast | SegFenced, Conn: 5, Op: 0xfffffffe, Fence: 3,
		Key: 0xfffffffd, Data: []byte{1}}
	b := send.AppendTo(nil)
	for i := range 4 {
		b = (&Segment{Kind: KindSendNext, Flags: SegFirst | SegLast | SegFenced, Data: []byte{byte(i)}}).AppendTo(b)
	}
	var s Segment
	for i := 0; len(b) > 0; i++ {
		var err error
		if b, err = s.Next(b); err != nil {
			t.Fatal(err)
		}
		if s.Op != 0xfffffffe+uint32(i) || s.Key != uint64(0xfffffffd+uint32(i)) || s.Conn != 5 || s.Fence != 3 ||
			s.Place != 0 {
			t.Errorf("segment %d resolves to %+v", i, s)
		}
	}
	for _, m := range messages {
		var s Segment
		m.prime(t, &s)
		s.Next(unhex(t, m.golden))
		_, err := s.Next(unhex(t, "16 03 0000"))
		if may := m.seg.Kind == KindSend || m.seg.Kind == KindSendNext; (err == nil) != may {
			t.Errorf("SendNext behind %s: error %v, want allowed %v", m.name, err, may)
		}
	}
	for _, bad := range []string{"16 01 0000", "16 83 0000"} { // not whole; flag 7
		s = Segment{Kind: KindSend}
		if _, err := s.Next(unhex(t, bad)); err == nil {
			t.Errorf("SendNext %s is accepted", bad)
		}
	}
}

// PutAck and PutOpAck write what AppendTo would.
func TestPutAck(t *testing.T) {
	words := []uint64{0x8000000000000001, 2}
	s := Segment{Path: 3, Flags: AckNack, Delay: 9, Size: 200, Place: 100}
	b := make([]byte, ackLen+16)
	PutAck(b, &s, words)
	var got Segment
	if rest, err := got.Next(b); err != nil || len(rest) != 0 || got.Words() != 2 || got.Word(0) != words[0] ||
		got.Word(1) != words[1] || got.Size != 200 {
		t.Errorf("PutAck: %v %+v", err, got)
	}
	s = Segment{Conn: 1, Op: 2, Limit: 3}
	b = make([]byte, opAckLen+16)
	PutOpAck(b, &s, 2, func(i int) bool { return i == 0 || i == 63 || i == 65 })
	if rest, err := got.Next(b); err != nil || len(rest) != 0 || got.Words() != 2 || got.Word(0) != words[0] ||
		got.Word(1) != words[1] {
		t.Errorf("PutOpAck: %v %+v", err, got)
	}
}

// The short way to a WriteNext is as long as it says, and the same bytes.
func TestAppendWriteNext(t *testing.T) {
	for _, flags := range []uint8{0, SegFirst | SegLast, SegNotify, SegFenced | SegNotify | SegForward} {
		for n := range 20 {
			s := Segment{Kind: KindWriteNext, Flags: flags, Place: 1 << 40, Imm: 7, Data: bytes.Repeat([]byte{9}, n)}
			short, long := AppendWriteNext([]byte{1}, flags, s.Place, s.Imm, s.Data), s.AppendTo([]byte{1})
			if size := WriteNextLen(flags, n); !bytes.Equal(short, long) || len(short) != 1+size || s.Len() != size {
				t.Errorf("flags %#x, %d bytes: %x, want %x; lengths %d and %d", flags, n, short, long, size, s.Len())
			}
		}
	}
}
