package flowctl

import (
	"testing"
	"time"

	"multiedge/internal/mono"
)

// A path that carries little keeps little: lanes and peers multiply. What is in flight, lost and late is known across
// every doubling.
func TestLedgerGrows(t *testing.T) {
	l, rtt := NewLedger(DefaultSpan), &RTT{}
	now := mono.Time(time.Hour)
	if len(l.slots) != firstSpan {
		t.Fatalf("%d slots at first", len(l.slots))
	}
	for range 20 * firstSpan { // one after the other
		pn := l.Record(now, 100, 1, true)
		now = now.Add(100 * time.Microsecond)
		if acked, lost, _ := l.OnAck(now, &Block{Largest: pn, Floor: pn + 1}, rtt, nil, nil); len(acked) != 1 ||
			len(lost) > 0 {
			t.Fatal("not acknowledged")
		}
	}
	if len(l.slots) != firstSpan {
		t.Fatalf("%d slots for one frame in flight", len(l.slots))
	}
	first := l.NextPN()
	for i := range uint64(DefaultSpan) {
		if !l.CanSend() {
			t.Fatalf("no room for packet %d", i)
		}
		l.Record(now.Add(time.Duration(i)), int(i), uint32(i), true)
	}
	if l.CanSend() || len(l.slots) != DefaultSpan {
		t.Fatalf("%d slots, room for more: %v", len(l.slots), l.CanSend())
	}
	all := Block{Largest: l.NextPN() - 1, Floor: l.NextPN()}
	acked, _, _ := l.OnAck(now.Add(time.Millisecond), &all, rtt, nil, nil)
	if len(acked) != DefaultSpan {
		t.Fatalf("%d acknowledged", len(acked))
	}
	for i, s := range acked {
		if s.PN != first+uint64(i) || s.Tag != uint32(i) || s.Bytes != uint32(i) ||
			s.Time != now.Add(time.Duration(i)) {
			t.Fatalf("packet %d: %+v", i, s)
		}
	}
}

// A packet that was lost a moment ago is remembered for thousands of numbers: if it was only late, that is learned. One
// that was lost long ago costs no memory.
func TestLedgerGrowsForWhatIsLate(t *testing.T) {
	for age, remembered := range map[time.Duration]bool{time.Microsecond: true, time.Millisecond: false} {
		l, rtt := NewLedger(DefaultSpan), &RTT{}
		now := mono.Time(time.Hour)
		rtt.Update(100*time.Microsecond, 0)
		late := l.Record(now, 100, 0, true)
		spurious := 0
		for range 4 * firstSpan {
			pn := l.Record(now, 100, 1, true)
			now = now.Add(age)
			_, _, res := l.OnAck(now, &Block{Largest: pn, Floor: late, Bits: []uint64{0}}, rtt, nil, nil)
			if res.Invalid {
				t.Fatal("invalid")
			}
			_, _, _ = l.OnAck(now, &Block{Largest: pn, Floor: pn, Bits: []uint64{1}}, rtt, nil, nil)
		}
		_, _, res := l.OnAck(now, &Block{Largest: l.NextPN() - 1, Floor: late, Bits: []uint64{1}}, rtt, nil, nil)
		if spurious = res.SpuriousLosses; (spurious == 1) != remembered || (len(l.slots) > firstSpan) != remembered {
			t.Errorf("one packet each %v: %d late packets were known again, %d slots", age, spurious, len(l.slots))
		}
	}
}
