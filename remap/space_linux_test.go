package remap

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync/atomic"
	"testing"

	"multiedge/regmem"
)

// Random exchanges, against a table of what each grain holds: no grain is lost or doubled, and the pool gets the
// region's old pages.
func TestExchangeMovesPages(t *testing.T) {
	s := newShared(t, 20*Grain, Options{Extent: 4 * Grain, Extents: 3, Least: Grain})
	rng := rand.New(rand.NewPCG(1, 2))
	view, pool := s.Bytes(), s.Pool()
	want := make([]byte, 32)
	at := func(i int) []byte {
		if i < 20 {
			return view[i*Grain : (i+1)*Grain]
		}
		return pool[(i-20)*Grain : (i-19)*Grain]
	}
	for i := range want {
		want[i] = byte(i + 1)
		at(i)[0], at(i)[Grain-1] = want[i], want[i]
	}
	for round := range 500 {
		k := 1 + rng.IntN(4)
		v, p := rng.IntN(21-k), rng.IntN(13-k)
		whole, err := s.Exchange(v*Grain, p*Grain, k*Grain)
		if !whole || err != nil {
			t.Fatalf("round %d: %v, %v", round, whole, err)
		}
		for i := range k {
			want[v+i], want[20+p+i] = want[20+p+i], want[v+i]
		}
		for i := range want {
			if g := at(i); g[0] != want[i] || g[Grain-1] != want[i] {
				t.Fatalf("round %d: grain %d holds %d and %d, want %d", round, i, g[0], g[Grain-1], want[i])
			}
		}
	}
}

// Other threads read the region all the time: they see a page as it was or as it is, never an older one again, never
// one that is being filled.
func TestExchangeUnderAReader(t *testing.T) {
	const n, rounds, page = 8 * Grain, 400, 4096
	s := newShared(t, n, Options{Extent: n, Extents: 2, Least: Grain})
	var published atomic.Uint32 // generations whose exchange has begun
	var done atomic.Bool
	ended := make(chan error, 2)
	for range cap(ended) {
		go func() {
			var last [n / page]uint32
			for reads := 0; !done.Load() || reads == 0; reads++ {
				for i := range last {
					v := load(s.Bytes(), i*page)
					if now := published.Load(); v < last[i] || v > now {
						ended <- fmt.Errorf("page %d went from generation %d to %d of %d", i, last[i], v, now)
						return
					}
					last[i] = v
				}
			}
			ended <- nil
		}()
	}
	for g := 1; g <= rounds; g++ {
		slot := (g % 2) * n
		for i := 0; i < n; i += page {
			store(s.Pool(), slot+i, uint32(g))
		}
		published.Store(uint32(g))
		if whole, err := s.Exchange(0, slot, n); !whole || err != nil {
			t.Fatal(whole, err)
		}
	}
	done.Store(true)
	for range cap(ended) {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

//go:noinline
func load(b []byte, i int) uint32 { return binary.LittleEndian.Uint32(b[i:]) }

//go:noinline
func store(b []byte, i int, v uint32) { binary.LittleEndian.PutUint32(b[i:], v) }

// When the kernel refuses, the data is copied and nothing is lost; a pool window that could not be changed is not used
// again.
func TestExchangeRefused(t *testing.T) {
	for _, refuse := range []int{1, 2} { // the region's mapping, the pool's
		s := newShared(t, 256<<10, Options{Extent: 256 << 10, Extents: 1})
		w := &unwilling{windows: s.windows, at: refuse}
		s.windows = w
		exchanger := &Exchanger{}
		exchanger.Add(s.Space)
		op, mem := Op{Seq: 1}, s.Bytes()
		slot := exchanger.Slot(op, mem, 0, uint64(len(mem)))
		slot[77] = 7
		if !exchanger.Deliver(op, mem, slot) || mem[77] != 7 {
			t.Errorf("refusal %d: byte %d", refuse, mem[77])
		}
		exchanger.Settle(op)
		free := len(s.free)
		if refuse == 1 && (free != 1 || exchanger.Counts.Failures != 1) || refuse == 2 && free != 0 {
			t.Errorf("refusal %d: %d extents of the pool are free, %+v", refuse, free, exchanger.Counts)
		}
		exchanger.Remove(s.Space)
	}
}

// unwilling refuses one call.
type unwilling struct {
	windows
	at int
}

func (w *unwilling) show(mem []byte, offset int64) error {
	if w.at--; w.at == 0 {
		return errors.New("refused")
	}
	return w.windows.show(mem, offset)
}

// A Shared is pinned once, whoever holds it, and its addresses are good until the last holder has closed it.
func TestSharedHolders(t *testing.T) {
	before := regmem.Pinned()
	s, err := NewShared(100_000, Options{Extent: Grain, Extents: 1, Least: Grain})
	if err != nil {
		t.Fatal(err)
	}
	if got := regmem.Pinned() - before; got != int64(s.Pinned()) || got != 3*Grain {
		t.Errorf("%d bytes are pinned, Pinned says %d", got, s.Pinned())
	}
	m := s.Memory()
	if m.Len() != pages(100_000) || m.FD() < 0 {
		t.Errorf("memory of %d bytes, descriptor %d", m.Len(), m.FD())
	}
	if IdentityOf(m.FD()) != s.Identity() || IdentityOf(-1) == s.Identity() {
		t.Error("the memory's identity is not its descriptor's")
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	m.Bytes()[99_999] = 1 // a fault if it were gone
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	if m.Close() != nil || m.Bytes() != nil || regmem.Pinned() != before {
		t.Errorf("after the last one: %d bytes pinned", regmem.Pinned()-before)
	}
}

// The paths of a run of pages to its place, at the sizes where one overtakes the other. Another thread runs, so that
// TLBs must be flushed. "cold" walks through memory that no cache holds.
func BenchmarkPlace(b *testing.B) {
	for _, size := range []int{64 << 10, 256 << 10, 1 << 20, 4 << 20} {
		for _, region := range []int{size, 64 << 20} {
			name := fmt.Sprintf("%dKiB/cold", size>>10)
			if region == size {
				name = fmt.Sprintf("%dKiB/warm", size>>10)
			}
			s := newShared(b, region, Options{Extent: size, Extents: 1, Least: Grain})
			stop := spin()
			run := func(f func(at int)) func(*testing.B) {
				return func(b *testing.B) {
					b.ReportAllocs()
					b.SetBytes(int64(size))
					for i := range b.N {
						f(i * size % region)
					}
				}
			}
			b.Run(name+"/copy", run(func(at int) { copy(s.Bytes()[at:at+size], s.Pool()) }))
			b.Run(name+"/exchange", run(func(at int) {
				if whole, err := s.Exchange(at, 0, size); !whole || err != nil {
					b.Fatal(whole, err)
				}
			}))
			stop()
		}
	}
}

// spin keeps a thread running until the function it returns is called.
func spin() (stop func()) {
	var over atomic.Bool
	ended := make(chan struct{})
	go func() {
		runtime.LockOSThread()
		for !over.Load() {
		}
		close(ended)
	}()
	return func() { over.Store(true); <-ended }
}
