package flowctl

import (
	"fmt"
	"math/bits"
	"time"

	"multiedge/internal/mono"
)

// DefaultSpan is a good capacity for a Ledger: many windows of 512 frames, so that frames which overtake each other by
// thousands do not stop the path. It takes up to 130 KiB, of which a path that carries little has firstSpan's 4.
const DefaultSpan = 1 << 13

// firstSpan is what a Ledger has room for at first. It doubles when that is too little.
const firstSpan = 1 << 8

// Sent is what the Ledger remembers of one packet.
type Sent struct {
	PN        uint64
	Time      mono.Time // when it was recorded
	Bytes     uint32
	Tag       uint32 // the engine's; not interpreted
	Eliciting bool   // always true of those returned
}

// AckResult says what a block meant.
type AckResult struct {
	RTTSample time.Duration // as measured, the peer's delay included
	HasRTT    bool          // it was given to the RTT
	// packets judged lost before, now acknowledged after all: they were sent again for nothing
	SpuriousLosses int
	Invalid        bool // the block speaks of packets never sent, or contradicts itself; nothing was changed
}

// LossParams tune the Ledger's clocks.
type LossParams struct {
	AckDelay      time.Duration // the peer's AckParams.Delay
	CoarseTimeout time.Duration // longest wait between probes
	// Nacks has what a negative acknowledgement shows missing lost at once, as long as nothing has shown that the path
	// reorders (paper 2.1.2).
	Nacks bool
}

// Ledger is the send side of one path: which packets are in flight, which arrived, which are lost.
//
// A packet is, in this order:
//
//	outstanding   recorded as eliciting, neither acknowledged nor judged lost; returned by nobody yet
//	acked         returned once in acked                                       final
//	lost          returned once in lost; remembered until its slot is reused
//	lost, acked   acknowledged after all: counted as spurious, not returned    final
//
// Packets that do not elicit an acknowledgement take a number and a slot, and are never any of these.
//
// It is a ring of slots by packet number and two bitmaps over the same ring, out and lost. Bit pn mod size belongs to
// pn in [next-size, next). Invariants: out and lost are disjoint; base is the lowest outstanding number, or next if
// there is none, so every out bit belongs to [base, next) and next-base <= size <= capacity; frames and bytes sum the
// outstanding; lost bits are remembered in number.
//
// An acknowledgement visits the words of the bitmaps between what was settled before and Largest, and only bits that
// change. Loss judgement is in loss.go, probes are in probe.go.
type Ledger struct {
	slots    []slot
	out      []uint64
	lost     []uint64
	mask     uint64 // size-1
	wordMask uint64
	most     uint64 // capacity

	next     uint64
	base     uint64
	settled  uint64 // a block said of every number below it that it arrived
	frames   int
	bytes    int
	recalled int // lost bits set
	batches  begun

	params LossParams
	loss   lossState
	probe  probeState
}

type slot struct {
	time  mono.Time
	tag   uint32
	bytes uint32
}

// NewLedger returns a Ledger for packet numbers that span at most capacity, a power of two from 64 to WindowBits. (More
// than the peer's Tracker window would let a frame fall out of that window while it is in flight.)
func NewLedger(capacity int) *Ledger {
	if capacity < 64 || capacity > WindowBits || capacity&(capacity-1) != 0 {
		panic(fmt.Sprintf("BUG: flowctl: ledger capacity %d is not a power of two from 64 to %d", capacity, WindowBits))
	}
	l := &Ledger{most: uint64(capacity)}
	l.allocate(min(capacity, firstSpan))
	l.loss.at = mono.Never
	l.probe.pto = InitialPTO
	l.Configure(Profiles[0].Loss(DefaultAcks))
	return l
}

// allocate makes a ring of so many slots.
func (l *Ledger) allocate(size int) {
	l.slots, l.out, l.lost = make([]slot, size), make([]uint64, size/64), make([]uint64, size/64)
	l.mask, l.wordMask = uint64(size-1), uint64(size/64-1)
}

// grow doubles the ring. It is the one place that allocates, at most a few times in a path's life.
func (l *Ledger) grow() {
	was := *l
	size := was.mask + 1
	l.allocate(int(2 * size))
	for pn := was.next - min(size, was.next); pn < was.next; pn++ {
		l.slots[pn&l.mask] = was.slots[pn&was.mask]
		l.out[pn>>6&l.wordMask] |= was.out[pn>>6&was.wordMask] & (1 << (pn & 63))
		l.lost[pn>>6&l.wordMask] |= was.lost[pn>>6&was.wordMask] & (1 << (pn & 63))
	}
}

