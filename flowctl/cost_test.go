package flowctl

import (
	"fmt"
	"testing"
	"time"

	"multiedge/internal/mono"
)

// path is a sender and a receiver without a wire, for measuring.
type path struct {
	l      *Ledger
	rtt    RTT
	cwnd   Controller
	tr     Tracker
	pol    AckPolicy
	now    mono.Time
	words  [256]uint64
	acked  []Sent
	lost   []Sent
	lossOf uint64 // one in so many is lost; 0: none
}

func newPath(lossOf uint64) *path {
	p := &path{l: NewLedger(DefaultSpan), now: mono.Time(time.Hour), acked: make([]Sent, 0, 512),
		lost: make([]Sent, 0, 512), lossOf: lossOf}
	p.cwnd = DefaultDelay.New()
	p.pol.Init(DefaultAcks)
	for range 3 * WindowBits {
		p.frame()
	}
	return p
}

// frame does all that one frame costs both ends, acknowledgements included.
func (p *path) frame() {
	p.now += 300
	n, _ := p.l.InFlight()
	if !p.cwnd.Allows(n, p.now) {
		p.ack()
	}
	pn := p.l.Record(p.now, 8192, 7, true)
	if p.lossOf > 0 && pn%p.lossOf == p.lossOf-1 {
		return
	}
	if p.tr.Check(pn) != New {
		panic("replay")
	}
	gap, _ := p.tr.Commit(pn, p.now)
	p.pol.OnFrame(p.now, true, gap)
	if p.pol.Due(p.now) {
		p.ack()
	}
	if p.l.Deadline() <= p.now {
		p.lost, _ = p.l.OnTimeout(p.now, &p.rtt, p.lost[:0])
	}
}

func (p *path) ack() {
	largest, at, _ := p.tr.Largest()
	b := Block{Largest: largest, Delay: p.now.Sub(at)}
	b.Floor, b.Bits = p.tr.AckBits(p.words[:0], MaxAckWords)
	p.pol.OnSent()
	p.now += 20_000
	p.acked, p.lost, _ = p.l.OnAck(p.now, &b, &p.rtt, p.acked[:0], p.lost[:0])
	p.cwnd.OnAck(p.now, len(p.acked), &p.rtt)
	p.cwnd.OnLoss(p.now, len(p.lost))
}

func TestAllocations(t *testing.T) {
	for _, lossOf := range []uint64{0, 50} {
		p := newPath(lossOf)
		if n := testing.AllocsPerRun(1000, p.frame); n != 0 {
			t.Errorf("loss of one in %d: %v allocations per frame", lossOf, n)
		}
	}
	p := newPath(0)
	abandon := func() { p.frame(); p.lost = p.l.AbandonAll(p.lost[:0]) }
	if n := testing.AllocsPerRun(1000, abandon); n != 0 {
		t.Errorf("AbandonAll: %v allocations", n)
	}
}

func BenchmarkFrame(b *testing.B) {
	for _, lossOf := range []uint64{0, 1000, 50} {
		b.Run(fmt.Sprintf("lossOf%d", lossOf), func(b *testing.B) {
			p := newPath(lossOf)
			b.ReportAllocs()
			for b.Loop() {
				p.frame()
			}
		})
	}
}

func BenchmarkAckBits(b *testing.B) {
	for _, words := range []int{16, MaxAckWords} {
		b.Run(fmt.Sprint(words), func(b *testing.B) {
			p := newPath(50)
			b.ReportAllocs()
			for b.Loop() {
				p.tr.AckBits(p.words[:0], words)
			}
		})
	}
}

// BenchmarkOnAckNothingNew is the cost of a block that was heard before, with old holes in it.
func BenchmarkOnAckNothingNew(b *testing.B) {
	p := newPath(50)
	largest, _, _ := p.tr.Largest()
	blk := Block{Largest: largest}
	blk.Floor, blk.Bits = p.tr.AckBits(p.words[:0], MaxAckWords)
	b.ReportAllocs()
	for b.Loop() {
		p.acked, p.lost, _ = p.l.OnAck(p.now, &blk, &p.rtt, p.acked[:0], p.lost[:0])
	}
}
