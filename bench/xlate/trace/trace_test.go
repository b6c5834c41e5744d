package trace

import (
	"bytes"
	"errors"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// drawTrace draws a legal trace.
func drawTrace(t *rapid.T) *Trace {
	tr := &Trace{Nodes: rapid.IntRange(1, MaxNodes).Draw(t, "nodes"), Processes: rapid.IntRange(1, MaxProcesses).Draw(t,
		"processes")}
	at := uint64(0)
	for range rapid.IntRange(0, 30).Draw(t, "records") {
		at += rapid.Uint64Range(0, 1<<50).Draw(t, "after")
		n := rapid.Uint32Range(1, MaxLength).Draw(t, "length")
		tr.Records = append(tr.Records, Record{
			Time: at, Length: n, Addr: rapid.Uint64Range(0, MaxAddr-uint64(n)).Draw(t, "address"),
			Op:      Op(rapid.IntRange(0, 3).Draw(t, "operation")),
			Node:    uint8(rapid.IntRange(0, tr.Nodes-1).Draw(t, "node")),
			Process: uint8(rapid.IntRange(0, tr.Processes-1).Draw(t, "process")),
		})
	}
	return tr
}

func TestWhatIsWrittenIsRead(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := drawTrace(t)
		again(t, want)
	})
}

func TestEveryCutIsNoticed(t *testing.T) {
	tr := &Trace{Nodes: 2, Processes: 2, Records: []Record{{Time: 300, Addr: 1 << 40, Length: 4096, Node: 1},
		{Time: 301, Addr: 1, Length: 200, Process: 1, Op: Deposit}}}
	var b bytes.Buffer
	if err := tr.Write(&b); err != nil {
		t.Fatal(err)
	}
	for n := range b.Len() {
		if _, err := Read(bytes.NewReader(b.Bytes()[:n])); !errors.Is(err, ErrFormat) {
			t.Errorf("the first %d of %d bytes: %v", n, b.Len(), err)
		}
	}
	if _, err := Read(bytes.NewReader(append(b.Bytes(), 0))); !errors.Is(err, ErrFormat) {
		t.Errorf("a byte too many: %v", err)
	}
}

func TestBadTextSaysWhere(t *testing.T) {
	const head = "memtrace 1 nodes 2 processes 2\n"
	for _, c := range []struct{ text, want string }{
		{"", "no head"},
		{"memtrace 2 nodes 2 processes 2\n", "line 1"},
		{"memtrace 1 nodes 0 processes 2\n", "both are 1 to 256"},
		{"memtrace 1 nodes x processes 2\n", "numbers from 1 to 256"},
		{head + "0 0 0 send 1000\n", "5 words"},
		{head + "0 0 0 post 1000 1\n", `operation "post"`},
		{head + "0 2 0 send 1000 1\n", "process 0 of node 2"},
		{head + "0 300 0 send 1000 1\n", `"300" is no number`},
		{head + "# five\n\n5 0 0 send 1000 1\n4 0 0 send 1000 1\n", "line 5: not a memory trace: time goes back"},
		{head + "0 0 0 send 1000 0\n", "a length of 0"},
		{head + "0 0 0 send 800000000000 1\n", "beyond 2^47"},
		{head + "0 0 0 send ffffffffffffffff 1\n", "beyond 2^47"},
	} {
		if _, err := ReadText(strings.NewReader(c.text)); !errors.Is(err, ErrFormat) || !strings.Contains(err.Error(),
			c.want) {
			t.Errorf("%q: %v, want %q", c.text, err, c.want)
		}
	}
}

func TestPagesOfARange(t *testing.T) {
	for _, c := range []struct {
		addr       uint64
		n          uint32
		first, end uint64
	}{{0, 1, 0, 1}, {4095, 1, 0, 1}, {4095, 2, 0, 2}, {4096, 4096, 1, 2}, {4097, 4096, 1, 3}} {
		if first, end := (&Record{Addr: c.addr, Length: c.n}).Pages(); first != c.first || end != c.end {
			t.Errorf("%d bytes at %d: pages %d to %d, want %d to %d", c.n, c.addr, first, end, c.first, c.end)
		}
	}
}

// FuzzText: whatever is accepted is legal, and comes back the same, compressed or not.
func FuzzText(f *testing.F) {
	f.Add("memtrace 1 nodes 4 processes 5\n1200 0 3 fetch 40003000 4096\n# and\n1201 3 4 deposit 0 1\n")
	f.Fuzz(func(t *testing.T, text string) {
		tr, err := ReadText(strings.NewReader(text))
		if err != nil {
			return
		}
		again(t, tr)
	})
}

func again(t rapid.TB, tr *Trace) {
	if err := tr.Check(); err != nil {
		t.Fatal(err)
	}
	var b, text bytes.Buffer
	if err := errors.Join(tr.Write(&b), tr.WriteText(&text)); err != nil {
		t.Fatal(err)
	}
	one, err1 := Read(&b)
	two, err2 := Read(&text)
	if err1 != nil || err2 != nil || !reflect.DeepEqual(one, tr) || !reflect.DeepEqual(two, tr) {
		t.Fatalf("%v, %v: %+v, %+v, %+v", err1, err2, tr, one, two)
	}
}
