package ipc

import (
	"bytes"
	"encoding/binary"
	"flag"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write testdata/golden.txt anew")

// everyStruct returns one message of each struct, with every field set to a value of its own.
func everyStruct() []*Message {
	data, text := []byte{0xd0, 0xd1}, "why"
	return []*Message{
		{ID: 1, Kind: KindHello, Name: "prog", Greeting: Greeting{Lowest: 2, Highest: 3, Features: 1 << 40, Required: 1,
			SQESize: 64, CQESize: 32, Depth: 1024, Shard: 5}},
		{ID: 1, Kind: KindHello, Answer: true, Name: "host", Greeting: Greeting{Version: 2, Features: 1, SQESize: 64,
			CQESize: 32, Node: "0102", Rings: Layout{1024, 4096}, Window: 7, Shard: 2}},
		{ID: 2, Kind: KindRegister, Size: 1 << 40, Brought: Brought{Own: true}},
		{ID: 2, Kind: KindRegister, Size: 1 << 40, Brought: Brought{Heap: true, Addr: 0xc000001000}},
		{ID: 2, Kind: KindRegister, Answer: true, Region: 0x10001, Size: 1 << 40},
		{ID: 3, Kind: KindMapped, Region: 0x10001},
		{ID: 3, Kind: KindMapped, Answer: true},
		{ID: 4, Kind: KindDeregister, Region: 0x10001},
		{ID: 5, Kind: KindDial, Peer: "peer", Service: "svc", Data: data,
			Asked:   Asked{Ordered: true, Scheduler: "sched"},
			Timeout: 5 * time.Second},
		{ID: 5, Kind: KindDial, Answer: true, Conn: 7, Peer: "peer", Data: data},
		{ID: 6, Kind: KindListen, Service: "svc"},
		{ID: 7, Kind: KindUnlisten, Service: "svc"},
		{ID: 8, Kind: KindAccept, Conn: 7, Data: data},
		{ID: 8, Kind: KindAccept, Answer: true, Conn: 7, Peer: "peer"},
		{ID: 9, Kind: KindRefuse, Conn: 7, Text: text},
		{ID: 10, Kind: KindExport, Conn: 7, Region: 0x10001, Off: 3, Size: 4, Perm: 3, Name: "mem"},
		{ID: 10, Kind: KindExport, Answer: true, Conn: 7, Key: 1 << 63, Size: 4},
		{ID: 11, Kind: KindRevoke, Conn: 7, Key: 1 << 63},
		{ID: 12, Kind: KindClose, Conn: 7},
		{ID: 12, Kind: KindClose, Answer: true, Conn: 7},
		{ID: 13, Kind: KindAbort, Conn: 7},
		{ID: 20, Kind: KindQueue},
		{ID: 20, Kind: KindQueue, Answer: true, Queue: 3},
		{ID: 21, Kind: KindUnqueue, Queue: 3},
		{ID: 22, Kind: KindJoin, Conn: 7, Queue: 3},
		{Kind: KindIncoming, Conn: 7, Service: "svc", Peer: "peer", Data: data},
		{Kind: KindAdvert, Conn: 7, Name: "mem", Key: 1 << 63, Size: 4, Perm: 3, Number: 9},
		{Kind: KindWithdrawn, Conn: 7, Key: 1 << 63},
		{Kind: KindEnded, Conn: 7, Code: StatusReset.Code(), Text: text},
		{Kind: KindClosed, Conn: 7, Code: StatusNoConn.Code(), Text: text},
		{ID: 14, Kind: KindDial, Answer: true, Error: &Error{CodeVersion, text}},
		{ID: 15, Kind: KindStatus, What: "conn", Page: 2},
		{ID: 15, Kind: KindStatus, Answer: true, More: true, Body: []byte(`[1]`)},
		{ID: 16, Kind: KindPing, Peer: "peer", Count: 3, Timeout: time.Second},
		{ID: 17, Kind: KindTrace, Name: "eth1", Size: 96},
		{ID: 18, Kind: unheardOf},
		{ID: 19, Kind: KindMap, Size: 1 << 36, Space: Space{Pin: 1 << 28, Chunk: 1 << 16, Policy: 1, Huge: true}},
		{ID: 19, Kind: KindMap, Answer: true, Region: 0x10002, Size: 1 << 36,
			Space: Space{Chunk: 1 << 16, Hints: 4096}},
		{ID: 20, Kind: KindAdvise, Region: 0x10002, Off: 3, Size: 4, Advice: AdviceHold},
		{ID: 21, Kind: KindUsage, Region: 0x10002, Off: 3, Size: 4},
		{ID: 21, Kind: KindUsage, Answer: true, Usage: Usage{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}},
	}
}

// TestGolden: every struct is sent as docs/ABI.md A5 says, byte for byte. A difference is a change of the ABI: only
// fields at the end and new kinds are (A13).
func TestGolden(t *testing.T) {
	var got strings.Builder
	for _, m := range everyStruct() {
		was := *m
		b, err := m.Encode()
		if err != nil || !reflect.DeepEqual(*m, was) {
			t.Fatalf("%+v became %+v as it was written: %v", was, m, err)
		}
		what := ""
		switch {
		case m.Error != nil:
			what = " fails"
		case m.Answer:
			what = " reply"
		}
		fmt.Fprintf(&got, "%s%s\n", m.Kind, what)
		for at := 0; at < len(b); at += 16 {
			line := b[at:min(at+16, len(b))]
			if at > 0 && at+16 < len(b) && strings.Trim(string(line), "\x00") == "" {
				continue
			}
			fmt.Fprintf(&got, "%6d  % x\n", at, line)
		}
		again, err := Decode(b)
		if err != nil || !reflect.DeepEqual(again, m) {
			t.Errorf("%+v\nbecame %+v, %v", m, again, err)
		}
	}
	ringGolden(t, &got)
	const file = "testdata/golden.txt"
	if *update {
		must(t, os.WriteFile(file, []byte(got.String()), 0o644))
	}
	want, err := os.ReadFile(file)
	must(t, err)
	if got.String() != string(want) {
		t.Errorf("the ABI changed (go test -run Golden -update shows how in %s):\n%s", file, got.String())
	}
}

// ringGolden writes entries of the rings, and the whole of a small pair of them with every control word set.
func ringGolden(t *testing.T, got *strings.Builder) {
	var b [SQESize]byte
	for _, e := range append([]SQE{
		{Op: OpWrite, Flags: 7, Conn: 1, Imm: 2, Region: 3, Token: 4, Key: 5, RemoteOff: 6, LocalOff: 7, Len: 8},
		{Op: OpRead, InlineLen: 0, Conn: 1, Region: 3, Token: 4, Key: 5, RemoteOff: 6, LocalOff: 7, Len: 8},
		{Op: OpWrite, InlineLen: 3, Conn: 1, Token: 4, Key: 5, RemoteOff: 6, Inline: [BytesPerEntry]byte{7, 8, 9}},
		{Op: OpCredit, Conn: 1, Imm: 2},
		theAtomic(),
		{Op: OpPieces, InlineLen: 3, Conn: 1, Pieces: [PiecesPerEntry]Piece{{2, 3, 4}, {5, 6, 7}, {8, 9, 10}}},
		{Op: OpSend, Flags: 7, Conn: 1, Imm: 2, Region: 3, Token: 4, RemoteOff: 6, LocalOff: 7, Len: 8},
		{Op: OpReceive, Conn: 1, Region: 3, Token: 4, LocalOff: 7, Len: 8},
		{Op: OpReceive, Key: 5, Region: 3, Token: 4, LocalOff: 7, Len: 8},
	}, append(theEager(), theTell(), theBytes(BytesPerEntry), theResume())...) {
		EncodeSQE(b[:], &e)
		fmt.Fprintf(got, "submission\n% x\n", b)
	}
	for _, e := range []CQE{
		{Kind: CQComplete, Status: StatusQuota, Conn: 1, Token: 2},
		{Kind: CQNotify, Conn: 1, Token: 2, Imm: 3, Len: 4, Off: 5},
		{Kind: CQReceive, Status: StatusTooLong, Conn: 1, Token: 2},
		{Kind: CQReceive, Conn: 1, Token: 2, Imm: 3, Len: 4, HasImm: true},
	} {
		EncodeCQE(b[:], &e)
		fmt.Fprintf(got, "completion\n% x\n", b[:CQESize])
	}
	l := Layout{8, 32}
	mem := alignedBytes(l.Size())
	r, err := NewRings(mem, l)
	must(t, err)
	for i := range wordCount {
		r.word(i).Store(uint32(i) + 1)
	}
	r.told().Store(wordCount + 1)
	r.sqEntry(0)[0], r.sqEntry(7)[0], r.cqEntry(0)[0], r.cqEntry(31)[0] = 0xa0, 0xa7, 0xc0, 0xc1
	fmt.Fprintf(got, "rings of %d bytes\n", len(mem))
	for i, v := range mem {
		if v != 0 {
			fmt.Fprintf(got, "%6d  %02x\n", i, v)
		}
	}
}

// TestSizes: each struct ends where docs/ABI.md says, at a multiple of 8.
func TestSizes(t *testing.T) {
	for k, f := range formats {
		for _, fm := range []form{f.first, f.reply} {
			if fm.size%8 != 0 || fm.size > 1056 {
				t.Errorf("%s has a struct of %d bytes", k, fm.size)
			}
		}
	}
	for _, m := range everyStruct() {
		if fm, isJSON := m.form(); !isJSON {
			f := body{b: make([]byte, fm.size), writing: true} // panics beyond the end
			if fm.fields(&f, m); f.err != nil {
				t.Errorf("%s: %v", m.Kind, f.err)
			}
		}
	}
}

// TestOtherSizes: what a longer struct has at its end is ignored, what a shorter one lacks is zero (A3.4).
func TestOtherSizes(t *testing.T) {
	for _, m := range everyStruct() {
		fm, isJSON := m.form()
		if isJSON {
			continue
		}
		b, err := m.Encode()
		must(t, err)
		long := append(make([]byte, 0, fm.size+24), b...)[:fm.size]
		for len(long) < fm.size+24 {
			long = append(long, 0xee)
		}
		binary.LittleEndian.PutUint32(long, uint32(len(long)))
		if got, err := Decode(long); err != nil || !reflect.DeepEqual(got, m) {
			t.Errorf("longer %s: %+v, %v", m.Kind, got, err)
		}
		for n := headerSize; n < len(b); n++ {
			short := append([]byte(nil), b[:n]...)
			binary.LittleEndian.PutUint32(short, uint32(n))
			whole := append(append([]byte(nil), short...), make([]byte, fm.size-n)...)
			binary.LittleEndian.PutUint32(whole, uint32(fm.size))
			got, err := Decode(short)
			want, wantErr := Decode(whole)
			if !reflect.DeepEqual(got, want) || (err == nil) != (wantErr == nil) {
				t.Fatalf("%s of %d bytes: %+v, %v; with zeros %+v, %v", m.Kind, n, got, err, want, wantErr)
			}
		}
	}
}

// TestBadFields: what is wrong with a field is said, and the header is there to answer (A3.8).
func TestBadFields(t *testing.T) {
	for _, c := range []struct {
		what string
		m    Message
		at   int
		put  uint64
		size int // of the number
		want string
	}{
		{"a name that is too long", Message{Kind: KindListen}, 16, 65, 2, "service has 65 bytes"},
		{"data that is too long", Message{Kind: KindDial}, 230, 513, 2, "data has 513"},
		{"text that is too long", Message{Kind: KindRefuse}, 24, 1025, 2, "text has 1025"},
		{"a name that is not UTF-8", Message{Kind: KindListen}, 16, 0xff<<16 | 1, 8, "service is not UTF-8"},
		{"an unknown flag of dial", Message{Kind: KindDial}, 24, 7, 4, "flags 0x4"},
		{"an unknown flag of register", Message{Kind: KindRegister}, 24, 1 << 31, 4, "flags 0x80000000"},
		{"an endless timeout", Message{Kind: KindDial}, 16, 1 << 63, 8, "timeout"},
		{"unknown permissions", Message{Kind: KindExport}, 40, 256, 4, "permissions"},
		{"a depth beyond any", Message{Kind: KindHello}, 40, 1 << 31, 4, "depth"},
		{"the greatest permissions", Message{Kind: KindExport}, 40, 255, 4, ""},
		{"the greatest depth", Message{Kind: KindHello}, 40, 1<<31 - 1, 4, ""},
		{"the longest timeout", Message{Kind: KindDial}, 16, 1<<63 - 1, 8, ""},
		{"the longest name", Message{Kind: KindListen}, 16, 64, 2, ""},
		{"the longest data", Message{Kind: KindDial}, 230, 512, 2, ""},
		{"the longest text", Message{Kind: KindRefuse}, 24, 1024, 2, ""},
		{"no JSON", Message{Kind: KindStatus}, 16, 0x2121212121212121, 8, "not valid JSON"},
	} {
		c.m.ID = 77
		fm, _ := c.m.form()
		b := make([]byte, max(fm.size, 24))
		binary.LittleEndian.PutUint32(b, uint32(len(b)))
		binary.LittleEndian.PutUint16(b[4:], uint16(c.m.Kind))
		b[8] = 77
		var number [8]byte
		binary.LittleEndian.PutUint64(number[:], c.put)
		copy(b[c.at:], number[:c.size])
		m, err := Decode(b)
		e, ok := err.(*Error)
		if c.want == "" {
			if err != nil {
				t.Errorf("%s: %v", c.what, err)
			} else if again, err := m.Encode(); err != nil || !bytes.HasPrefix(b[4:], again[4:]) || len(again) <= c.at {
				t.Errorf("%s, written again: %x, %v", c.what, again, err)
			}
		} else if !ok || e.Code != CodeInvalid || !strings.Contains(e.Text, c.want) || m == nil || m.ID != 77 ||
			m.Kind != c.m.Kind {
			t.Errorf("%s: %+v, %v", c.what, m, err)
		}
	}
}

// TestAgree is the table of A2.
func TestAgree(t *testing.T) {
	const have = FeatureMemory
	for _, c := range []struct {
		what    string
		g       Greeting
		version uint32
		in      Features
		want    string // of the error
	}{
		{"the same", Greeting{Lowest: 2, Highest: 3, Features: have}, 3, have, ""},
		{"an older client", Greeting{Lowest: 1, Highest: 2}, 2, 0, ""},
		{"a newer client", Greeting{Lowest: 3, Highest: 9, Features: have | 1<<63}, 3, have, ""},
		{"required and not wanted", Greeting{Lowest: 2, Highest: 3, Required: have}, 3, have, ""},
		{"too old", Greeting{Lowest: 1, Highest: 1}, 0, 0, "versions 1 to 1, this daemon 2 to 3: upgrade the client"},
		{"too new", Greeting{Lowest: 4, Highest: 9}, 0, 0, "versions 4 to 9, this daemon 2 to 3: upgrade the daemon"},
		{"requires more", Greeting{Lowest: 2, Highest: 3, Required: 1 << 7}, 0, 0,
			"features 0x80, which the client requires: upgrade the daemon"},
		{"nonsense", Greeting{Lowest: 3, Highest: 2}, 0, 0, "above its highest"},
	} {
		c.g.SQESize, c.g.CQESize = SQESize, CQESize
		version, in, err := c.g.agree(2, 3, have)
		switch {
		case err != nil && (c.want == "" || !strings.Contains(err.Error(), c.want)), err == nil && c.want != "":
			t.Errorf("%s: %v", c.what, err)
		case version != c.version || in != c.in:
			t.Errorf("%s: version %d, features %#x", c.what, version, in)
		}
	}
	for _, sizes := range [][2]uint16{{0, 0}, {63, 32}, {64, 31}, {65, 33}, {128, 64}} {
		g := Greeting{Lowest: 2, Highest: 2, SQESize: sizes[0], CQESize: sizes[1]}
		if _, _, err := g.agree(2, 2, 0); (err == nil) != (sizes[0] >= 64 && sizes[1] >= 32) {
			t.Errorf("entries of %d: %v", sizes, err)
		}
	}
}

// The number of an advert is the peer's, who can choose any: a message that cannot be sent would end its client's
// attachment.
func TestAdvertOfAnyNumber(t *testing.T) {
	for _, number := range []uint32{0, 1<<31 - 1, 1 << 31, 1<<32 - 1} {
		b, err := (&Message{Kind: KindAdvert, Conn: 7, Name: "mem", Number: number}).Encode()
		must(t, err)
		if m, err := Decode(b); err != nil || m.Number != number {
			t.Errorf("number %d: %+v, %v", number, m, err)
		}
	}
}

// A packet is a header at least, and as long as it says: nothing of another one is looked at.
func TestBadHeaders(t *testing.T) {
	b, err := (&Message{ID: 7, Kind: KindListen, Service: "svc"}).Encode()
	if err != nil {
		t.Fatal(err)
	}
	for n := range len(b) + 2 {
		for _, says := range []int{n, n + 1, n - 1, len(b)} {
			packet := append(append(make([]byte, 0, n), b...), 0)[:n:n]
			if n >= 4 {
				binary.LittleEndian.PutUint32(packet, uint32(says))
			}
			m, err := Decode(packet)
			_, ours := err.(*Error)
			if bad := n < headerSize || says != n; (m == nil) != bad || bad && (err == nil || ours) {
				t.Errorf("%d bytes that say they are %d: %+v, %v", n, says, m, err)
			}
		}
	}
}

// What a message says beyond the bounds of its fields is not sent.
func TestBadFieldsAreNotSent(t *testing.T) {
	long := strings.Repeat("n", 70000)
	for what, m := range map[string]Message{
		"a negative depth":    {Kind: KindHello, Greeting: Greeting{Depth: -1}},
		"a depth beyond any":  {Kind: KindHello, Greeting: Greeting{Depth: 1 << 31}},
		"a negative timeout":  {Kind: KindDial, Timeout: -1},
		"a name of 65":        {Kind: KindListen, Service: long[:65]},
		"a name beyond a u16": {Kind: KindListen, Service: long[:65536]},
		"data of 513":         {Kind: KindDial, Data: []byte(long[:513])},
		"a text of 1025":      {Kind: KindRefuse, Text: long[:1025]},
		"a name in JSON":      {Kind: KindStatus, What: long[:65]},
		"a count in JSON":     {Kind: KindPing, Count: -1},
		"a page in JSON":      {Kind: KindStatus, Page: -1},
		"a timeout in JSON":   {Kind: KindPing, Timeout: -1},
		"a body in JSON":      {Kind: KindEvent, Body: []byte("\"" + long[:MaxMessage-headerSize-10] + "\"")},
	} {
		if b, err := m.Encode(); err == nil {
			t.Errorf("%s: sent as %d bytes", what, len(b))
		}
	}
	for _, m := range []Message{
		{Kind: KindStatus, What: long[:64]}, {Kind: KindHello, Greeting: Greeting{Depth: 1<<31 - 1}},
		{Kind: KindEvent, Body: []byte("\"" + long[:MaxMessage-headerSize-11] + "\"")}, // a packet of MaxMessage
	} {
		b, err := m.Encode()
		if err != nil || len(b) > MaxMessage {
			t.Fatalf("%s: %d bytes, %v", m.Kind, len(b), err)
		}
		if again, err := Decode(b); err != nil || !reflect.DeepEqual(*again, m) {
			t.Errorf("%s: %v", m.Kind, err)
		}
	}
	if _, err := Decode(make([]byte, MaxMessage+1)); err == nil || !strings.Contains(err.Error(), "exceeds") {
		t.Errorf("a packet beyond MaxMessage: %v", err)
	}
}

// What a client makes of the answer to its hello: all of it is what was asked for, or the daemon is not to be used.
func TestCheckReply(t *testing.T) {
	g := Greeting{Lowest: 2, Highest: 3, Features: 1, Required: 2, Depth: 8}
	good := Greeting{Version: 2, Features: 3, SQESize: SQESize, CQESize: CQESize, Rings: Layout{8, 32}}
	for what, change := range map[string]func(*Greeting){
		"": func(*Greeting) {}, "the higher version": func(r *Greeting) { r.Version = 3 },
		"without what is wanted": func(r *Greeting) { r.Features = 2 },
	} {
		r := good
		if change(&r); g.CheckReply(&r) != nil {
			t.Errorf("refused %s: %v", what, g.CheckReply(&r))
		}
	}
	for what, change := range map[string]func(*Greeting){
		"version 1": func(r *Greeting) { r.Version = 1 }, "version 4": func(r *Greeting) { r.Version = 4 },
		"a feature of its own":     func(r *Greeting) { r.Features |= 4 },
		"without what is required": func(r *Greeting) { r.Features = 1 },
		"other submissions":        func(r *Greeting) { r.SQESize++ },
		"other completions":        func(r *Greeting) { r.CQESize-- },
		"another depth":            func(r *Greeting) { r.Rings = Layout{16, 64} },
		"an impossible layout":     func(r *Greeting) { r.Rings.CQ = 24 },
	} {
		r := good
		if change(&r); g.CheckReply(&r) == nil {
			t.Errorf("taken: %s", what)
		}
	}
	h := &Hello(8).Greeting
	version, in, err := h.Agree(AllFeatures)
	if err != nil || version != HighestVersion || in != ClientFeatures {
		t.Errorf("this release with itself: version %d, features %#x, %v", version, in, err)
	}
}
