package edge_test

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"multiedge/edge"
	"multiedge/edge/heap"
	"multiedge/edge/redirect"
	"multiedge/edge/space"

	"golang.org/x/sys/unix"
)

// heapPair is two hosts; far is memory of a's process, granted and exported to b under the name heap.
type heapPair struct {
	t       *testing.T
	ctx     context.Context
	a, b    *edge.Device
	c, back *edge.Conn // b's, a's
	far     []byte
	granted *edge.Region
	grant   *edge.Grant
	remote  *edge.RemoteRegion
}

func (p *heapPair) must(err error) {
	p.t.Helper()
	if err != nil {
		p.t.Fatal(err)
	}
}

func newHeapPair(t *testing.T, far []byte) *heapPair {
	t.Helper()
	f := edge.NewFabric()
	t.Cleanup(func() { f.Close() })
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	p := &heapPair{t: t, ctx: ctx, far: far}
	var err error
	p.a, err = f.Open("a")
	p.must(err)
	p.b, err = f.Open("b")
	p.must(err)
	l, err := p.a.Listen(ctx, "store")
	p.must(err)
	accepted := make(chan *edge.Conn, 1)
	go func() {
		c, _ := l.Accept(ctx)
		accepted <- c
	}()
	p.c, err = p.b.Dial(ctx, "a", "store")
	p.must(err)
	p.back = <-accepted
	p.granted, err = heap.Grant(ctx, p.a, far)
	p.must(err)
	p.grant, err = p.granted.Export(p.back, "heap", edge.RemoteRead|edge.RemoteWrite, 0, p.granted.Len())
	p.must(err)
	p.remote, err = p.c.Import(ctx, "heap")
	p.must(err)
	return p
}

func (p *heapPair) heap(b []byte) *edge.Region {
	p.t.Helper()
	r, err := heap.Grant(p.ctx, p.b, b)
	p.must(err)
	return r
}

func (p *heapPair) do(w edge.Work) error {
	p.t.Helper()
	if w.Remote == nil {
		w.Remote = p.remote
	}
	op, err := p.c.Post(p.ctx, &w)
	p.must(err)
	return op.Wait(p.ctx)
}

// TestHeapAtAllSites: bytes go from the heap of one process to that of another and back, in operations of all sizes and
// at all offsets at once, and arrive; what lies beside them stays.
func TestHeapAtAllSites(t *testing.T) {
	const size, rounds = 4 << 20, 60
	p := newHeapPair(t, make([]byte, size))
	from, to := make([]byte, size), make([]byte, size)
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range from {
		from[i] = byte(rng.Uint32())
	}
	rf, rt := p.heap(from), p.heap(to)
	want, back := make([]byte, size), make([]byte, size)
	var ops []edge.Op
	for at, i := 0, 0; i < rounds; i++ {
		n := []int{1, 7, 8, 100, 1000, 1500, 5000, 9001, 64 << 10, 64<<10 + 1, 200_001}[rng.IntN(11)]
		if at+n+100 > size {
			break
		}
		for _, w := range []edge.Work{{Kind: edge.Write, Local: rf, LocalOff: at, Len: n, RemoteOff: at + 5},
			{Kind: edge.Read, Local: rt, LocalOff: at + 3, Len: n, RemoteOff: at + 5, Flags: edge.BackwardFence}} {
			w.Remote = p.remote
			op, err := p.c.Post(p.ctx, &w)
			p.must(err)
			ops = append(ops, op)
		}
		copy(want[at+5:], from[at:at+n])
		copy(back[at+3:], from[at:at+n])
		at += n + rng.IntN(100)
	}
	p.must(edge.WaitAll(p.ctx, ops))
	if !bytes.Equal(p.far, want) {
		t.Error("what was written is not what arrived")
	}
	if !bytes.Equal(to, back) {
		t.Error("what was read is not what was there")
	}
	if space.Resident(rf, 0, 1) {
		t.Error("a heap grant says that it is pinned")
	}
}

