package stream

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"testing"
	"time"

	"multiedge/edge"
	"multiedge/edge/heap"
	"multiedge/edge/internal/memnet"
	"multiedge/edge/node"
)

// regionPair is a stream, and registered memory at both ends.
func regionPair(t testing.TB, n *streamNet, size int) (out, in *Conn, from, to *edge.Region) {
	t.Helper()
	out, in = n.mustPair(t)
	from, err := n.a.Register(size)
	must(t, err)
	to, err = n.b.Register(size)
	must(t, err)
	return out, in, from, to
}

// All ways of writing and reading, in any order and of any length, are one stream, whatever the size of the rings, and
// no memory but what was asked for changes.
func TestStreamRegionIsTheStream(t *testing.T) {
	for k, cfg := range []Config{{}, {ReceiveBuffer: minBuffer, SendBuffer: 1 << 20},
		{ReceiveBuffer: 1 << 20, SendBuffer: 64 << 10}} {
		t.Run(fmt.Sprint(cfg), func(t *testing.T) {
			t.Parallel()
			const memory = 3 << 20
			n := newStreamNet(t, cfg)
			out, in, from, to := regionPair(t, n, memory)
			rng := rand.New(rand.NewPCG(uint64(k), 7))
			seed := [32]byte{byte(k)}
			total := 24 << 20
			written := make(chan error, 1)
			go func() {
				rng, source := rand.New(rand.NewPCG(uint64(k), 8)), rand.NewChaCha8(seed)
				for left := total; left > 0; {
					size := min(1+rng.IntN(1<<(1+rng.IntN(21))), left)
					off := rng.IntN(memory - size + 1)
					p := from.Bytes()[off : off+size]
					source.Read(p)
					var m int
					var err error
					if rng.IntN(4) == 0 {
						m, err = out.Write(p)
					} else {
						m, err = out.WriteRegion(from, off, size)
					}
					clear(p) // it is ours again
					if m != size || err != nil {
						written <- fmt.Errorf("write of %d bytes with %d to go: %d, %w", size, left, m, err)
						return
					}
					left -= size
				}
				written <- out.CloseWrite()
			}()
			oracle, want, zero := rand.NewChaCha8(seed), make([]byte, memory), make([]byte, memory)
			for got := 0; got < total; {
				size := min(1+rng.IntN(1<<(1+rng.IntN(21))), total-got)
				off := rng.IntN(memory - size + 1)
				p := to.Bytes()
				clear(p)
				var m int
				var err error
				if rng.IntN(4) == 0 {
					m, err = in.Read(p[off : off+size])
				} else if m, err = in.ReadRegion(to, off, size); m != size {
					t.Fatalf("seed %d: ReadRegion of %d bytes at %d: %d, %v", k, size, got, m, err)
				}
				oracle.Read(want[:m])
				if err != nil || !bytes.Equal(p[off:off+m], want[:m]) {
					t.Fatalf("seed %d: %d bytes at %d of the stream: %v, or others than were written", k, m, got, err)
				}
				if !bytes.Equal(p[:off], zero[:off]) || !bytes.Equal(p[off+size:], zero[off+size:]) {
					t.Fatalf("seed %d: reading %d bytes at %d to %d changed memory beside them", k, size, got, off)
				}
				got += m
			}
			must(t, <-written)
			if m, err := in.ReadRegion(to, 0, 100_000); m != 0 || err != io.EOF {
				t.Errorf("at the end: %d, %v", m, err)
			}
			must(t, in.Close())
			must(t, out.Close())
			must(t, from.Close())
			must(t, to.Close())
		})
	}
}

// A long ReadRegion that is there first has all its bytes redirected.
func TestReadRegionCopiesNothing(t *testing.T) {
	n := newStreamNet(t, Config{})
	const size = 8 << 20
	out, in, from, to := regionPair(t, n, size)
	rand.NewChaCha8([32]byte{1}).Read(from.Bytes())
	read := make(chan error, 1)
	go func() { read <- second(in.ReadRegion(to, 0, size)) }()
	eventually(t, "the read has aimed", 10*time.Second, func() bool {
		_, ok := in.oldestAim()
		return ok
	})
	must(t, second(in.Write([]byte{1})))
	must(t, second(out.Read(make([]byte, 1)))) // so the transport has taken the aims, which were posted before
	ring := bytes.Clone(in.region.Bytes()[:in.ring])
	must(t, second(out.WriteRegion(from, 0, size)))
	must(t, <-read)
	if !bytes.Equal(from.Bytes(), to.Bytes()) {
		t.Error("other bytes were read than were written")
	}
	if !bytes.Equal(in.region.Bytes()[:in.ring], ring) {
		t.Error("bytes were put into the ring, to be copied from there")
	}
	must(t, in.Close())
	must(t, out.Close())
}

