package stream

import (
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"runtime"
	"sync"
	"testing"
	"time"

	"multiedge/internal/ipc"

	"multiedge/edge"
	"multiedge/edge/fabric"
)

// A reader that stands still stops its writer and nobody else, whatever the size of writes; nothing is lost.
func TestStreamReaderStandsStill(t *testing.T) {
	n := newStreamNet(t, Config{ReceiveBuffer: 1 << 14})
	for _, chunk := range []int{1, 7, 3000, 1 << 16} {
		out, in := n.mustPair(t)
		other, otherEnd := n.mustPair(t)
		next := byte(0)
		fill := func() (written int) {
			must(t, out.SetWriteDeadline(time.Now().Add(20*time.Millisecond)))
			for p := make([]byte, chunk); ; {
				for i := range p {
					p[i] = next + byte(i)
				}
				m, err := out.Write(p)
				written += m
				next += byte(m)
				if errors.Is(err, os.ErrDeadlineExceeded) {
					return written
				}
				must(t, err)
			}
		}
		seen := byte(0)
		for range 2 {
			written := fill()
			must(t, sendAndCompare(other, otherEnd, 5, 100_000))
			got := make([]byte, written)
			_, err := io.ReadFull(in, got)
			must(t, err)
			for i, b := range got {
				if b != seen {
					t.Fatalf("writes of %d: byte %d is %d, want %d", chunk, i, b, seen)
				}
				seen++
			}
		}
		for _, s := range []*Conn{out, in, other, otherEnd} {
			must(t, s.Close())
		}
	}
}

// Several streams both ways at once, through queues that are far too short for them.
func TestStreamsShareADevice(t *testing.T) {
	ctx := testContext(t)
	fab := fabric.New()
	defer fab.Close()
	n := &streamNet{with: Config{ReceiveBuffer: 1 << 13, SendBuffer: 1 << 14}}
	var err error
	n.a, err = fab.OpenConfig(ctx, "a", edge.Config{QueueDepth: ipc.MinDepth})
	must(t, err)
	n.b, err = fab.OpenConfig(ctx, "b", edge.Config{QueueDepth: ipc.MinDepth})
	must(t, err)
	n.l, err = n.cfg(n.b).Listen(ctx, "s")
	must(t, err)
	n.with.ReceiveBuffer = 1 << 15 // the other end's
	var wg sync.WaitGroup
	for i := range 4 {
		out, in := n.mustPair(t)
		var both sync.WaitGroup
		both.Go(func() { check(t, sendAndCompare(out, in, byte(2*i), 400_000)) })
		both.Go(func() { check(t, sendAndCompare(in, out, byte(2*i+1), 400_000)) })
		wg.Go(func() {
			both.Wait()
			check(t, out.Close())
			check(t, in.Close())
		})
	}
	wg.Wait()
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}

// Writes of several goroutines do not mix.
func TestStreamWritesAreWhole(t *testing.T) {
	n := newStreamNet(t, Config{ReceiveBuffer: 1 << 13, SendBuffer: 1 << 13})
	out, in := n.mustPair(t)
	const writers, records = 4, 40
	for i := range writers {
		go func() {
			rng := rand.New(rand.NewPCG(uint64(i), 9))
			for range records {
				p := make([]byte, 3+rng.IntN(1<<rng.IntN(16)))
				binary.BigEndian.PutUint16(p, uint16(len(p)-3))
				for j := range p[2:] {
					p[2+j] = byte(i)
				}
				if _, err := out.Write(p); err != nil {
					t.Error(err)
					return
				}
			}
		}()
	}
	var head [3]byte
	for range writers * records {
		_, err := io.ReadFull(in, head[:])
		must(t, err)
		p := make([]byte, binary.BigEndian.Uint16(head[:]))
		_, err = io.ReadFull(in, p)
		must(t, err)
		for j, b := range p {
			if b != head[2] {
				t.Fatalf("byte %d of a record of writer %d is of writer %d", j, head[2], b)
			}
		}
	}
	must(t, out.Close())
	must(t, in.Close())
}

// Streams at rest have no goroutines, with deadlines or without.
func TestStreamHasNoGoroutine(t *testing.T) {
	n := newStreamNet(t, Config{ReceiveBuffer: minBuffer, SendBuffer: minBuffer})
	before := runtime.NumGoroutine()
	var all []*Conn
	for range 16 {
		out, in := n.mustPair(t)
		must(t, out.SetDeadline(time.Now().Add(time.Hour)))
		must(t, sendAndCompare(out, in, 1, 10_000))
		all = append(all, out, in)
	}
	eventually(t, "no goroutine is left", 10*time.Second, func() bool { return runtime.NumGoroutine() <= before })
	for _, s := range all {
		must(t, s.Close())
	}
}