// Configure sets the parameters; NewLedger has set those of the default profile.
func (l *Ledger) Configure(p LossParams) { l.params = p }

// NextPN returns the number Record will assign.
func (l *Ledger) NextPN() uint64 { return l.next }

// CanSend reports whether Record may be called: the span from the oldest outstanding packet has room for one more, of
// either kind.
func (l *Ledger) CanSend() bool { return l.next-l.base < l.most }

// InFlight returns the outstanding packets and their bytes.
func (l *Ledger) InFlight() (frames, bytes int) { return l.frames, l.bytes }

// Record assigns the next number to a packet that leaves now. Call it only when CanSend; now must not decrease. A
// packet that does not elicit an acknowledgement is never in flight nor judged lost.
func (l *Ledger) Record(now mono.Time, bytes int, tag uint32, eliciting bool) (pn uint64) {
	if !l.CanSend() {
		panic("BUG: flowctl: Record although CanSend is false")
	}
	pn = l.next
	if l.next-l.base > l.mask || l.recalled > 0 && l.mask+1 < l.most && l.forgets(now, pn) {
		l.grow()
	}
	l.next++
	l.slots[pn&l.mask] = slot{time: now, tag: tag, bytes: uint32(bytes)}
	word, bit := pn>>6&l.wordMask, uint64(1)<<(pn&63)
	if l.lost[word]&bit != 0 { // the previous user of the slot is forgotten
		l.lost[word] &^= bit
		l.recalled--
	}
	if !eliciting {
		if l.frames == 0 {
			l.base = l.next
		}
		return pn
	}
	if l.frames == 0 {
		l.probe.anchor = now
	}
	l.out[word] |= bit
	l.frames++
	l.bytes += bytes
	return pn
}

// forgets reports whether the slot of pn is that of a packet which was lost lately and may have been only late: if it
// arrives after all, that says how late packets may be.
func (l *Ledger) forgets(now mono.Time, pn uint64) bool {
	return l.lost[pn>>6&l.wordMask]>>(pn&63)&1 != 0 && now.Sub(l.slots[pn&l.mask].time) < 4*reorderCeiling
}

// OnAck applies a block. Packets it newly acknowledges are appended to acked, those it shows to be lost to lost, each
// in the order they were sent; both slices are the caller's. If Largest is newly acknowledged its round trip is given
// to rtt, but one only of all the packets that were sent before the end of a silence: an end was away, and the rest
// would say the same.
func (l *Ledger) OnAck(now mono.Time, b *Block, rtt *RTT, acked, lost []Sent) (_, _ []Sent, res AckResult) {
	if b.Largest >= l.next || b.Floor > b.Largest+1 {
		return acked, lost, AckResult{Invalid: true}
	}
	if b.word(b.Largest)&1 != 0 && l.timed(b.Largest) {
		res.RTTSample = now.Sub(l.slots[b.Largest&l.mask].time)
		res.HasRTT = b.Largest >= l.probe.silent && rtt.Update(res.RTTSample, b.Delay)
	}
	before := len(acked)
	acked, spurious, late := l.settle(b, acked)
	res.SpuriousLosses = spurious
	fresh := l.observe(now, b, rtt, late)
	if len(acked) > before || spurious > 0 {
		if l.probe.count >= lowTimeouts || now.Sub(l.probeAt()) > awayTime {
			l.probe.silent = l.next
		}
		l.progress(now, rtt)
	}
	if fresh {
		age := l.loss.basis + l.allowance(rtt)
		if b.Nack && l.params.Nacks {
			age = l.loss.basis + l.loss.learned
		}
		lost = l.judge(now, age, rtt, lost)
	} else if l.frames == 0 {
		l.loss.at = mono.Never
	}
	return acked, lost, res
}

// lateArrival is the packet sent earliest among those a block newly says arrived.
type lateArrival struct {
	pn   uint64
	sent mono.Time
	any  bool
	lost bool // and was judged lost
}

// settle resolves the packets that b newly says arrived.
func (l *Ledger) settle(b *Block, acked []Sent) (_ []Sent, spurious int, late lateArrival) {
	end := b.Largest + 1
	for pn := l.unsettled(b); pn < end; pn = (pn | 63) + 1 {
		word := pn >> 6 & l.wordMask
		live := (l.out[word] | l.lost[word]) & span(pn, end)
		if live == 0 {
			continue
		}
		first := pn &^ 63
		live &= b.word(first)
		if live == 0 {
			continue
		}
		if !late.any {
			p := first + uint64(bits.TrailingZeros64(live))
			late = lateArrival{p, l.slots[p&l.mask].time, true, l.lost[word]>>(p&63)&1 != 0}
		}
		if again := live & l.lost[word]; again != 0 {
			l.lost[word] &^= again
			n := bits.OnesCount64(again)
			l.recalled -= n
			spurious += n
		}
		acked = l.take(first, live&l.out[word], acked)
	}
	if !b.silentBelow() {
		l.settled = max(l.settled, b.Floor)
	}
	l.raiseBase()
	return acked, spurious, late
}