// A deadline ends a ReadRegion in the middle of its aims, and no byte is lost: the stream goes on behind those read.
func TestReadRegionDeadline(t *testing.T) {
	n := newStreamNet(t, Config{})
	const size = 1 << 20
	out, in, from, to := regionPair(t, n, size)
	rand.NewChaCha8([32]byte{2}).Read(from.Bytes())
	got := 0
	for _, sent := range []int{100, 70_000, 0, 200_000} {
		must(t, second(out.WriteRegion(from, 0, sent)))
		must(t, in.SetReadDeadline(time.Now().Add(20*time.Millisecond)))
		m, err := in.ReadRegion(to, got, size-got)
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("read of what does not come: %d, %v", m, err)
		}
		must(t, in.SetReadDeadline(time.Time{}))
		if rest := sent - m; rest > 0 {
			must(t, second(in.ReadRegion(to, got+m, rest)))
		} else if rest < 0 {
			t.Fatalf("%d bytes were read of %d", m, sent)
		}
		if !bytes.Equal(to.Bytes()[got:got+sent], from.Bytes()[:sent]) {
			t.Fatalf("of %d bytes some are others", sent)
		}
		if _, ok := in.oldestAim(); ok {
			t.Fatal("an aim is left")
		}
		got += sent
	}
	must(t, to.Close()) // nothing uses it
	must(t, in.Close())
	must(t, out.Close())
}

// Every end of a stream ends a ReadRegion that waits, with what it has, and gives the memory back.
func TestReadRegionEnds(t *testing.T) {
	n := newStreamNet(t, Config{})
	const size, sent = 1 << 20, 100_000
	for _, end := range []struct {
		name string
		do   func(out, in *Conn) error
		want error
	}{
		{"CloseWrite", func(out, _ *Conn) error { return out.CloseWrite() }, io.ErrUnexpectedEOF},
		{"Close", func(out, _ *Conn) error { return out.Close() }, io.ErrUnexpectedEOF},
		{"Reset", func(out, _ *Conn) error { return out.Reset() }, edge.ErrReset},
		{"Close here", func(_, in *Conn) error { return in.Close() }, net.ErrClosed},
	} {
		t.Run(end.name, func(t *testing.T) {
			out, in, from, to := regionPair(t, n, size)
			rand.NewChaCha8([32]byte{3}).Read(from.Bytes())
			type result struct {
				n   int
				err error
			}
			read := make(chan result, 1)
			go func() {
				m, err := in.ReadRegion(to, 0, size)
				read <- result{m, err}
			}()
			eventually(t, "the read has aimed", 10*time.Second, func() bool {
				_, ok := in.oldestAim()
				return ok
			})
			must(t, second(out.Write(from.Bytes()[:sent])))
			if end.want != io.ErrUnexpectedEOF {
				eventually(t, "what was sent has arrived", 10*time.Second, func() bool {
					return in.in.tail.Load() == sent
				})
			}
			must(t, end.do(out, in))
			r := <-read
			if !errors.Is(r.err, end.want) || end.want == io.ErrUnexpectedEOF && r.n != sent {
				t.Errorf("%d bytes, %v", r.n, r.err)
			}
			if !bytes.Equal(to.Bytes()[:r.n], from.Bytes()[:r.n]) {
				t.Error("other bytes were read than were written")
			}
			must(t, to.Close())
			out.Close()
			in.Close()
			must(t, from.Close())
		})
	}
}

