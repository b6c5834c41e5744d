package linkdrv

import (
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"
)

// BenchmarkVeth is the limit of the drivers: one sender thread, one receiver thread that copies payloads to a cold
// region, and a window of frames in flight kept by a shared counter. One operation is one frame; SetBytes counts
// payload.
func BenchmarkVeth(b *testing.B) {
	for _, mtu := range []int{1500, 9000, 65535} {
		for _, kind := range []string{KindRing, KindMmsg, KindUDP} {
			b.Run(fmt.Sprintf("%s/%d", kind, mtu), func(b *testing.B) { benchmarkVeth(b, kind, mtu) })
		}
	}
}

const cold = 64 << 20

func benchmarkVeth(b *testing.B, kind string, mtu int) {
	namespace(b)
	veth(b, mtu)
	pin(b, 0)
	tx, rx := open(b, "a0", Options{Kind: kind}), open(b, "b0", Options{Kind: kind})
	payload := min(mtu-64, 65535-64)
	if kind == KindUDP {
		payload -= udpOverhead
	} else if mtu == 9000 {
		payload = 8128 // frame of 8206 bytes: keeps the kernel's buffer at two pages
	}
	window := uint64(min(128, rx.Info().RxSlots*3/4))
	var received atomic.Uint64
	source, target := make([]byte, cold), make([]byte, cold)
	// touch every page, or the kernel serves one and the same page of zeros
	for _, b := range [][]byte{source, target} {
		for i := 0; i < len(b); i += 4096 {
			b[i] = byte(i >> 12)
		}
	}
	done := make(chan struct{})
	go func() {
		runtime.LockOSThread() // never unlocked: the thread and its affinity end with the goroutine
		defer close(done)
		pin(b, 1)
		drain(b, rx, target, payload, uint64(b.N), &received)
	}()
	frames := make([]TxFrame, SendBatch)
	for i := range frames {
		frames[i].Head, frames[i].Joined = header(tx, rx, 64), true
	}
	b.SetBytes(int64(payload))
	b.ReportAllocs()
	b.ResetTimer()
	sent, off := uint64(0), 0
	for sent < uint64(b.N) {
		room := min(window-(sent-received.Load()), uint64(b.N)-sent, 32)
		if room < min(16, uint64(b.N)-sent) {
			continue // whole batches cost a tenth less than single frames
		}
		for i := range frames[:room] {
			if off += payload; off+payload > len(source) {
				off = 0
			}
			frames[i].Bulk = source[off : off+payload]
		}
		n, err := tx.Send(frames[:room])
		must(b, err)
		sent += uint64(n)
	}
	<-done
	b.StopTimer()
	b.ReportMetric(float64(b.N)*float64(payload)*8/float64(b.Elapsed().Nanoseconds()), "Gbit/s")
}

// pin binds the calling thread, which must be locked, to one core if there are two.
func pin(b *testing.B, cpu int) {
	var set, old unix.CPUSet
	if runtime.NumCPU() < 2 {
		return
	}
	if err := unix.SchedGetaffinity(0, &old); err != nil {
		b.Error(err)
	}
	set.Set(cpu)
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		b.Error(err)
	}
	if cpu == 0 {
		b.Cleanup(func() { unix.SchedSetaffinity(0, &old) })
	}
}

// drain receives until want frames arrived or were dropped, copying each payload.
func drain(b *testing.B, rx Driver, target []byte, payload int, want uint64, received *atomic.Uint64) {
	dst := make([][]byte, RecvBatch)
	off, got, idle := 0, uint64(0), 0
	for got < want {
		n, err := rx.Recv(dst)
		if err != nil {
			b.Error(err)
			return
		}
		for _, f := range dst[:n] {
			if off += payload; off+payload > len(target) {
				off = 0
			}
			copy(target[off:], f[HeaderLen+64:])
		}
		got += uint64(n)
		received.Store(got)
		if idle++; n > 0 {
			idle = 0
		} else if idle > 1e8 {
			s, _ := rx.Stats()
			b.Errorf("stuck at %d of %d: %+v", got, want, s)
			return
		}
	}
}