// unsettled returns the lowest number of which b may say something new.
func (l *Ledger) unsettled(b *Block) uint64 {
	if l.recalled == 0 {
		if b.silentBelow() {
			return max(l.base, b.Floor)
		}
		return l.base
	}
	low := l.settled
	if b.silentBelow() {
		low = max(low, b.Floor)
	}
	if l.next > l.mask+1 {
		low = max(low, l.next-l.mask-1)
	}
	return low
}

// take moves the outstanding packets first+i, i in set, out of flight and appends them to dst.
func (l *Ledger) take(first, set uint64, dst []Sent) []Sent {
	if set == 0 {
		return dst
	}
	l.out[first>>6&l.wordMask] &^= set
	l.frames -= bits.OnesCount64(set)
	for ; set != 0; set &= set - 1 {
		pn := first + uint64(bits.TrailingZeros64(set))
		s := &l.slots[pn&l.mask]
		l.bytes -= int(s.bytes)
		dst = append(dst, Sent{}) // filled in its place: a copy would wait for the parts it was just put together from
		d := &dst[len(dst)-1]
		d.PN, d.Time, d.Bytes, d.Tag, d.Eliciting = pn, s.time, s.bytes, s.tag, true
	}
	return dst
}

// raiseBase moves base to the lowest outstanding number.
func (l *Ledger) raiseBase() {
	if l.frames == 0 {
		l.base = l.next
		return
	}
	l.base = l.nextOut(l.base)
}

// nextOut returns the lowest outstanding number at or above pn. There must be one, and pn must not be below base.
func (l *Ledger) nextOut(pn uint64) uint64 {
	for {
		if v := l.out[pn>>6&l.wordMask] >> (pn & 63); v != 0 {
			return pn + uint64(bits.TrailingZeros64(v))
		}
		pn = (pn | 63) + 1
	}
}

func (l *Ledger) isOut(pn uint64) bool { return l.out[pn>>6&l.wordMask]>>(pn&63)&1 != 0 }

// timed reports whether a first acknowledgement of pn tells the round trip: it is outstanding, or RecallLast took it
// back. Else a path whose round trip is longer than the first probe timeout would recall each packet before its
// acknowledgement, and never learn how long to wait.
func (l *Ledger) timed(pn uint64) bool {
	if pn >= l.base {
		return l.isOut(pn)
	}
	ours := l.next-pn <= l.mask+1 // the slot has no later user
	return ours && l.params.Nacks && pn >= l.loss.abandoned && l.lost[pn>>6&l.wordMask]>>(pn&63)&1 != 0
}

// AbandonAll gives up the path: everything outstanding is appended to lost, to be sent elsewhere. Should it be
// acknowledged after all it counts as spurious, but teaches nothing about reordering.
func (l *Ledger) AbandonAll(lost []Sent) []Sent {
	lost = l.condemn(l.next, lost)
	l.loss.abandoned = l.next
	return lost
}

// RecallLast declares the newest packet outstanding lost, to be sent again.
func (l *Ledger) RecallLast(lost []Sent) []Sent {
	for pn := l.next; l.frames > 0 && pn > l.base; pn &^= 63 {
		pn--
		word := pn >> 6 & l.wordMask
		if set := l.out[word] & span(pn&^63, pn+1); set != 0 {
			set = 1 << (63 - bits.LeadingZeros64(set))
			l.lost[word] |= set
			l.recalled++
			lost = l.take(pn&^63, set, lost)
			break
		}
	}
	l.raiseBase()
	if l.frames == 0 {
		l.loss.at = mono.Never
	}
	return lost
}

// condemn declares everything outstanding below end lost.
func (l *Ledger) condemn(end uint64, lost []Sent) []Sent {
	for pn := l.base; pn < end && l.frames > 0; pn = (pn | 63) + 1 {
		word := pn >> 6 & l.wordMask
		set := l.out[word] & span(pn, end)
		l.lost[word] |= set
		l.recalled += bits.OnesCount64(set)
		lost = l.take(pn&^63, set, lost)
	}
	l.raiseBase()
	if l.frames == 0 {
		l.loss.at = mono.Never
	}
	return lost
}
