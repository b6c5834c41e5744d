package remap

import (
	"bytes"
	"math"
	"testing"

	"pgregory.net/rapid"
)

// frame is header, first, second, and what the medium may have padded it with.
func frame(head, payload []byte, h int, pad []byte) []byte {
	first, second := SendOrder(payload, h)
	return bytes.Join([][]byte{head, first, second, pad}, nil)
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
		frame string
		h, n  int
		want  string
		after string // all of the frame
	}{
		{"HHHdefghabc", 3, 8, "abcdefgh", "abcdefghabc"},
		{"HHHdefghabc..", 3, 8, "abcdefgh", "abcdefghabc.."},
		{"abcdefgh", 0, 8, "abcdefgh", "abcdefgh"},
		{"HHHabc", 3, 3, "abc", "abcabc"},
		{"HHHHHabc", 5, 3, "abc", "abcHHabc"},
		{"HHHbab", 3, 1, "b", "bHHbab"},
		{"HHH", 3, 0, "", "HHH"},
		{"", 0, 0, "", ""},
	} {
		f := []byte(c.frame)
		got := Unshuffle(f, c.h, c.n)
		if got == nil || string(got) != c.want || cap(got) != c.n || string(f) != c.after {
			t.Errorf("Unshuffle(%q, %d, %d) = %q, frame %q, want %q, frame %q", c.frame, c.h, c.n, got, f, c.want, c.after)
		}
	}
}

func TestUnshuffleRefuses(t *testing.T) {
	for _, c := range [][2]int{{3, 3}, {0, 6}, {6, 0}, {-1, 2}, {2, -1}, {math.MaxInt, 1}, {1, math.MaxInt}, {math.MaxInt, math.MaxInt}} {
		f := []byte("abcde")
		if got := Unshuffle(f, c[0], c[1]); got != nil || string(f) != "abcde" {
			t.Errorf("Unshuffle of 5 bytes with header %d and payload %d: %q, frame %q, want nil and no change", c[0], c[1], got, f)
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
	f := frame(bytes.Repeat([]byte{0xEE}, h), data, h, nil)
	if len(f) <= 2*page || len(f) > 9014 {
		t.Fatalf("frame of %d bytes does not need three pages of %d at MTU 9000", len(f), page)
	}
	inPlace := append([]byte(nil), f[h:2*page]...)
	got := Unshuffle(f, h, len(data))
	if &got[0] != &f[0] || !bytes.Equal(got, data) {
		t.Fatal("payload is not restored at the start of the frame")
	}
	if !bytes.Equal(inPlace, f[h:2*page]) {
		t.Fatal("more than the header's bytes were moved")
	}
}

func TestShuffleProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		payload := rapid.SliceOfN(rapid.Byte(), 0, 300).Draw(t, "payload")
		head := rapid.SliceOfN(rapid.Byte(), 0, 100).Draw(t, "header")
		pad := rapid.SliceOfN(rapid.Byte(), 0, 60).Draw(t, "padding")
		h := len(head)

		// There and back: every payload comes back at the start of the frame, the padding is untouched.
		f := frame(head, payload, h, pad)
		if got := Unshuffle(f, h, len(payload)); got == nil || !bytes.Equal(got, payload) {
			t.Fatalf("restored %x", got)
		}
		if !bytes.Equal(f[h+len(payload):], pad) {
			t.Fatalf("padding became %x", f[h+len(payload):])
		}

		// Back and there: any frame's bytes, restored and shuffled again, are the bytes it had behind its header.
		wire := append([]byte(nil), payload...)
		restored := Unshuffle(append(append([]byte(nil), head...), wire...), h, len(wire))
		first, second := SendOrder(restored, h)
		if again := append(append([]byte(nil), first...), second...); !bytes.Equal(again, wire) {
			t.Fatalf("shuffled again %x, want %x", again, wire)
		}
	})
}

func TestShuffleAllocs(t *testing.T) {
	p, f := make([]byte, 8192), make([]byte, 9000)
	if n := testing.AllocsPerRun(100, func() {
		SendOrder(p, headLen)
		Unshuffle(f, headLen, 8192)
	}); n != 0 {
		t.Errorf("%v allocations, want 0", n)
	}
}

func BenchmarkUnshuffle(b *testing.B) {
	b.ReportAllocs()
	f := make([]byte, 9000)
	for b.Loop() {
		Unshuffle(f, headLen, 8192)
	}
}
