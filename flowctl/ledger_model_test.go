package flowctl

import (
	"testing"
	"time"

	"multiedge/internal/mono"
	"pgregory.net/rapid"
)

// Acked reports whether the block says that pn arrived.
func (b *Block) Acked(pn uint64) bool { return pn <= b.Largest && b.word(pn)&1 != 0 }

// ledgerModel is Ledger's specification with maps; what time decides is checked by bounds.
type ledgerModel struct {
	out, lost map[uint64]Sent
	bytes     int
	newest    uint64
}

func TestLedgerAgainstMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		capacity := 1 << rapid.IntRange(6, 10).Draw(t, "capacity")
		l, rtt, tr := NewLedger(capacity), &RTT{}, &Tracker{}
		params := Profiles[0].Loss(DefaultAcks)
		params.Nacks = rapid.Bool().Draw(t, "nacks")
		l.Configure(params)
		m := &ledgerModel{out: map[uint64]Sent{}, lost: map[uint64]Sent{}}
		now := mono.Time(time.Hour)
		var wire []uint64
		var stale []Block
		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			now += mono.Time(rapid.IntRange(0, 200_000).Draw(t, "ns"))
			switch rapid.IntRange(0, 5).Draw(t, "step") {
			case 0, 1:
				for range rapid.IntRange(1, 100).Draw(t, "send") {
					if wire = m.record(t, l, now, wire); !l.CanSend() {
						break
					}
				}
			case 2: // some of the wire arrives, in any order
				for range rapid.IntRange(0, len(wire)).Draw(t, "arrive") {
					i := rapid.IntRange(0, min(len(wire)-1, 9)).Draw(t, "which")
					pn := wire[i]
					wire = append(wire[:i], wire[i+1:]...)
					if tr.Check(pn) == New && rapid.IntRange(0, 9).Draw(t, "fate") > 0 {
						tr.Commit(pn, now)
					}
				}
			case 3, 4:
				largest, at, ok := tr.Largest()
				if !ok {
					continue
				}
				b := Block{Largest: largest, Delay: now.Sub(at), Nack: rapid.Bool().Draw(t, "nack")}
				b.Floor, b.Bits = tr.AckBits(nil, rapid.IntRange(1, 20).Draw(t, "words"))
				stale = append(stale, b)
				if rapid.IntRange(0, 3).Draw(t, "stale") == 0 {
					b = stale[rapid.IntRange(0, len(stale)-1).Draw(t, "block")]
				}
				m.ack(t, l, now, &b, rtt)
			case 5:
				switch rapid.IntRange(0, 19).Draw(t, "abandon") {
				case 0:
					m.drop(t, l.AbandonAll(nil), func(Sent) bool { return true })
				case 1:
					newest := uint64(0)
					for pn := range m.out {
						newest = max(newest, pn)
					}
					m.drop(t, l.RecallLast(nil), func(s Sent) bool { return s.PN == newest })
				}
				m.timeout(t, l, max(now, min(l.Deadline(), now+1_000_000)), rtt)
			}
			m.compare(t, l)
		}
	})
}

func (m *ledgerModel) record(t *rapid.T, l *Ledger, now mono.Time, wire []uint64) []uint64 {
	if !l.CanSend() {
		return wire
	}
	eliciting := rapid.IntRange(0, 4).Draw(t, "eliciting") > 0
	want := l.NextPN()
	pn := l.Record(now, int(want%97), uint32(want)*3, eliciting)
	if pn != want {
		t.Fatalf("Record = %d, NextPN said %d", pn, want)
	}
	if pn > l.mask {
		delete(m.lost, pn-l.mask-1)
	}
	if eliciting {
		m.out[pn] = Sent{PN: pn, Time: now, Bytes: uint32(pn % 97), Tag: uint32(pn) * 3, Eliciting: true}
		m.bytes += int(pn % 97)
	}
	return append(wire, pn)
}