// TestHeapNotifies: a notification comes after the bytes of its write, and a write behind a fence after all before it,
// in memory that couriers write.
func TestHeapNotifies(t *testing.T) {
	const block, rounds = 20_000, 50
	p := newHeapPair(t, make([]byte, 2*block))
	src, err := p.b.Register(2 * block)
	p.must(err)
	for i := range rounds {
		for k := range src.Bytes() {
			src.Bytes()[k] = byte(i + 1)
		}
		var ops []edge.Op
		for k, flags := range []edge.Flags{0, edge.BackwardFence | edge.Notify} {
			op, err := p.c.Post(p.ctx, &edge.Work{Kind: edge.Write, Local: src, LocalOff: k * block, Len: block,
				Remote: p.remote, RemoteOff: k * block, Flags: flags, Imm: uint32(i)})
			p.must(err)
			ops = append(ops, op)
		}
		n, err := p.back.WaitNotify(p.ctx)
		p.must(err)
		if n.Imm != uint32(i) || int(n.Offset) != block || n.Len != block {
			t.Fatalf("notification %+v", n)
		}
		if k := bytes.IndexFunc(n.Grant.Bytes(), func(r rune) bool { return r != rune(i+1) }); k >= 0 {
			t.Fatalf("round %d: byte %d was not there when the notification came", i, k)
		}
		p.must(edge.WaitAll(p.ctx, ops))
	}
}

// TestHeapUnmapped: operations that meet addresses without memory fail with ErrMemory, at either end, at once, and
// nothing else does; memory that comes back is there again.
func TestHeapUnmapped(t *testing.T) {
	const page = 4096
	mem, err := syscall.Mmap(-1, 0, 4*page, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_PRIVATE|syscall.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Munmap(mem)
	addr := uint64(uintptr(unsafe.Pointer(&mem[0])))
	p := newHeapPair(t, make([]byte, 8*page))
	near, err := heap.Range(p.ctx, p.b, addr, 4*page)
	p.must(err)
	far, err := heap.Range(p.ctx, p.a, addr, 4*page)
	p.must(err)
	_, err = far.Export(p.back, "range", edge.RemoteRead|edge.RemoteWrite, 0, far.Len())
	p.must(err)
	remote, err := p.c.Import(p.ctx, "range")
	p.must(err)
	whole, err := p.b.Register(4 * page)
	p.must(err)
	hole := unsafe.Pointer(&mem[page])
	p.must(unix.MunmapPtr(hole, page))
	for _, w := range []edge.Work{
		{Kind: edge.Write, Local: near, LocalOff: page / 2, Len: 2 * page},
		{Kind: edge.Read, Local: near, LocalOff: page / 2, Len: 2 * page},
		{Kind: edge.Write, Local: near, LocalOff: page, Len: 8},
		{Kind: edge.Write, Local: whole, Len: 2 * page, Remote: remote},
		{Kind: edge.Read, Local: whole, Len: 2 * page, Remote: remote},
		{Kind: edge.Write, Inline: []byte{1}, Remote: remote, RemoteOff: page, Flags: edge.ForwardFence},
	} {
		took := time.Hour
		for try := 0; try < 3 && took > 900*time.Millisecond; try++ { // on a busy machine one may be slow
			began := time.Now()
			if err := p.do(w); !errors.Is(err, edge.ErrMemory) {
				t.Errorf("%v of memory that is not there: %v", w.Kind, err)
			}
			took = time.Since(began)
		}
		if took > 900*time.Millisecond {
			t.Errorf("%v of memory that is not there took %v: it waited for something", w.Kind, took)
		}
		p.must(p.do(edge.Work{Kind: edge.Write, Local: near, LocalOff: 2 * page, Len: page, Flags: edge.BackwardFence}))
		p.must(p.do(edge.Work{Kind: edge.Read, Local: near, LocalOff: 3 * page, Len: page}))
	}
	_, err = unix.MmapPtr(-1, 0, hole, page, syscall.PROT_READ|syscall.PROT_WRITE,
		syscall.MAP_PRIVATE|syscall.MAP_ANON|unix.MAP_FIXED_NOREPLACE)
	p.must(err)
	p.must(p.do(edge.Work{Kind: edge.Write, Inline: []byte{7}, Remote: remote, RemoteOff: page + 9}))
	if mem[page+9] != 7 {
		t.Error("memory that is back was not written")
	}
}

// TestHeapGivenBack: of a sparse mapping that is granted the program gives back what it likes: the pages go, peers
// read zeros there and write it again; what lies beside it stays.
func TestHeapGivenBack(t *testing.T) {
	const size, part = 4 << 30, 1 << 20
	mem, err := syscall.Mmap(-1, 0, size, syscall.PROT_READ|syscall.PROT_WRITE,
		syscall.MAP_PRIVATE|syscall.MAP_ANON|syscall.MAP_NORESERVE)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Munmap(mem)
	p := newHeapPair(t, mem)
	near := p.heap(bytes.Repeat([]byte{7}, 2*part))
	const at = size / 2
	resident := func() (n int) {
		t.Helper()
		pages := make([]byte, 2*part/4096)
		_, _, errno := syscall.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(&mem[at])), 2*part,
			uintptr(unsafe.Pointer(&pages[0])))
		if errno != 0 {
			t.Fatal(errno)
		}
		for _, in := range pages {
			n += int(in & 1)
		}
		return n * 4096
	}
	p.must(p.do(edge.Work{Kind: edge.Write, Local: near, Len: 2 * part, RemoteOff: at}))
	if n := resident(); n != 2*part {
		t.Fatalf("%d bytes are resident after %d were written", n, 2*part)
	}
	p.must(unix.Madvise(mem[at:at+part], unix.MADV_DONTNEED))
	if n := resident(); n != part {
		t.Fatalf("%d bytes are resident, want %d", n, part)
	}
	got := bytes.Repeat([]byte{1}, 2*part)
	p.must(p.do(edge.Work{Kind: edge.Read, Local: p.heap(got), Len: 2 * part, RemoteOff: at}))
	if !bytes.Equal(got, append(make([]byte, part), bytes.Repeat([]byte{7}, part)...)) {
		t.Error("the peer does not read zeros and what lies beside them")
	}
	p.must(p.do(edge.Work{Kind: edge.Write, Local: near, Len: 8, RemoteOff: at + 9}))
	if !bytes.Equal(mem[at+8:at+18], []byte{0, 7, 7, 7, 7, 7, 7, 7, 7, 0}) {
		t.Errorf("% x was written again", mem[at+8:at+18])
	}
}

