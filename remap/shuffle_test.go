package remap

import (
	"bytes"
	"math"
	"testing"

	"pgregory.net/rapid"
)

// frame is header, first, second, and what follows them, cut where pages as long as the payload end.
func frame(head, payload []byte, h int, tail []byte) (pages, rest []byte) {
	first, second := SendOrder(payload, h)
	f := bytes.Join([][]byte{head, first, second, tail}, nil)
	n := min(len(payload), len(f))
	return f[:n:n], f[n:]
}

func TestSendOrder(t *testing.T) {
	for _, c := range []struct {
		p             string
		h             int
		first, second string
	}{
		{"abcdefgh", 3, "defgh", "abc"},
		{"abcdefgh", 0, "abcdefgh", ""},
		{"abcdefgh", 8, "", "abcdefgh"},
		{"abc", 8, "", "abc"}, // shorter than the header: in one piece
		{"", 8, "", ""},
		{"", 0, "", ""},
	} {
		first, second := SendOrder([]byte(c.p), c.h)
		if string(first) != c.first || string(second) != c.second {
			t.Errorf("SendOrder(%q, %d) = %q, %q, want %q, %q", c.p, c.h, first, second, c.first, c.second)
		}
	}
}

func TestUnshuffle(t *testing.T) {
	for _, c := range []struct {
		pages, rest string
		h           int
		ok          bool
		want        string
	}{
		{"HHHdefgh", "abc", 3, true, "abcdefgh"},
		{"HHHdefgh", "abcTT", 3, true, "abcdefgh"},
		{"abcdefgh", "", 0, true, "abcdefgh"},
		{"HHH", "abc", 3, true, "abc"},
		{"", "", 0, true, ""},
		{"HHHdefgh", "ab", 3, false, "HHHdefgh"},
		{"HH", "abc", 3, false, "HH"},
		{"abc", "abc", -1, false, "abc"},
		{"abc", "abc", math.MaxInt, false, "abc"},
	} {
		p, r := []byte(c.pages), []byte(c.rest)
		if ok := Unshuffle(p, r, c.h); ok != c.ok || string(p) != c.want || string(r) != c.rest {
			t.Errorf("Unshuffle(%q, %q, %d) = %v, pages %q, rest %q, want %v, %q", c.pages, c.rest, c.h, ok, p, r, c.ok,
				c.want)
		}
	}
}

// The paper's own case: three receive buffers of 4096, two of which become pages of the application.
func TestPaperExample(t *testing.T) {
	const page, h = 4096, headLen
	data := make([]byte, 2*page)
	for i := range data {
		data[i] = byte(i * 31 >> 3)
	}
	p, rest := frame(bytes.Repeat([]byte{0xEE}, h), data, h, nil)
	if n := len(p) + len(rest); n <= 2*page || n > 9014 {
		t.Fatalf("frame of %d bytes does not need three pages of %d at MTU 9000", n, page)
	}
	if !bytes.Equal(p[h:], data[h:]) || !bytes.Equal(rest, data[:h]) {
		t.Fatal("more than the header's bytes would have to be moved")
	}
	if !Unshuffle(p, rest, h) || !bytes.Equal(p, data) {
		t.Fatal("payload is not restored in the pages")
	}
}

// There and back: every payload that is no shorter than the header comes back in its pages, and what follows is
// untouched.
func TestShuffleProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		head := rapid.SliceOfN(rapid.Byte(), 0, 100).Draw(t, "header")
		payload := rapid.SliceOfN(rapid.Byte(), len(head), 300).Draw(t, "payload")
		tail := rapid.SliceOfN(rapid.Byte(), 0, 60).Draw(t, "tail")
		h := len(head)
		p, rest := frame(head, payload, h, tail)
		if !Unshuffle(p, rest, h) || !bytes.Equal(p, payload) {
			t.Fatalf("restored %x", p)
		}
		if !bytes.Equal(rest[h:], tail) {
			t.Fatalf("the tail became %x", rest[h:])
		}
	})
}

func TestShuffleAllocs(t *testing.T) {
	p, f := make([]byte, 8192), make([]byte, 9000)
	if n := testing.AllocsPerRun(100, func() {
		SendOrder(p, headLen)
		Unshuffle(f[:8192], f[8192:], headLen)
	}); n != 0 {
		t.Errorf("%v allocations, want 0", n)
	}
}

func BenchmarkUnshuffle(b *testing.B) {
	b.ReportAllocs()
	f := make([]byte, 9000)
	for b.Loop() {
		Unshuffle(f[:8192], f[8192:], headLen)
	}
}
