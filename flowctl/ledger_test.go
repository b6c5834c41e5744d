package flowctl

import (
	"testing"
	"time"

	"multiedge/internal/mono"
)

func block(largest, floor uint64, bits ...uint64) *Block {
	return &Block{Largest: largest, Floor: floor, Bits: bits}
}

func pns(sent []Sent) (out []uint64) {
	for _, s := range sent {
		out = append(out, s.PN)
	}
	return out
}

func sameNumbers(a []uint64, b ...uint64) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

func TestLedgerLossByTime(t *testing.T) {
	l, rtt := NewLedger(64), &RTT{}
	for i := range 4 { // 0 to 3, one per microsecond
		l.Record(mono.Time(i)*us, 100, uint32(i), true)
	}
	acked, lost, res := l.OnAck(103*us, block(3, 1, 0b110), rtt, nil, nil) // 1 is missing
	if !sameNumbers(pns(acked), 0, 2, 3) || len(lost) != 0 || !res.HasRTT || res.RTTSample != 100*time.Microsecond {
		t.Fatalf("acked %v lost %v res %+v", pns(acked), pns(lost), res)
	}
	// 1 was sent at 1 us; basis 100 us, allowance 50 us, peer's delay 100 us.
	if got, want := l.Deadline(), 251*us; got != want {
		t.Fatalf("Deadline = %v, want %v", got, want)
	}
	if lost, probe := l.OnTimeout(250*us, rtt, nil); lost != nil || probe {
		t.Fatalf("OnTimeout before Deadline did %v %v", lost, probe)
	}
	// A newer packet's block, which shows 1 to be more than the allowance older, judges it at once.
	l.Record(60*us, 100, 4, true)
	_, lost, _ = l.OnAck(161*us, block(4, 1, 0b1110), rtt, nil, nil)
	if !sameNumbers(pns(lost), 1) || lost[0].Tag != 1 || lost[0].Bytes != 100 {
		t.Fatalf("lost %+v", lost)
	}
	if frames, bytes := l.InFlight(); frames != 0 || bytes != 0 || l.Deadline() != mono.Never {
		t.Fatalf("in flight %d %d, deadline %d", frames, bytes, l.Deadline())
	}
	// Late: spurious, once, and never returned again.
	for i, want := range []int{1, 0} {
		acked, lost, res = l.OnAck(200*us, block(4, 5), rtt, nil, nil)
		if res.SpuriousLosses != want || acked != nil || lost != nil {
			t.Fatalf("late ack %d: acked %v lost %v %+v", i, acked, lost, res)
		}
	}
}

func TestLedgerNackDoesNotBypassTime(t *testing.T) {
	l, rtt := NewLedger(64), &RTT{}
	l.Record(0, 1, 0, true)
	l.Record(0, 1, 1, true)
	b := block(1, 0, 0b10)
	b.Nack = true
	if _, lost, _ := l.OnAck(30*us, b, rtt, nil, nil); lost != nil {
		t.Fatalf("lost %v on a bare gap", pns(lost))
	}
}

// With LossParams.Nacks a negative acknowledgement is enough (profile paper); a positive one is not.
func TestLedgerObeysNacks(t *testing.T) {
	for _, nack := range []bool{true, false} {
		l, rtt := NewLedger(64), &RTT{}
		l.Configure(LossParams{CoarseTimeout: time.Second, Nacks: true})
		for i := range 4 {
			l.Record(0, 1, uint32(i), true)
		}
		b := block(2, 0, 0b100) // 0 and 1 are missing, of 3 nothing is said
		b.Nack = nack
		_, lost, _ := l.OnAck(30*us, b, rtt, nil, nil)
		if want := map[bool][]uint64{true: {0, 1}}[nack]; !sameNumbers(pns(lost), want...) {
			t.Errorf("nack %v: lost %v, want %v", nack, pns(lost), want)
		}
	}
}

func TestLedgerProbe(t *testing.T) {
	l, rtt := NewLedger(64), &RTT{}
	l.Configure(LossParams{AckDelay: 100 * time.Microsecond, CoarseTimeout: 20 * time.Millisecond})
	l.Record(0, 1, 0, true)
	if l.Deadline() != mono.Time(InitialPTO) {
		t.Fatalf("first probe at %v", l.Deadline())
	}
	l.OnAck(100*us, block(0, 1), rtt, nil, nil)
	now := 200 * us
	l.Record(now, 1, 1, true)
	l.Record(now+1900*us, 1, 2, true) // a later frame does not put the probe off
	for i, wait := range []time.Duration{2, 4, 8, 16, 20, 20} {
		if want := now.Add(wait * time.Millisecond); l.Deadline() != want {
			t.Fatalf("probe %d at %v, want %v", i, l.Deadline(), want)
		}
		now = l.Deadline()
		lost, probe := l.OnTimeout(now, rtt, nil)
		if !probe || lost != nil || l.Probes() != i+1 {
			t.Fatalf("probe %d: %v, lost %v, count %d", i, probe, lost, l.Probes())
		}
	}
	pn := l.Record(now, 1, 3, true)
	acked, lost, _ := l.OnAck(now+100*us, block(pn, 1, 0b100), rtt, nil, nil)
	if !sameNumbers(pns(acked), pn) || !sameNumbers(pns(lost), 1, 2) || l.Probes() != 0 {
		t.Fatalf("after the probe's answer: acked %v lost %v probes %d", pns(acked), pns(lost), l.Probes())
	}
}