// Memory that a stream cannot use is refused.
func TestStreamRegionRefusals(t *testing.T) {
	n := newStreamNet(t, Config{})
	out, in, from, to := regionPair(t, n, 1<<16)
	d := onDaemon(t, new(memnet.Net), "h")
	l, err := Config{Device: d}.Listen(testContext(t), "s")
	must(t, err)
	self, _ := selfPair(t, l)
	addresses, err := heap.Range(testContext(t), d, 0, 1<<20)
	must(t, err)
	for what, err := range map[string]error{
		"no bytes":              second(self.ReadRegion(addresses, 0, 1)),
		"write, no bytes":       second(self.WriteRegion(addresses, 0, 1)),
		"no region":             second(in.ReadRegion(nil, 0, 1)),
		"another edge.Device's": second(in.ReadRegion(from, 0, 1)),
		"outside":               second(in.ReadRegion(to, 1<<16, 1)),
		"before":                second(in.ReadRegion(to, -1, 1)),
		"write, another's":      second(out.WriteRegion(to, 0, 1)),
		"write, too long":       second(out.WriteRegion(from, 1, 1<<16)),
	} {
		if err == nil {
			t.Errorf("%s: no error", what)
		}
	}
	if m, err := in.ReadRegion(to, 0, 0); m != 0 || err != nil {
		t.Errorf("nothing: %d, %v", m, err)
	}
	must(t, in.Close())
	must(t, out.Close())
}

// Memory that is no registered one serves, too: it is copied.
func TestStreamRegionOfHeap(t *testing.T) {
	ctx := testContext(t)
	d := onDaemon(t, new(memnet.Net), "h")
	l, err := Config{Device: d}.Listen(ctx, "s")
	must(t, err)
	out, in := selfPair(t, l)
	const size = 1 << 20
	from, to := make([]byte, size), make([]byte, size)
	rand.NewChaCha8([32]byte{6}).Read(from)
	source, err := heap.Grant(ctx, d, from)
	must(t, err)
	target, err := heap.Grant(ctx, d, to)
	must(t, err)
	written := make(chan error, 1)
	go func() { written <- second(out.WriteRegion(source, 0, size)) }()
	must(t, second(in.ReadRegion(target, 0, size)))
	must(t, <-written)
	if !bytes.Equal(from, to) {
		t.Error("other bytes were read than were written")
	}
	must(t, source.Close())
	must(t, target.Close())
}

// BenchmarkStreamRegion is bytes one way between two embedded transports: copied at both ends, and from and into
// registered memory, which differ for long messages alone.
func BenchmarkStreamRegion(b *testing.B) {
	for _, size := range []int{16 << 10, 32 << 10, 64 << 10, 256 << 10, 1 << 20} {
		for _, way := range []string{"copied", "read", "both"} {
			b.Run(fmt.Sprintf("%s-%dK", way, size>>10), func(b *testing.B) {
				out, in, from, to := regionPair(b, newStreamNet(b, Config{}), 64<<20)
				read := make(chan error, 1)
				go func() {
					var err error
					for off := 0; err == nil; off = (off + size) % (64 << 20) {
						if way == "copied" {
							_, err = io.ReadFull(in, to.Bytes()[off:off+size])
						} else {
							_, err = in.ReadRegion(to, off, size)
						}
					}
					read <- err
				}()
				b.SetBytes(int64(size))
				b.ReportAllocs()
				off := 0
				for b.Loop() {
					var err error
					if way == "both" {
						_, err = out.WriteRegion(from, off, size)
					} else {
						_, err = out.Write(from.Bytes()[off : off+size])
					}
					must(b, err)
					off = (off + size) % (64 << 20)
				}
				must(b, out.CloseWrite())
				if err := <-read; err != io.EOF {
					b.Error(err)
				}
				b.ReportMetric(counted(b, in.c.Device(), "bytes_redirected")/float64(b.N*size), "redirected")
				must(b, in.Close())
				must(b, out.Close())
			})
		}
	}
}

// counted is a counter of a Device's transport.
func counted(t testing.TB, d *edge.Device, name string) float64 {
	t.Helper()
	body, err := node.Status(testContext(t), d, "status")
	must(t, err)
	var st struct{ Counters map[string]float64 }
	must(t, json.Unmarshal(body, &st))
	return st.Counters[name]
}

// selfPair is a stream whose ends are of one Device.
func selfPair(t *testing.T, l *Listener) (out, in *Conn) {
	t.Helper()
	ctx, d := testContext(t), l.dev
	accepted := make(chan error, 1)
	go func() {
		var err error
		in, err = l.AcceptContext(ctx)
		accepted <- err
	}()
	out, err := Config{Device: d}.Dial(ctx, d.Name(), "s")
	must(t, err)
	must(t, <-accepted)
	return out, in
}