// escaped puts a slice on Go's heap, where it stays; a goroutine's stack moves.
var escaped []uint64

// TestHeapByAddress: of a range from address 0 an offset is a virtual address.
func TestHeapByAddress(t *testing.T) {
	p := newHeapPair(t, make([]byte, 8))
	r, err := heap.Range(p.ctx, p.a, 0, 1<<46)
	p.must(err)
	_, err = r.Export(p.back, "all", edge.RemoteRead|edge.RemoteWrite, 0, r.Len())
	p.must(err)
	all, err := p.c.Import(p.ctx, "all")
	p.must(err)
	words := make([]uint64, 100)
	escaped = words
	at := int(uintptr(unsafe.Pointer(&words[17])))
	p.must(p.do(edge.Work{Kind: edge.Write, Inline: []byte{1, 2}, Remote: all, RemoteOff: at, Flags: edge.Notify}))
	n, err := p.back.WaitNotify(p.ctx)
	p.must(err)
	if words[17] != 0x201 || int(n.Offset) != at || n.Grant.Bytes() != nil {
		t.Errorf("%#x, %+v", words[17], n)
	}
	for _, off := range []int{0, 4096, 1<<46 - 8} {
		if err := p.do(edge.Work{Kind: edge.Write, Inline: []byte{1}, Remote: all, RemoteOff: off}); !errors.Is(err,
			edge.ErrMemory) {
			t.Errorf("address %#x: %v", off, err)
		}
	}
}

