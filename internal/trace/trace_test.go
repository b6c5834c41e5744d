package trace

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

	"multiedge/internal/wire"
)

func TestRecords(t *testing.T) {
	frame := []byte("a frame in three pieces")
	var b []byte
	for _, cut := range []int{MaxFrame, len(frame), 12, 3, 0} {
		r := Record{Time: 1 << 40, Link: 63, Sent: cut%2 == 0, Lost: uint32(cut), Len: len(frame)}
		b = r.Begin(b, cut, frame[:5], nil, frame[5:10], frame[10:])
	}
	in := NewReader(bytes.NewReader(b))
	var r Record
	for _, cut := range []int{MaxFrame, len(frame), 12, 3, 0} {
		if err := in.Next(&r); err != nil {
			t.Fatal(err)
		}
		want := frame[:min(cut, len(frame))]
		if !bytes.Equal(r.Data, want) || r.Time != 1<<40 || r.Link != 63 || r.Sent != (cut%2 == 0) ||
			r.Lost != uint32(cut) || r.Len != len(frame) {
			t.Errorf("cut %d: %+v, want %q", cut, r, want)
		}
	}
	if err := in.Next(&r); err != io.EOF {
		t.Errorf("at the end: %v", err)
	}
}

func TestBrokenRecords(t *testing.T) {
	good := (&Record{Len: 4}).Begin(nil, 4, []byte("abcd"))
	change := func(at int, to byte) []byte {
		b := bytes.Clone(good)
		b[at] = to
		return b
	}
	for name, c := range map[string]struct {
		b    []byte
		want error
	}{
		"cut in the head":        {good[:10], io.ErrUnexpectedEOF},
		"cut in the data":        {good[:len(good)-1], io.ErrUnexpectedEOF},
		"no data":                {good[:headLen], io.ErrUnexpectedEOF},
		"more data than frame":   {change(16, 5), ErrRecord},
		"frame beyond all sizes": {change(15, 1), ErrRecord},
		"unknown flag":           {change(21, 2), ErrRecord},
		"reserved byte":          {change(23, 1), ErrRecord},
	} {
		var r Record
		if err := NewReader(bytes.NewReader(c.b)).Next(&r); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}

// frame lays out a frame in plaintext.
func frame(h wire.Header, bulk *wire.Bulk, payload []byte, segments ...wire.Segment) []byte {
	var tail []byte
	for i := range segments {
		tail = segments[i].AppendTo(tail)
	}
	b := append([]byte{2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x88, 0xb5}, make([]byte, wire.FixedLen)...)
	if bulk != nil {
		h.Flags |= wire.FlagBulk
		bulk.Len = uint16(len(payload))
		b = append(b, make([]byte, wire.BulkLen)...)
		wire.PutBulk(b[wire.TailStart:], bulk)
	}
	wire.Finish(b[wire.EthLen:], &h, tail)
	return append(append(b, payload...), tail...)
}

func TestDescribe(t *testing.T) {
	data := wire.Header{Type: wire.TypeData, Path: 1, Session: 5, PN: 77}
	long := frame(data, &wire.Bulk{Kind: wire.KindWrite, Flags: wire.SegFirst | wire.SegNotify, Conn: 2, Op: 9,
		Key: 0xabc, Place: 4096}, make([]byte, 1000), wire.Segment{Kind: wire.KindPing})
	damaged := frame(data, nil, nil, wire.Segment{Kind: wire.KindPing})
	damaged[len(damaged)-1] ^= 1
	sealed := frame(data, nil, nil)
	sealed[wire.EthLen+1] = 3
	hello := wire.Hello{Node: [8]byte{1}, Epoch: 2, RxSlots: 3, MTU: 9000, Name: []byte("nodeA")}
	const to = "02:00:00:00:00:02 > 02:00:00:00:00:01 "
	for _, c := range []struct {
		name  string
		frame []byte
		size  int
		want  string
	}{
		{"bulk", long, len(long), to + "data session 5 path 1 pn 77 | write conn 2 op 9 at 4096, 1000 bytes key " +
			"0xabc first notify | ping"},
		{"bulk, cut", long[:200], len(long), to +
			"data session 5 path 1 pn 77 | write conn 2 op 9 at 4096, 1000 bytes key 0xabc first notify | 4 bytes " +
			"more, cut off"},
		{"bulk, cut in its header", long[:60], len(long), to + "data session 5 path 1 pn 77 1082 bytes, cut off"},
		{"bulk, cut in its clear part", long[:20], len(long),
			to + "type 0x88b5, not understood: wire: frame shorter than its lengths say"},
		{"many segments", frame(data, nil, nil, make([]wire.Segment, 100)...), 0, to + "data session 5 path 1 pn 77" +
			strings.Repeat(" | pad 0", 16) + " | 336 bytes more"},
		{"small write and acknowledgement", frame(data, nil, nil, wire.Segment{Kind: wire.KindAck, Path: 1, Size: 9,
			Place: 10},
			wire.Segment{Kind: wire.KindWrite, Flags: wire.SegFirst | wire.SegLast, Conn: 3, Op: 1, Key: 2, Place: 8,
				Data: []byte("12345678")}), 0,
			to + "data session 5 path 1 pn 77 | ack path 1 below 10 largest 9 after 0 ns | write conn 3 op 1 at 8, 8 " +
				"bytes key 0x2 first last"},
		{"damaged", damaged, 0, to + "data session 5 path 1 pn 77 | wire: header checksum mismatch"},
		{"sealed", sealed, 0, to + "data session 5 path 1 pn 77 sealed, key epoch 3, 24 bytes"},
		{"hello", frame(wire.Header{Type: wire.TypeHello}, nil, nil)[:wire.TailStart], 0,
			to + "hello session 0 path 0 pn 0 (38 bytes)"},
		{"of another protocol", []byte("\x01\x02\x03\x04\x05\x06\x11\x12\x13\x14\x15\x16\x08\x00E"), 0,
			"11:12:13:14:15:16 > 01:02:03:04:05:06 type 0x0800, not understood: wire: frame shorter than its lengths " +
				"say"},
		{"shorter than Ethernet", []byte("short"), 0, "5 bytes, too short for an Ethernet frame"},
	} {
		if c.size == 0 {
			c.size = len(c.frame)
		}
		if got := Describe(c.frame, c.size).Text; got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", c.name, got, c.want)
		}
	}
	body := hello.AppendTo(nil)
	b := frame(wire.Header{Type: wire.TypeHello}, nil, nil)
	wire.Finish(b[wire.EthLen:], &wire.Header{Type: wire.TypeHello}, body)
	s := Describe(append(b, body...), len(b)+len(body))
	if s.Type != "hello" || !strings.Contains(s.Text, `from "nodeA" node 0100000000000000 epoch 2 link 0 mtu 9000`) {
		t.Errorf("hello: %+v", s)
	}
}