func (m *ledgerModel) ack(t *rapid.T, l *Ledger, now mono.Time, b *Block, rtt *RTT) {
	spurious, newly := 0, 0
	_, sample := m.out[b.Largest]
	if _, late := m.lost[b.Largest]; late && l.params.Nacks {
		sample = true
	}
	for pn := range m.lost {
		if b.Acked(pn) {
			spurious++
			delete(m.lost, pn)
		}
	}
	for pn := range m.out {
		if b.Acked(pn) {
			newly++
		}
	}
	m.newest = max(m.newest, b.Largest)
	acked, lost, res := l.OnAck(now, b, rtt, nil, nil)
	if res.Invalid || res.SpuriousLosses != spurious || len(acked) != newly || res.HasRTT && !sample {
		t.Fatalf("%+v, %d acked; want %d spurious, %d acked, sample %v", res, len(acked), spurious, newly, sample)
	}
	for i, s := range acked {
		if m.out[s.PN] != s || !b.Acked(s.PN) || i > 0 && s.PN <= acked[i-1].PN {
			t.Fatalf("acked %+v, recorded %+v", s, m.out[s.PN])
		}
		m.bytes -= int(s.Bytes)
		delete(m.out, s.PN)
	}
	m.drop(t, lost, func(s Sent) bool {
		return m.overdue(s, now, rtt) || b.Nack && l.params.Nacks && s.PN < b.Largest && !b.Acked(s.PN)
	})
}

func (m *ledgerModel) timeout(t *rapid.T, l *Ledger, now mono.Time, rtt *RTT) {
	quiet := now < l.Deadline()
	lost, probe := l.OnTimeout(now, rtt, nil)
	if quiet && (probe || len(lost) > 0) {
		t.Fatalf("OnTimeout acted before its deadline")
	}
	m.drop(t, lost, func(s Sent) bool { return m.overdue(s, now, rtt) })
	if len(m.out) > 0 && l.Deadline() <= now {
		t.Fatalf("Deadline %v is not after OnTimeout at %v", l.Deadline(), now)
	}
	for pn, s := range m.out {
		if pn < m.newest && !quiet && now.Sub(s.Time) > l.patience(rtt) && l.loss.at <= now {
			t.Fatalf("%d is overdue and was not judged", pn)
		}
	}
}

// overdue is what must hold of every packet judged lost.
func (m *ledgerModel) overdue(s Sent, now mono.Time, rtt *RTT) bool {
	return s.PN < m.newest && now.Sub(s.Time) >= rtt.SRTT()+max(rtt.SRTT()/4, reorderFloor)
}

func (m *ledgerModel) drop(t *rapid.T, lost []Sent, legal func(Sent) bool) {
	for _, s := range lost {
		if m.out[s.PN] != s || !legal(s) {
			t.Fatalf("lost %+v, recorded %+v, newest %d", s, m.out[s.PN], m.newest)
		}
		m.bytes -= int(s.Bytes)
		m.lost[s.PN] = s
		delete(m.out, s.PN)
	}
}

func (m *ledgerModel) compare(t *rapid.T, l *Ledger) {
	frames, bytes := l.InFlight()
	if frames != len(m.out) || bytes != m.bytes {
		t.Fatalf("in flight %d, %d bytes; want %d, %d", frames, bytes, len(m.out), m.bytes)
	}
	base := l.NextPN()
	for pn := range m.out {
		base = min(base, pn)
	}
	if l.base != base || l.recalled != len(m.lost) || l.CanSend() != (l.NextPN()-base < l.most) {
		t.Fatalf("base %d recalled %d CanSend %v; want %d %d", l.base, l.recalled, l.CanSend(), base, len(m.lost))
	}
	if (l.Deadline() == mono.Never) != (len(m.out) == 0) {
		t.Fatalf("Deadline %v with %d in flight", l.Deadline(), len(m.out))
	}
}