// Only news is progress: a block that says what is known already, as those of a peer do that sends data of its own,
// does not put the probe off. That a packet judged lost arrived after all is news.
// The first round trip of a path is longer than the first probe timeout, and the profile recalls the last frame after
// each: its acknowledgement still tells how long to wait (clause 8.6).
func TestLedgerRecalledTooEarly(t *testing.T) {
	const trip = 26 * time.Millisecond
	l, rtt := NewLedger(64), &RTT{}
	l.Configure(LossParams{AckDelay: time.Millisecond, CoarseTimeout: 25 * time.Millisecond, Nacks: true})
	l.Record(0, 100, 0, true)
	if at := l.Deadline(); at > mono.Time(trip) {
		t.Fatalf("the first probe is due at %v, when the first round trip is over", at)
	}
	if _, probe := l.OnTimeout(l.Deadline(), rtt, nil); !probe {
		t.Fatal("no probe")
	}
	if lost := l.RecallLast(nil); !sameNumbers(pns(lost), 0) {
		t.Fatalf("recalled %v", pns(lost))
	}
	acked, _, res := l.OnAck(mono.Time(trip), block(0, 1), rtt, nil, nil)
	if len(acked) != 0 || res.SpuriousLosses != 1 || !res.HasRTT || rtt.SRTT() != trip {
		t.Errorf("acked %v, %+v, srtt %v", pns(acked), res, rtt.SRTT())
	}
	l.Record(mono.Time(trip), 100, 0, true)
	if l.Deadline() < mono.Time(2*trip) {
		t.Errorf("the next probe is due at %v, before its frame can be acknowledged", l.Deadline())
	}
}

func TestLedgerProgress(t *testing.T) {
	l, rtt := NewLedger(64), &RTT{}
	l.Record(0, 1, 0, true)
	l.OnAck(100*us, block(0, 1), rtt, nil, nil)
	l.Record(200*us, 1, 1, true)
	due := l.Deadline()
	for now := 300 * us; now < due; now += 300 * us {
		if l.OnAck(now, block(0, 1), rtt, nil, nil); l.Deadline() != due {
			t.Fatalf("a block without news at %v puts the probe off from %v to %v", now, due, l.Deadline())
		}
	}
	// a block that has no bit for its own largest says nothing of the round trip
	if _, _, res := l.OnAck(due-1, block(1, 0, 0b01), rtt, nil, nil); res.HasRTT || l.Deadline() != due {
		t.Fatalf("%+v, probe at %v", res, l.Deadline())
	}
	if _, probe := l.OnTimeout(due, rtt, nil); !probe || l.Probes() != 1 {
		t.Fatalf("probe %v, count %d", probe, l.Probes())
	}
	l.AbandonAll(nil)
	if _, _, res := l.OnAck(due+us, block(1, 2), rtt, nil, nil); res.SpuriousLosses != 1 || l.Probes() != 0 {
		t.Fatalf("%+v, %d probes are unanswered", res, l.Probes())
	}
}

func TestLedgerAbandon(t *testing.T) {
	l, rtt := NewLedger(64), &RTT{}
	for i := range 100 {
		if !l.CanSend() {
			break
		}
		l.Record(mono.Time(i), 10, uint32(i), i%2 == 0)
	}
	if l.NextPN() != 64 || l.CanSend() {
		t.Fatalf("next %d, CanSend %v", l.NextPN(), l.CanSend())
	}
	if lost := l.AbandonAll(nil); len(lost) != 32 || lost[0].PN != 0 || lost[31].PN != 62 {
		t.Fatalf("abandoned %v", pns(lost))
	}
	if !l.CanSend() || l.Deadline() != mono.Never || l.AbandonAll(nil) != nil {
		t.Fatal("something is left after AbandonAll")
	}
	acked, _, res := l.OnAck(50*us, block(63, 64), rtt, nil, nil)
	if acked != nil || res.SpuriousLosses != 32 || l.loss.learned != 0 {
		t.Fatalf("late: acked %v %+v, learned %v", pns(acked), res, l.loss.learned)
	}
}

func TestLedgerInvalidBlocks(t *testing.T) {
	l, rtt := NewLedger(64), &RTT{}
	l.Record(0, 1, 0, true)
	l.Record(0, 1, 1, true)
	for _, b := range []*Block{block(2, 0), block(1<<63, 0), block(1<<64-1, 0), block(0, 2), block(1, 1<<63)} {
		if acked, lost, res := l.OnAck(50*us, b, rtt, nil, nil); !res.Invalid || acked != nil || lost != nil ||
			rtt.Valid() {
			t.Errorf("%+v: acked %v lost %v %+v", b, acked, lost, res)
		}
	}
	if frames, _ := l.InFlight(); frames != 2 {
		t.Errorf("%d in flight", frames)
	}
	// Words beyond Largest, or too few of them, are no more than the block can mean.
	if acked, _, _ := l.OnAck(50*us, block(0, 0, ^uint64(0), ^uint64(0)), rtt, nil, nil); !sameNumbers(pns(acked), 0) {
		t.Errorf("acked %v", pns(acked))
	}
}

func TestLedgerPanicsOnBugs(t *testing.T) {
	for name, f := range map[string]func(){
		"capacity":  func() { NewLedger(100) },
		"too large": func() { NewLedger(2 * WindowBits) },
		"full": func() {
			l := NewLedger(64)
			for range 65 {
				l.Record(0, 1, 0, true)
			}
		},
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			f()
		}()
	}
}
