package flowctl

import (
	"testing"
	"time"

	"multiedge/internal/mono"
)

// The last of several packets of one length that left as one message is told from all others, if it alone is lost of
// the last two.
func TestLostEndOfAMessage(t *testing.T) {
	m := Message{Least: 700, Most: 5000, Packets: 64}
	sizes := []struct {
		batch bool // it begins one
		bytes int
		end   bool // of several that are alike
	}{
		{true, 1400, false}, {false, 1400, false}, {false, 1400, true}, // three are as many as fit
		{false, 1400, false}, {false, 1400, true}, // the batch is over
		{true, 1400, false}, {false, 900, false}, // a shorter one ends the message
		{false, 1400, false}, {false, 1400, false}, {false, 1400, true},
		{false, 300, false}, {false, 300, false}, // short ones leave alone
		{false, 1200, false}, {false, 1400, false}, {false, 1400, true}, // nothing longer joins one
		{true, 1400, false}, {true, 1400, false}, {false, 1400, true},
	}
	for k := range sizes {
		for _, before := range []bool{false, true} { // whether the one before was lost as well
			l := NewLedger(1 << 10)
			now, r := mono.Time(time.Hour), &RTT{}
			for _, s := range sizes {
				if s.batch {
					l.BeginBatch()
				}
				l.Record(now, s.bytes, 1, true)
			}
			b := Block{Largest: uint64(len(sizes)), Floor: 0, Bits: []uint64{1<<(len(sizes)+1) - 1}}
			l.BeginBatch()
			l.Record(now, 100, 1, true)
			b.Bits[0] &^= 1 << k
			if before && k > 0 {
				b.Bits[0] &^= 1 << (k - 1)
			}
			_, _, _ = l.OnAck(now.Add(time.Millisecond), &b, r, nil, nil)
			want := sizes[k].end && !before
			if got := l.EndedMessage(uint64(k), &m); got != want {
				t.Errorf("packet %d, the one before lost %v: %v, want %v", k, before, got, want)
			}
		}
	}
}

// What a path remembers of batches is bounded: of older ones nothing is said.
func TestOldBatchesAreForgotten(t *testing.T) {
	l := NewLedger(1 << 10)
	m := Message{Least: 700, Most: 5000, Packets: 64}
	if l.EndedMessage(0, &m) {
		t.Error("of a path that has sent nothing")
	}
	now := mono.Time(time.Hour)
	for range batchesKept + 1 {
		l.BeginBatch()
		l.Record(now, 1400, 1, true)
		l.Record(now, 1400, 1, true)
	}
	bits := []uint64{^uint64(2 | 2<<batchesKept), 3}
	_, _, _ = l.OnAck(now.Add(time.Millisecond), &Block{Largest: 2*batchesKept + 1, Bits: bits}, &RTT{}, nil, nil)
	if l.EndedMessage(1, &m) {
		t.Error("of the oldest batch")
	}
	if !l.EndedMessage(batchesKept+1, &m) {
		t.Error("not of a batch that is remembered")
	}
}
