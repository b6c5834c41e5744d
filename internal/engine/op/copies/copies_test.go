package copies

import "testing"

// A buffer is as long as asked for, comes back, and what is more than Room is not kept.
func TestPool(t *testing.T) {
	var p Pool
	for _, n := range []int{1, 63, 64, 65, 80, 81, 112, 113, 128, 129, 4096, 4097, 8935, Most - 1, Most} {
		b := p.Take(n)
		if len(b) != n || cap(b) < n || cap(b) > max(n+n/4, least) || cap(b) != Size(n) {
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
	var small [][]byte
	for range Room / least {
		small = append(small, p.Take(least))
	}
	for _, b := range small {
		p.Put(b)
	}
	for range 3 {
		p.Put(make([]byte, Most))
	}
	if n := len(p.free[classOf(Most)]); n < 3 || p.bytes > Room || p.bytes < Room-Most {
		t.Errorf("beside short buffers %d long ones are kept, %d bytes in all", n, p.bytes)
	}
	if n := testing.AllocsPerRun(100, func() { p.Put(p.Take(Most)) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