// FuzzReader: what is read is laid out again as it was, and nothing else is accepted.
func FuzzReader(f *testing.F) {
	r := Record{Time: 1, Link: 2, Sent: true, Lost: 3, Len: 100}
	f.Add(r.Begin(r.Begin(nil, 4, []byte("abcd")), 0))
	f.Fuzz(func(t *testing.T, b []byte) {
		in := NewReader(bytes.NewReader(b))
		var again []byte
		var r Record
		err := in.Next(&r)
		for ; err == nil; err = in.Next(&r) {
			again = r.Begin(again, len(r.Data), r.Data)
		}
		if !bytes.HasPrefix(b, again) || err == io.EOF && len(again) != len(b) {
			t.Errorf("%x was read as %x, then %v", b, again, err)
		}
	})
}

// FuzzDescribe: any frame is described, wherever it was cut off.
func FuzzDescribe(f *testing.F) {
	h := wire.Header{Type: wire.TypeData, PN: 1}
	f.Add(frame(h, &wire.Bulk{Kind: wire.KindWrite}, []byte("payload"), wire.Segment{Kind: wire.KindPing}), uint16(0))
	f.Add(frame(h, nil, nil, wire.Segment{Kind: wire.KindOpen, Name: []byte("service")}), uint16(9))
	f.Fuzz(func(t *testing.T, b []byte, more uint16) {
		if s := Describe(b, len(b)+int(more)); s.Text == "" || strings.ContainsAny(s.Text, "\n\x1b") {
			t.Errorf("%q", s.Text)
		}
	})
}