// TestHeapRefusals: what cannot be is refused with words that help.
func TestHeapRefusals(t *testing.T) {
	p := newHeapPair(t, make([]byte, 4096))
	ctx := p.ctx
	whole, err := p.b.Register(4096)
	p.must(err)
	near := p.heap(make([]byte, 4096))
	ask := map[string]func() error{
		"hold a string": func() error { _, err := heap.Grant(ctx, p.a, make([]string, 1)); return err },
		"hold a *int": func() error {
			_, err := heap.Grant(ctx, p.a, make([]struct{ a [2]struct{ p *int } }, 1))
			return err
		},
		"hold a []uint8": func() error { _, err := heap.Grant(ctx, p.a, [][]byte{{1}}); return err },
		"no bytes":       func() error { _, err := heap.Grant(ctx, p.a, []byte{}); return err },
		"1 to 2^46 bytes": func() error {
			_, err := heap.Range(ctx, p.a, 1<<63, 4096)
			return err
		},
		"heap.Range: 0":  func() error { _, err := heap.Range(ctx, p.a, 4096, 0); return err },
		"heap.Range: 18": func() error { _, err := heap.Range(ctx, p.a, 4096, ^uint64(0)-4095); return err },
		"atomic": func() error {
			_, err := p.granted.Export(p.back, "x", edge.RemoteAtomic, 0, 8)
			return err
		},
		"one piece": func() error {
			_, err := p.c.Post(ctx, &edge.Work{Kind: edge.Write, Remote: p.remote, Pieces: []edge.Piece{{whole, 0, 8},
				{near, 0, 8}}})
			return err
		},
		"or a heap grant": func() error {
			_, err := p.c.Post(ctx, &edge.Work{Kind: edge.Send, Local: near, Len: 8})
			return err
		},
		"cannot be redirected": func() error {
			r, err := p.a.Register(4096)
			p.must(err)
			_, err = redirect.Begin(p.grant, 0, 8, r, 0)
			return err
		},
	}
	for says, f := range ask {
		if err := f(); !errors.Is(err, edge.ErrInvalid) || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v", says, err)
		}
	}
	p.must(p.do(edge.Work{Kind: edge.Write, Pieces: []edge.Piece{{near, 8, 8}}}))
	if _, err := heap.Grant(ctx, p.a, make([]struct {
		a [4]uint16
		b complex128
		c [0]string
	}, 3)); err != nil {
		t.Errorf("memory without pointers: %v", err)
	}
}

// TestHeapComesBack: when Close of the Region, Revoke or Close of the Device has returned, no byte changes any more.
func TestHeapComesBack(t *testing.T) {
	const size = 1 << 20
	for name, end := range map[string]func(p *heapPair) error{
		"revoke": func(p *heapPair) error { return p.grant.Revoke() },
		"region": func(p *heapPair) error { return p.granted.Close() },
		"abort":  func(p *heapPair) error { return p.back.Abort() },
		"device": func(p *heapPair) error { return p.a.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			p := newHeapPair(t, make([]byte, size))
			src := p.heap(bytes.Repeat([]byte{1}, size))
			stop := make(chan struct{})
			done := make(chan struct{})
			go func() {
				defer close(done)
				for i := 0; ; i++ {
					select {
					case <-stop:
						return
					default:
					}
					op, err := p.c.Post(p.ctx, &edge.Work{Kind: edge.Write, Local: src, Len: size,
						Remote: p.remote})
					if err != nil || i%8 == 7 && op.Wait(p.ctx) != nil {
						return
					}
				}
			}()
			for p.far[size-1] == 0 && p.ctx.Err() == nil {
				time.Sleep(time.Millisecond)
			}
			p.must(end(p))
			clear(p.far)
			for until := time.Now().Add(30 * time.Millisecond); time.Now().Before(until); {
				if i := slices.IndexFunc(p.far, func(b byte) bool { return b != 0 }); i >= 0 {
					t.Fatalf("byte %d was written after the end", i)
				}
			}
			close(stop)
			p.c.Abort()
			<-done
		})
	}
}
