package copies

import "testing"

// A buffer is as long as asked for, comes back, and what is more than Room is not kept.
func TestPool(t *testing.T) {
	var p Pool
	for _, n := range []int{1, 63, 64, 65, 4096, 4097, Most} {
		b := p.Take(n)
		if len(b) != n || cap(b) < n || cap(b) >= max(2*n, 128) || cap(b) != 1<<(ClassOf(n)+LeastClass) {
			t.Errorf("%d bytes: %d of %d", n, len(b), cap(b))
		}
		at := &b[0]
		p.Put(b)
		if again := p.Take(n); &again[0] != at {
			t.Errorf("%d bytes: another buffer", n)
		}
	}
	var all [][]byte
	for range 2 * Room / Most {
		all = append(all, p.Take(Most))
	}
	for _, b := range all {
		p.Put(b)
	}
	if p.bytes != Room {
		t.Errorf("%d bytes are kept", p.bytes)
	}
	if n := testing.AllocsPerRun(100, func() { p.Put(p.Take(Most)) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
