package remap

import (
	"bytes"
	"testing"
)

// What a round lends for different places lies apart, as long as there is some left; then the places themselves are
// lent.
func TestSpareLends(t *testing.T) {
	var s spare
	s.init()
	region := make([]byte, 2*maxLoans<<16)
	for round := range 2 {
		s.reset()
		var lent [][]byte
		for i := range maxLoans {
			n := 1<<16 - round*i
			dst := region[i<<17:][:n]
			b := s.lend(dst)
			if len(b) != n || cap(b) != n || &b[0] == &dst[0] {
				t.Fatalf("loan %d: %d bytes of %d, or its place itself", i, len(b), n)
			}
			if !s.lentFor(address(dst), b) || !s.lentFor(address(dst), b[:1]) || s.lentFor(address(dst)+1, b) ||
				s.lentFor(address(dst), region[:1]) ||
				s.used < len(s.bytes) && s.lentFor(address(dst), s.bytes[s.used-n:s.used+1]) {
				t.Fatalf("loan %d is not known by its place and its bytes", i)
			}
			for k := range b {
				b[k] = byte(i + 1)
			}
			lent = append(lent, b)
		}
		for i, b := range lent {
			if !bytes.Equal(b, bytes.Repeat([]byte{byte(i + 1)}, len(b))) {
				t.Fatalf("loan %d shares bytes with another", i)
			}
		}
		dst := region[:100]
		if b := s.lend(dst); &b[0] != &dst[0] {
			t.Error("more is lent than there is")
		}
	}
	s.reset()
	for range 3 { // three of 700 KiB do not fit in 2 MiB
		dst := region[:700<<10]
		b := s.lend(dst)
		if none := len(s.lent) == 2 && s.used == 1400<<10 && !s.lentFor(address(dst), b); (&b[0] == &dst[0]) != none {
			t.Errorf("%d loans of %d bytes", len(s.lent), s.used)
		}
	}
	if s.used > len(s.bytes) || s.lend(nil) != nil {
		t.Errorf("%d bytes of %d are lent", s.used, len(s.bytes))
	}
}

// Options say what a region has with its pool, and whether runs of it are ever exchanged.
func TestOptions(t *testing.T) {
	for _, c := range []struct {
		o      Options
		size   int
		pinned int
		fits   bool
	}{
		{Options{}, 8 << 20, 8<<20 + 4*2<<20, true}, {Options{}, 64 << 20, 64<<20 + 4*2<<20, true},
		{Options{}, 2 << 20, 2<<20 + 4*512<<10, true}, {Options{}, 256 << 10, 256<<10 + 4*256<<10, true},
		{Options{}, 256<<10 - 1, 256<<10 + 4*256<<10, false}, {Options{}, 100, Grain + 4*Least, false},
		{Options{Extent: 1, Extents: 2, Least: 1, Grain: 4096}, 5000, 8192 + 2*4096, true},
		{Options{Extent: 4097, Extents: 3, Least: 4096, Grain: 4096}, 4096, 4096 + 3*8192, true},
		{Options{Extent: 4096, Extents: 1, Least: 8192, Grain: 4096}, 8191, 8192 + 8192, false},
	} {
		if got, fits := c.o.Pinned(c.size), c.o.Fits(c.size); got != c.pinned || fits != c.fits {
			t.Errorf("%+v, %d bytes: %d pinned, want %d; fits %v", c.o, c.size, got, c.pinned, fits)
		}
	}
}

// An exchange that takes more system calls than it saves copying is not worth it.
func TestWorth(t *testing.T) {
	s := &Space{home: []uint32{0, 1, 2, 3, 4, 5, 6, 7}, grains: 4, grain: Grain, least: 2 * Grain}
	if !s.worth(0, 0, 2*Grain) || s.worth(0, 0, Grain) || !s.worth(0, 0, 4*Grain) {
		t.Error("of whole runs, those of the least length and longer are worth it")
	}
	s.home[2], s.home[3] = 6, 7
	s.home[6], s.home[7] = 2, 3 // two pieces each
	if s.worth(0, 0, 4*Grain-1) || !s.worth(0, 0, 4*Grain) || s.worth(1*Grain, 1*Grain, 2*Grain) {
		t.Error("four pieces are worth four grains")
	}
	s.home = []uint32{0, 4, 2, 6, 1, 5, 3, 7}
	if s.worth(0, 0, 4*Grain) {
		t.Error("eight pieces of four grains are worth it")
	}
}
