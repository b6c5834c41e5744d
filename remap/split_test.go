package remap

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

const headLen = 78 // Ethernet, fixed and bulk header

// chunk is what one frame carries of a transfer. aligned: whole pages and nothing else.
type chunk struct {
	off, len uint64
	aligned  bool
}

// plan cuts a transfer as the engine does, frame by frame.
func plan(off, n uint64, maxPayload, page int) (out []chunk) {
	for n > 0 {
		c := uint64(NextLen(off, n, maxPayload, page))
		out = append(out, chunk{off, c, page != 0 && (off|c)&uint64(page-1) == 0})
		off, n = off+c, n-c
	}
	return out
}

func lens(off, n uint64, maxPayload, page int) string {
	var out []string
	for _, c := range plan(off, n, maxPayload, page) {
		s := fmt.Sprint(c.len)
		if c.aligned {
			s += "*"
		}
		out = append(out, s)
	}
	return strings.Join(out, " ")
}

func TestPlan(t *testing.T) {
	paper := 9014 - headLen // MTU 9000
	for _, c := range []struct {
		name       string
		off, n     uint64
		maxPayload int
		page       int
		want       string // lengths; * marks whole pages
	}{
		{"paper 2.3.2: 9000 and 4096", 0, 32768, paper, 4096, "8192* 8192* 8192* 8192*"},
		{"odd number of pages", 0, 5 * 4096, paper, 4096, "8192* 8192* 4096*"},
		{"tail shorter than a page", 0, 8192 + 100, paper, 4096, "8192* 100"},
		{"paper 3.3.5: middle of a page", 2048, 16384, paper, 4096, "2048 8192* 4096* 2048"},
		{"paper 3.3.5: worst case", 1, 16384, paper, 4096, "4095 8192* 4096* 1"},
		{"last byte of a page first", 4095, 16384, paper, 4096, "1 8192* 4096* 4095"},
		{"starts at a later page", 5 * 4096, 8192, paper, 4096, "8192*"},
		{"nothing", 0, 0, paper, 4096, ""},
		{"one byte", 17, 1, paper, 4096, "1"},
		{"one page", 4096, 4096, paper, 4096, "4096*"},
		{"one page, not aligned: one frame", 100, 4096, paper, 4096, "4096"},
		{"almost two pages, none whole: one frame", 1, 4095 + 4095, paper, 4096, "8190"},
		{"one more byte completes a page", 1, 4095 + 4096, paper, 4096, "4095 4096*"},
		{"no whole page and not one frame", 1, 4095 + 4095, 5000, 4096, "5000 3190"},
		{"payload of exactly a page", 0, 10000, 4096, 4096, "4096* 4096* 1808"},
		{"payload one short of a page", 0, 10000, 4095, 4096, "4095 4095 1810"},
		{"MTU 1500", 100, 3000, 1514 - headLen, 4096, "1436 1436 128"},
		{"MTU 65535", 0, 131072, 65549 - headLen, 4096, "61440* 61440* 8192*"},
		{"no alignment wanted", 100, 20000, paper, 0, "8936 8936 2128"},
		{"pages of one byte", 3, 20, 8, 1, "8* 8* 4*"},
		{"end of the offsets", math.MaxUint64 - 4999, 4999, paper, 4096, "4999"},
		{"end of the offsets, a page ahead", math.MaxUint64 - 8999, 8999, paper, 4096, "808 4096* 4095"},
		{"whole last page of the offsets", math.MaxUint64 - 4095, 4095, paper, 4096, "4095"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := lens(c.off, c.n, c.maxPayload, c.page); got != c.want {
				t.Errorf("%d, %d, %d, %d: %s, want %s", c.off, c.n, c.maxPayload, c.page, got, c.want)
			}
		})
	}
}

func TestNextLenPanics(t *testing.T) {
	for _, c := range [][2]int{{0, 4096}, {-1, 0}, {9000, 3}, {9000, -1}, {9000, math.MinInt}} {
		func() {
			defer func() {
				if s, _ := recover().(string); !strings.HasPrefix(s, "BUG: ") {
					t.Errorf("NextLen(0, 1, %d, %d): recovered %q", c[0], c[1], s)
				}
			}()
			NextLen(0, 1, c[0], c[1])
		}()
	}
}

// wholePages returns the bytes of the whole pages within [off, off+n).
func wholePages(off, n, page uint64) uint64 {
	first, end := (off+page-1)/page*page, (off+n)/page*page
	if first >= end {
		return 0
	}
	return end - first
}

func TestPlanProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		page := rapid.SampledFrom([]int{0, 1, 64, 4096, 16384}).Draw(t, "page")
		maxPayload := rapid.IntRange(1, 70000).Draw(t, "maxPayload")
		off := rapid.Uint64Range(0, 1<<40).Draw(t, "off")
		n := rapid.Uint64Range(0, uint64(min(200*maxPayload, 1<<20))).Draw(t, "n")
		var aligned, frames uint64
		at := off
		for _, c := range plan(off, n, maxPayload, page) {
			if c.off != at || c.len == 0 || c.len > uint64(maxPayload) || c.len > off+n-at {
				t.Fatalf("chunk %+v at %d of [%d, %d)", c, at, off, off+n)
			}
			if c.aligned {
				aligned += c.len
			}
			at += c.len
			frames++
		}
		if at != off+n {
			t.Fatalf("chunks end at %d, want %d", at, off+n)
		}
		per, extra := uint64(maxPayload), uint64(0) // as many frames as the payload needs,
		if page != 0 && page <= maxPayload {
			if want := wholePages(off, n, uint64(page)); aligned != want {
				t.Fatalf("%d bytes travel as whole pages, want %d", aligned, want)
			}
			per, extra = uint64(maxPayload/page*page), 2 // of whole pages, and one for each end.
		}
		if limit := (n+per-1)/per + extra; frames > limit {
			t.Fatalf("%d frames, at most %d needed", frames, limit)
		}
	})
}

// NextLen never exceeds what remains and fits, anywhere in the number space.
func TestNextLenBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		off := rapid.Uint64().Draw(t, "off")
		remaining := rapid.Uint64().Draw(t, "remaining")
		maxPayload := rapid.IntRange(1, math.MaxInt).Draw(t, "maxPayload")
		page := 0
		if bit := rapid.IntRange(-1, 62).Draw(t, "log2(page)"); bit >= 0 {
			page = 1 << bit
		}
		n := NextLen(off, remaining, maxPayload, page)
		if n < 0 || n > maxPayload || uint64(n) > remaining || n == 0 && remaining != 0 {
			t.Fatalf("NextLen(%d, %d, %d, %d) = %d", off, remaining, maxPayload, page, n)
		}
	})
}

var sink int

func BenchmarkNextLen(b *testing.B) {
	b.ReportAllocs()
	var off uint64
	for b.Loop() {
		n := NextLen(off, 1<<30, 8936, 4096)
		off += uint64(n)
	}
	sink = int(off)
}
