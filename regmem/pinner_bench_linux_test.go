package regmem

import "testing"

// BenchmarkPinnerWork is what the pinner's thread does for a chunk of 64 KiB: pinned for the first time where pages are
// there or not, unpinned, and pinned again.
func BenchmarkPinnerWork(b *testing.B) {
	const size = 256 << 20
	for _, c := range []struct {
		name   string
		filled bool
		again  bool
	}{{"resident", true, false}, {"untouched", false, false}, {"again", true, true}} {
		b.Run(c.name, func(b *testing.B) {
			var sp *PinnedSpace
			make := func() {
				m, err := Alloc(size, Offered())
				if err == nil {
					err = m.FixSparse()
				}
				if err != nil {
					b.Fatal(err)
				}
				s, err := NewSpace(SpaceConfig{Size: size, Pin: size, Ask: func(uint64, PinWork) bool { return true }})
				if err != nil {
					b.Fatal(err)
				}
				if c.filled {
					for i := 0; i < size; i += pageSize {
						m.buf[i] = 1
					}
				}
				sp = &PinnedSpace{Space: s, mem: m, fill: func(int) error { return nil }}
			}
			what := PinChunk
			if c.again {
				what = PinAgain
			}
			const chunks = size / DefaultChunk
			make()
			for i := range b.N {
				chunk := uint64(i*37) % chunks
				if i > 0 && i%chunks == 0 && !c.filled {
					b.StopTimer()
					sp.mem.Close()
					make()
					b.StartTimer()
				}
				if _, err := sp.work(&pinRequest{of: sp, chunk: chunk, what: what}); err != nil {
					b.Fatal(err)
				}
				if _, err := sp.work(&pinRequest{of: sp, chunk: chunk, what: UnpinChunk}); err != nil {
					b.Fatal(err)
				}
			}
			sp.mem.Close()
		})
	}
}

// BenchmarkLook is one look at how much memory is free.
func BenchmarkLook(b *testing.B) {
	for range b.N {
		if _, err := look(1<<20, 0, leastSpared); err != nil {
			b.Fatal(err)
		}
	}
}
