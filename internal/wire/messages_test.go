package wire

import (
	"bytes"
	"encoding/hex"
	"strings"
	"testing"
)

// message is one tail segment with its bytes as docs/PROTOCOL.md lays them out (clause 3.4).
type message struct {
	name   string
	clause string
	seg    Segment
	golden string // hexadecimal, blanks between the fields
	before string // segment that must stand before it in the frame
}

var messages = []message{
	{"pad", "3.4 kind 0", Segment{Kind: KindPad, Data: []byte{0, 0, 0}}, "00 00 0003 000000", ""},
	{"write", "3.4 kind 1", Segment{Kind: KindWrite, Flags: SegFirst | SegLast, Conn: 0x01020304, Op: 0x05060708,
		Key: 0x1112131415161718, Place: 0x2122232425262728, Data: []byte("abc")},
		"01 03 0003 01020304 05060708 1112131415161718 2122232425262728 616263", ""},
	{"write of nothing", "3.4 kind 1", Segment{Kind: KindWrite, Flags: SegFirst | SegLast, Conn: 1, Op: 0xffffffff,
		Key: 2, Place: 3},
		"01 03 0000 00000001 ffffffff 0000000000000002 0000000000000003", ""},
	{"write fenced, notify", "6.2, 6.6, 6.8", Segment{Kind: KindWrite, Flags: segFlagsKnown, Conn: 1, Op: 2,
		Fence: 0xa1a2a3a4, Key: 3, Place: ^uint64(7), Imm: 0xb1b2b3b4, Data: []byte{9}},
		"01 3f 0001 00000001 00000002 a1a2a3a4 0000000000000003 fffffffffffffff8 b1b2b3b4 09", ""},
	{"write fenced", "6.6", Segment{Kind: KindWrite, Flags: SegFenced, Conn: 1, Op: 2, Fence: 1, Key: 3, Place: 4,
		Data: []byte{9}},
		"01 20 0001 00000001 00000002 00000001 0000000000000003 0000000000000004 09", ""},
	{"write next", "3.4 kind 2", Segment{Kind: KindWriteNext, Flags: SegFirst | SegLast, Conn: 0x01020304,
		Op: 0x05060709, Key: 0x1112131415161718, Place: 0x31, Data: []byte("de")},
		"02 03 0002 0000000000000031 6465", "01 03 0000 01020304 05060708 1112131415161718 0000000000000000"},
	{"write next notify", "3.4 kind 2", Segment{Kind: KindWriteNext, Flags: SegNotify, Conn: 1, Op: 0, Key: 2, Place: 5,
		Imm: 0x61626364},
		"02 10 0000 0000000000000005 61626364", "01 03 0000 00000001 ffffffff 0000000000000002 0000000000000003"},
	{"read request", "3.4 kind 3", Segment{Kind: KindReadRequest, Flags: SegFirst | SegLast, Conn: 1, Op: 2, Key: 3,
		Place: 4, Size: 0x0102030405060708},
		"03 03 0000 00000001 00000002 0000000000000003 0000000000000004 0102030405060708", ""},
	{"read request fenced, notify", "3.4 kind 3", Segment{Kind: KindReadRequest,
		Flags: SegFenced | SegNotify | SegBackward, Conn: 1, Op: 2, Fence: 0xc1, Key: 3, Place: 4, Size: 5, Imm: 0xd1},
		"03 34 0000 00000001 00000002 000000c1 0000000000000003 0000000000000004 0000000000000005 000000d1", ""},
	{"read data", "3.4 kind 4", Segment{Kind: KindReadData, Flags: SegFirst | SegLast, Conn: 1, Op: 2, Place: 3,
		Data: []byte("xy")},
		"04 03 0002 00000001 00000002 0000000000000003 7879", ""},
	{"op ack", "7.1", Segment{Kind: KindOpAck, Conn: 1, Op: 0xfffffffe, Limit: 0x10},
		"05 00 0000 00000001 fffffffe 00000010", ""},
	{"op ack of two words", "7.1", Segment{Kind: KindOpAck, Conn: 1, Op: 2, Limit: 3, Data: []byte{0, 0, 0, 0, 0, 0, 0,
		1, 0x80, 0, 0, 0, 0, 0, 0, 0}},
		"05 02 0000 00000001 00000002 00000003 0000000000000001 8000000000000000", ""},
	{"op nak", "6.9", Segment{Kind: KindOpNak, Status: 4, Conn: 1, Op: 2}, "06 04 0000 00000001 00000002", ""},
	{"ack", "8.1", Segment{Kind: KindAck, Path: 63, Delay: 0x01020304, Size: 41, Place: 42},
		"07 3f 00 00 01020304 0000000000000029 000000000000002a", ""},
	{"ack with gap", "8.1, 8.3", Segment{Kind: KindAck, Path: 1, Flags: AckNack, Size: 0x99, Place: 0x90,
		Data: []byte{0, 0, 0, 0, 0, 0, 2, 0xaa}},
		"07 01 01 01 00000000 0000000000000099 0000000000000090 00000000000002aa", ""},
	{"ack with marks", "8.1, 21.12", Segment{Kind: KindAck, Path: 1, Flags: AckMarks, Size: 0x99, Place: 0x90,
		Window: 7, Limit: 0x01020304, Data: []byte{0, 0, 0, 0, 0, 0, 2, 0xaa}},
		"07 01 02 01 00000000 0000000000000099 0000000000000090 00000007 01020304 00000000000002aa", ""},
	{"open", "5.1, 5.2", Segment{Kind: KindOpen, From: 7, Window: 1024, Name: []byte("kv"), Data: []byte("hi")},
		"08 00 0005 00000007 00000400 02 6b76 6869", ""},
	{"open ordered", "5.3", Segment{Kind: KindOpen, Flags: OpenOrdered, From: 7, Window: 2, Name: []byte("s")},
		"08 01 0002 00000007 00000002 01 73", ""},
	{"open overlapping", "5.3", Segment{Kind: KindOpen, Flags: OpenOrdered | OpenOverlap, From: 7, Window: 2,
		Name: []byte("s")}, "08 03 0002 00000007 00000002 01 73", ""},
	{"accept", "5.1, 5.2", Segment{Kind: KindAccept, Conn: 7, From: 9, Window: 1024, Data: []byte("ok")},
		"09 00 0002 00000007 00000009 00000400 6f6b", ""},
	{"refuse", "5.1", Segment{Kind: KindRefuse, Status: 9, Conn: 7, Data: []byte("no")}, "0a 09 0002 00000007 6e6f",
		""},
	{"close", "5.4", Segment{Kind: KindClose, Status: 11, Conn: 7}, "0b 0b 0000 00000007", ""},
	{"close unanswered", "5.4", Segment{Kind: KindClose, Flags: CloseUnanswered, Status: 12, Conn: 7},
		"0b 0c 0001 00000007", ""},
	{"advert", "5.6", Segment{Kind: KindAdvert, Perm: 3, Conn: 7, Op: 0x0a0b0c0d, Key: 8, Size: 9,
		Name: []byte("heap")}, "0c 03 0004 00000007 0a0b0c0d 0000000000000008 0000000000000009 68656170", ""},
	{"withdraw", "5.6", Segment{Kind: KindWithdraw, Conn: 7, Op: 5, Key: 8},
		"0d 00 0000 00000007 00000005 0000000000000008", ""},
	{"ping", "4.7", Segment{Kind: KindPing}, "0e 00 0000", ""},
	{"probe", "9.1", Segment{Kind: KindProbe, Place: 0x0102030405060708}, "0f 00 0000 0102030405060708", ""},
	{"echo", "9.3", Segment{Kind: KindEcho, Place: 0x0102030405060708}, "10 00 0000 0102030405060708", ""},
	{"echo of an IPv4 address", "9.3", Segment{Kind: KindEcho, Place: 1, Data: []byte{192, 0, 2, 1, 0x24, 0xfe}},
		"10 00 0006 0000000000000001 c0000201 24fe", ""},
	{"echo of an IPv6 address", "9.3", Segment{Kind: KindEcho, Place: 1, Data: append(make([]byte, 16), 0x24, 0xfe)},
		"10 00 0012 0000000000000001 00000000000000000000000000000000 24fe", ""},
	{"link", "10.4", Segment{Kind: KindLink, Data: theLink.AppendTo(nil)}, "11 " + goldenLink, ""},
	{"keys", "10.6", Segment{Kind: KindKeys, Op: 7, Data: bytes.Repeat([]byte{0xab}, PublicLen)},
		"12 00 0020 00000007 " + strings.Repeat("ab", PublicLen), ""},
	{"keys ready", "10.6", Segment{Kind: KindKeys, Flags: KeysReady, Op: 1, Data: bytes.Repeat([]byte{1}, PublicLen)},
		"12 01 0020 00000001 " + strings.Repeat("01", PublicLen), ""},
	{"atomic", "13.1", Segment{Kind: KindAtomic, Flags: SegFirst | SegLast, Conn: 1, Op: 2, Key: 3, Place: 8,
		Size: AtomicSize(AtomicAdd, 8), Data: []byte{0, 0, 0, 0, 0, 0, 0, 5}},
		"13 03 0008 00000001 00000002 0000000000000003 0000000000000008 03 08 0000 0000000000000005", ""},
	{"atomic of two operands, fenced, notify", "13.1", Segment{Kind: KindAtomic,
		Flags: SegFenced | SegNotify | SegForward, Conn: 1, Op: 2, Fence: 0xc1, Key: 3, Place: 4, Imm: 0xd1,
		Size: AtomicSize(AtomicCAS, 4), Data: []byte{0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 6}},
		"13 38 0010 00000001 00000002 000000c1 0000000000000003 0000000000000004 02 04 0000 000000d1 " +
			"0000000000000005 0000000000000006", ""},
	{"atomic result", "13.1", Segment{Kind: KindAtomicResult, Conn: 1, Op: 2, Data: []byte{1, 2, 3, 4, 5, 6, 7, 8}},
		"14 00 0008 00000001 00000002 0102030405060708", ""},
	{"send", "14.1", Segment{Kind: KindSend, Flags: SegFirst | SegLast, Conn: 0x01020304, Op: 0x05060708,
		Key: 0x11121314, Place: 0x21222324, Data: []byte("abc")},
		"15 03 0003 01020304 05060708 11121314 21222324 616263", ""},
	{"send fenced, strict, with an immediate", "14.1, 14.6", Segment{Kind: KindSend, Flags: segFlagsKnown | SegStrict,
		Conn: 1, Op: 2, Fence: 0xa1a2a3a4, Key: 3, Place: 4, Imm: 0xb1b2b3b4, Data: []byte{9}},
		"15 7f 0001 00000001 00000002 a1a2a3a4 00000003 00000004 b1b2b3b4 09", ""},
	{"send next", "14.1", Segment{Kind: KindSendNext, Flags: SegFirst | SegLast, Conn: 1, Op: 0, Key: 0,
		Data: []byte("de")}, "16 03 0002 6465", "15 03 0000 00000001 ffffffff ffffffff 00000000"},
	{"send next with an immediate", "14.1", Segment{Kind: KindSendNext, Flags: SegFirst | SegLast | SegNotify, Conn: 1,
		Op: 3, Key: 8, Imm: 0x61626364}, "16 13 0000 61626364", "15 03 0000 00000001 00000002 00000007 00000000"},
	{"tell", "14.9", Segment{Kind: KindTell, Flags: SegFirst | SegLast | SegNotify, Conn: 1, Op: 2, Key: 3,
		Size: 0x21222324, Imm: 5}, "1d 13 0000 00000001 00000002 00000003 21222324 00000005", ""},
	{"tell fenced, strict", "14.6, 14.9", Segment{Kind: KindTell, Flags: segFlagsKnown | SegStrict, Conn: 1, Op: 2,
		Fence: 0xa1a2a3a4, Key: 3, Size: 4, Imm: 5},
		"1d 7f 0000 00000001 00000002 a1a2a3a4 00000003 00000004 00000005", ""},
	{"credit", "14.4, 14.5", Segment{Kind: KindCredit, Flags: CreditShared, Conn: 1, Limit: 0x0a0b0c0d},
		"17 01 0000 00000001 0a0b0c0d", ""},
	{"want", "14.5", Segment{Kind: KindWant, Conn: 1, Key: 0x0a0b0c0d}, "18 00 0000 00000001 0a0b0c0d", ""},
	{"stage", "18.2", Segment{Kind: KindStage, Conn: 1, Op: 2, Stamp: 3, Place: 64, Size: 67, Data: []byte("abc")},
		"19 00 0003 00000001 00000002 00000003 00000040 00000043 616263", ""},
	{"commit of a send, fenced, strict, with an immediate", "18.4", Segment{Kind: KindCommit,
		Flags: segFlagsKnown | SegStrict, Status: uint8(KindSend), Conn: 1, Op: 2, Fence: 0xa1a2a3a4, Key: 3, From: 4,
		Size: 0x10000, Bytes: 0xffff, Imm: 0xb1b2b3b4, Data: []byte{0, 0, 0, 0, 0, 0, 1, 2}},
		"1a 7f 0008 00000001 00000002 a1a2a3a4 0000000000000003 0000000000000000 00000004 15010000 0000ffff " +
			"b1b2b3b4 0000000000000102", ""},
	{"commit of a write", "18.4", Segment{Kind: KindCommit, Flags: SegFirst | SegLast, Status: uint8(KindWrite),
		Conn: 1, Op: 2, Key: 3, Place: 4, From: 5, Size: 6, Data: make([]byte, 8)},
		"1a 03 0008 00000001 00000002 0000000000000003 0000000000000004 00000005 01000006 00000000 " +
			"0000000000000000", ""},
	{"discard", "18.5", Segment{Kind: KindDiscard, Conn: 1, Op: 2}, "1b 00 0000 00000001 00000002", ""},
	{"unstaged", "18.5", Segment{Kind: KindUnstaged, Conn: 1, Op: 2}, "1c 00 0000 00000001 00000002", ""},
	{"link that is gone", "10.4", Segment{Kind: KindLink, Data: make([]byte, LinkInfoLen)},
		"11 00 0000 00000000 00000000 0000 000000000000", ""},
}

// unhex reads hexadecimal with blanks.
func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	if err != nil {
		t.Fatalf("bad hexadecimal %q: %v", s, err)
	}
	return b
}

// prime decodes what must stand before m into s.
func (m *message) prime(t testing.TB, s *Segment) {
	t.Helper()
	if m.before == "" {
		return
	}
	if rest, err := s.Next(unhex(t, m.before)); err != nil || len(rest) != 0 {
		t.Fatalf("%s: segment before it: %v, %d bytes left", m.name, err, len(rest))
	}
}

// equal compares what of two segments is on the wire, and what a WriteNext inherits.
func equal(a, b *Segment) bool {
	if a.Kind != b.Kind || string(a.AppendTo(nil)) != string(b.AppendTo(nil)) {
		return false
	}
	return a.Kind != KindWriteNext && a.Kind != KindSendNext || a.Conn == b.Conn && a.Op == b.Op && a.Key == b.Key
}
