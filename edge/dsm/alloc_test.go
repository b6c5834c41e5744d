package dsm

import "testing"

// Accesses to what is here cost no allocation.
func TestAccessAllocatesNothing(t *testing.T) {
	c := Config{Name: "t", Ranks: 2, Root: "x", Size: 1 << 16}
	if err := c.complete(); err != nil {
		t.Fatal(err)
	}
	m := newMemory(&c, &place{areas: [2][]byte{control: aligned(1 << 20), data: aligned(1 << 16)}})
	a := Alloc[uint32](m, 4096, At(0))
	a.Write(0, 4096)
	sum := uint32(0)
	if n := testing.AllocsPerRun(100, func() {
		for i := range 4096 {
			a.Set(i, a.At(i)+1)
		}
		for _, v := range a.Read(100, 200) {
			sum += v
		}
		a.Prefetch(0, 4096)
		a.Own(0, 4096)[0] = sum
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkAccess(b *testing.B) {
	m := newMemory(&Config{Ranks: 1, Size: 1 << 20, Log: 16}, nil)
	m.mem = make([]byte, 1<<20)
	a := Alloc[uint32](m, 1<<16, Blocks)
	b.Run("At", func(b *testing.B) {
		sum := uint32(0)
		for i := range b.N {
			sum += a.At(i & 0xffff)
		}
		_ = sum
	})
	b.Run("Set", func(b *testing.B) {
		for i := range b.N {
			a.Set(i&0xffff, 1)
		}
	})
	b.Run("Read of 256", func(b *testing.B) {
		sum := uint32(0)
		for i := range b.N {
			for _, v := range a.Read(i&0xff*256, i&0xff*256+256) {
				sum += v
			}
		}
		_ = sum
	})
}
