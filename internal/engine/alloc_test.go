package engine_test

import (
	"fmt"
	"testing"
	"time"

	"multiedge/internal/engine"
	"multiedge/internal/mono"
)

// pipe joins two engines without copies of its own beyond gathering a frame, and without allocations, so that what is
// measured is the engine.
type pipe struct {
	e       [2]*engine.Endpoint
	batch   [2]*engine.Batches
	c       [2]engine.ConnID
	now     mono.Time
	bufs    [batchFrames][]byte
	arrived []engine.Arrival // in bufs, of one link
	link    int
	done    int
	bad     int
	op      engine.Op
}

const pipeMemory = 1 << 20

func newPipe(t testing.TB, o rigOptions) *pipe {
	r := newRig(t, o)
	c := r.connect(engine.DialOptions{})
	_, key := r.export(1, c[1], pipeMemory, both)
	r.settle()
	r.rest(2 * time.Second)
	p := &pipe{c: c, now: r.now, op: engine.Op{Key: key}}
	for i := range p.bufs {
		p.bufs[i] = make([]byte, 0, 16<<10)
	}
	for i := range r.n {
		p.e[i], p.batch[i] = r.n[i].e, r.n[i].batch
	}
	return p
}

// step moves what both engines have to send and takes their events. The clock advances by what a frame might take.
func (p *pipe) step() {
	p.now += 5000
	for i := range p.e {
		if p.e[i].NextTimeout() <= p.now {
			p.e[i].HandleTimeout(p.now)
		}
		for p.e[i].PollTransmit(p.now, p.batch[i]) > 0 {
			for link, f := range p.batch[i].All() {
				if link != p.link {
					p.handle(1 - i)
				}
				p.link = link
				p.arrived = append(p.arrived, engine.Whole(f.AppendTo(p.bufs[len(p.arrived)])))
			}
			p.handle(1 - i)
			p.batch[i].Reset()
		}
		var ev engine.Event
		for p.e[i].PollEvent(&ev) {
			switch ev.Kind {
			case engine.EvComplete:
				p.done++
				if ev.Status != engine.OK {
					p.bad++
				}
			case engine.EvNotify:
				for ok := true; ok; {
					_, ok = p.e[i].TakeNotify(ev.Conn)
				}
			}
		}
	}
}

// handle gives engine i what has arrived on a link, together, as drivers do.
func (p *pipe) handle(i int) {
	p.e[i].Handle(p.now, p.link, p.arrived...)
	p.arrived = p.arrived[:0]
}

// do runs n operations with up to depth outstanding.
func (p *pipe) do(n, depth int) {
	want := p.done + n
	for left := n; p.done < want; {
		for left > 0 && left+p.done > want-depth && p.e[0].Submit(p.now, p.c[0], &p.op) {
			left--
		}
		p.step()
	}
}

var shapes = []struct {
	name  string
	kind  engine.OpKind
	flags engine.OpFlags
	size  int
	depth int
}{
	{"write of 8 B", engine.OpWrite, 0, 8, 64},
	{"write of 8 B, notify", engine.OpWrite, engine.Notify, 8, 64},
	{"write of 8 B, one at a time", engine.OpWrite, engine.Notify, 8, 1},
	{"write of 64 KiB", engine.OpWrite, engine.Notify, 64 << 10, 4},
	{"read of 8 B", engine.OpRead, 0, 8, 64},
	{"read of 64 KiB", engine.OpRead, 0, 64 << 10, 4},
	{"fenced write of 1 KiB", engine.OpWrite, engine.BackwardFence | engine.ForwardFence, 1 << 10, 64},
}

// No allocation per operation nor per frame once rings and pools have their size.
func TestAllocations(t *testing.T) {
	for _, c := range []rigOptions{{mtu: 1500, links: 1}, {mtu: 9000, links: 4}, {mtu: 1500, links: 1, sealed: true},
		{mtu: 9000, links: 1, shuffle: 78},
		{mtu: 9000, links: 4, sealed: true}} {
		p := newPipe(t, c)
		for _, s := range shapes {
			p.op.Kind, p.op.Flags, p.op.Local = s.kind, s.flags, make([]byte, s.size)
			warm, each := 4000, 200
			if s.size > 1<<12 {
				warm, each = 200, 20
			}
			p.do(warm, s.depth)
			frames := p.e[0].Count.Traffic.FramesSent + p.e[1].Count.Traffic.FramesSent
			const runs = 5
			allocs := testing.AllocsPerRun(runs, func() { p.do(each, s.depth) })
			frames = p.e[0].Count.Traffic.FramesSent + p.e[1].Count.Traffic.FramesSent - frames
			// A hello a second per link is allowed its buffer; this takes milliseconds of virtual time.
			if allocs > 0 || frames == 0 {
				t.Errorf("MTU %d, %d links, sealed %v, %s: %v allocations per %d operations (%d frames)", c.mtu,
					c.links, c.sealed, s.name, allocs, each, frames/(runs+1))
			}
		}
		if p.bad != 0 {
			t.Errorf("%d operations failed", p.bad)
		}
	}
}

func BenchmarkEngines(b *testing.B) {
	for k := range 2 * len(shapes) {
		s, o := shapes[k/2], rigOptions{mtu: 9000, sealed: k%2 == 1}
		b.Run(fmt.Sprintf("%s, sealed %v", s.name, o.sealed), func(b *testing.B) {
			p := newPipe(b, o)
			p.op.Kind, p.op.Flags, p.op.Local = s.kind, s.flags, make([]byte, s.size)
			p.do(2000, s.depth)
			frames := p.e[0].Count.Traffic.FramesSent + p.e[1].Count.Traffic.FramesSent
			b.SetBytes(int64(s.size))
			b.ReportAllocs()
			b.ResetTimer()
			p.do(b.N, s.depth)
			frames = p.e[0].Count.Traffic.FramesSent + p.e[1].Count.Traffic.FramesSent - frames
			b.ReportMetric(float64(frames)/b.Elapsed().Seconds(), "frames/s")
			b.ReportMetric(float64(frames)/float64(b.N), "frames/op")
		})
	}
}

// BenchmarkTrains has long operations, of which most frames carry a part and nothing else.
func BenchmarkTrains(b *testing.B) {
	for _, mtu := range []int{1500, 9000} {
		for _, kind := range []engine.OpKind{engine.OpWrite, engine.OpRead} {
			for _, sealed := range []bool{false, true} {
				b.Run(fmt.Sprintf("mtu %d, kind %d, sealed %v", mtu, kind, sealed), func(b *testing.B) {
					p := newPipe(b, rigOptions{mtu: mtu, super: superBytes, sealed: sealed,
						checksum: engine.ChecksumHeader})
					p.op.Kind, p.op.Local = kind, make([]byte, pipeMemory/2)
					p.do(50, 2)
					frames := p.e[0].Count.Traffic.DataFramesSent + p.e[1].Count.Traffic.DataFramesSent
					b.ResetTimer()
					p.do(b.N, 2)
					frames = p.e[0].Count.Traffic.DataFramesSent + p.e[1].Count.Traffic.DataFramesSent - frames
					b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(frames), "ns/frame")
				})
			}
		}
	}
}
