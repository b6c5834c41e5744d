package pieces

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"multiedge/regmem"
)

// However memory is cut, its bytes are gathered and scattered as if they lay in one range.
func TestGatherAndScatter(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 500 {
		var l List
		var region regmem.Region
		var whole []byte
		for range 1 + rng.IntN(Max) {
			b := make([]byte, rng.IntN(40))
			for i := range b {
				b[i] = byte(rng.Uint32())
			}
			l.Add(b, &region, 0)
			whole = append(whole, b...)
		}
		if l.Size != uint64(len(whole)) {
			t.Fatalf("%d bytes, want %d", l.Size, len(whole))
		}
		if len(whole) == 0 {
			continue
		}
		off := rng.IntN(len(whole))
		part := make([]byte, rng.IntN(len(whole)-off+1))
		if l.Gather(part, uint64(off)); !bytes.Equal(part, whole[off:off+len(part)]) {
			t.Fatalf("gathered %x from %d on, want %x", part, off, whole[off:off+len(part)])
		}
		if len(part) > 0 {
			if b := l.Whole(uint64(off), uint64(len(part))); b != nil && !bytes.Equal(b, part) {
				t.Fatalf("in one piece: %x, want %x", b, part)
			}
		}
		for i := range part {
			part[i] = byte(rng.Uint32())
		}
		l.Scatter(uint64(off), part)
		copy(whole[off:], part)
		var got []byte
		l.All(func(b []byte) { got = append(got, b...) })
		if !bytes.Equal(got, whole) {
			t.Fatalf("after scattering %x, want %x", got, whole)
		}
		n := len(l.Parts())
		if l.Use(1); region.InFlight != n {
			t.Fatalf("%d pieces count as %d uses", n, region.InFlight)
		}
		if l.Use(-1); region.InFlight != 0 {
			t.Fatalf("%d uses are left", region.InFlight)
		}
		if l.Reset(); l.Size != 0 || len(l.Parts()) != 0 {
			t.Fatal("not empty")
		}
	}
}

func TestWholeIsFound(t *testing.T) {
	var l List
	l.Add([]byte("abc"), nil, 0)
	l.Add([]byte("defg"), nil, 0)
	if b := l.Whole(3, 4); string(b) != "defg" {
		t.Errorf("%q", b)
	}
	if b := l.Whole(2, 2); b != nil {
		t.Errorf("%q lies in two pieces", b)
	}
}
