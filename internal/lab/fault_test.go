package lab

import (
	"fmt"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"multiedge/internal/mono"
)

// Shares come out as asked for, also in bursts, and one seed means one fate.
func TestFates(t *testing.T) {
	for _, f := range []Faults{
		{Loss: .001}, {Loss: .3}, {Loss: .05, Burst: 8}, {Loss: .3, Burst: 64}, {Loss: 1}, {Loss: 1, Burst: 5},
		{Loss: .01, Dup: .5, Corrupt: .3, Reorder: .1}, {Corrupt: 1}, {Dup: 1}, {},
	} {
		const n = 400_000
		var lost, corrupted, twice, late, runs int
		a, b, other := newStream(1, 2, 0), newStream(1, 2, 0), newStream(2, 2, 0)
		before, same := false, 0
		for range n {
			v := a.next(&f, 100)
			if w := b.next(&f, 100); v != w {
				t.Fatalf("%+v: one seed, two fates", f)
			}
			if other.next(&f, 100) == v {
				same++
			}
			lost, corrupted, twice, late = lost+count(v.lost), corrupted+count(v.corrupted), twice+count(v.twice),
				late+count(v.late)
			if v.lost && !before {
				runs++
			}
			before = v.lost
			if v.corrupted && (v.bit < 14*8 || v.bit >= 800) {
				t.Fatalf("bit %d of 800 flipped", v.bit)
			}
		}
		for _, c := range []struct {
			what string
			got  int
			want float64
		}{{"lost", lost, f.Loss}, {"corrupted", corrupted, f.Corrupt}, {"duplicated", twice, f.Dup}} {
			deviation := 6*math.Sqrt(n*c.want*(1-c.want)*float64(max(1, 2*f.Burst))) + 1e-6*n
			if math.Abs(float64(c.got)-n*c.want) > deviation {
				t.Errorf("%+v: %d of %d %s, want %.0f within %.0f", f, c.got, n, c.what, n*c.want, deviation)
			}
		}
		if f.Reorder > 0 && late == 0 {
			t.Errorf("%+v: nothing late", f)
		}
		if f.Burst > 1 && f.Loss < 1 && lost/runs < f.Burst {
			t.Errorf("%+v: runs of %d", f, lost/runs)
		}
		if f.Loss == .3 && same == n {
			t.Error("another seed, the same fates")
		}
	}
}

func count(b bool) int {
	if b {
		return 1
	}
	return 0
}

// Frames come out in the order of their times, then of their arrival, with their contents.
func TestDelayQueue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		q := delayQueue{size: 16}
		var next byte
		last := held{due: -1}
		pop := func() {
			h := q.pop()
			if h.before(&last) {
				t.Fatalf("due %d seq %d after due %d seq %d", h.due, h.seq, last.due, last.seq)
			}
			if h.frame[0] != byte(h.seq) {
				t.Fatalf("frame %d holds %d", h.seq, h.frame[0])
			}
			last = h
			q.release(h)
		}
		for range rapid.IntRange(0, 200).Draw(t, "steps") {
			if len(q.heap) > 0 && rapid.Bool().Draw(t, "pop") {
				pop()
				continue
			}
			due := max(last.due, mono.Time(rapid.IntRange(0, 50).Draw(t, "due")))
			next++
			if !q.push(due, 1, []byte{next}) {
				t.Fatal("full")
			}
		}
		for len(q.heap) > 0 {
			pop()
		}
		if q.bytes != 0 || q.next() != mono.Never {
			t.Fatalf("%d bytes left", q.bytes)
		}
	})
	q := delayQueue{size: delayedBytes / 2}
	for i, want := range []bool{true, true, false} {
		if got := q.push(1, 0, nil); got != want {
			t.Errorf("push %d of half the limit: %v, want %v", i, got, want)
		}
	}
}

// What arrives is what the counters say, and what they say is what the seed decides.
func TestWireFaults(t *testing.T) {
	for _, c := range []struct {
		mtu int
		Faults
	}{
		{1500, Faults{}},
		{1500, Faults{Loss: .1, Corrupt: .1, Dup: .1}},
		{9000, Faults{Loss: .3, Burst: 5, Dup: .2}},
		{9000, Faults{Loss: .05, Corrupt: .2, Dup: .05, Reorder: .1, Delay: 2 * time.Millisecond}},
		{65535, Faults{Loss: .01, Dup: .01}},
	} {
		t.Run(fmt.Sprintf("mtu %d %+v", c.mtu, c.Faults), func(t *testing.T) {
			l := build(t, Spec{MTU: c.mtu, Medium: Wire, Faults: c.Faults, Seed: 42})
			from, to := open(t, l, 0, 0), open(t, l, 0, 1)
			const frames, size = 2000, 1400
			var expect Counters
			s := newStream(42, 0, 0)
			for range frames {
				v := s.next(&c.Faults, size)
				expect.Received++
				expect.Lost += uint64(count(v.lost))
				expect.Corrupted += uint64(count(v.corrupted))
				expect.Duplicated += uint64(count(v.twice))
				expect.Reordered += uint64(count(v.late))
			}
			expect.Delivered = expect.Received + expect.Duplicated - expect.Lost

			var got, corrupted, duplicated, reordered uint64
			seen, largest := map[uint64]int{}, uint64(0)
			start := mono.Now()
			read := func(f []byte) {
				got++
				n, ok := number(f)
				switch {
				case !ok:
					corrupted++
				default:
					if seen[n]++; seen[n] > 1 {
						duplicated++
					}
					if n < largest {
						reordered++
					}
					largest = max(n, largest)
				}
			}
			for i := 0; i < frames; i += 40 { // in steps that the smallest ring holds
				from.send(1, i, 40, size)
				for {
					n, err := l.Link(0).Counters()
					must(t, err)
					if n.Received == uint64(i+40) && n.Delivered == n.Received+n.Duplicated-n.Lost &&
						got == n.Delivered {
						break
					}
					if got < n.Delivered && !to.receive(10*time.Second,
						func(f []byte) bool { read(f); return got < n.Delivered }) {
						st, err := to.drv.Stats()
						t.Fatalf("%d frames arrived; counters %+v; the receiver's %+v, %v", got, n, st, err)
					}
				}
			}
			if c.Delay > mono.Now().Sub(start) {
				t.Errorf("all arrived within %v", mono.Now().Sub(start))
			}
			n, err := l.Link(0).Counters()
			if err != nil || n != expect {
				t.Errorf("counters %+v, %v\n    want %+v", n, err, expect)
			}
			if got != n.Delivered || duplicated != n.Duplicated || corrupted != n.Corrupted {
				t.Errorf("%d frames, %d again, %d spoiled; counters %+v", got, duplicated, corrupted, n)
			}
			if (reordered > 0) != (c.Reorder > 0) {
				t.Errorf("%d out of order; %+v", reordered, n)
			}
		})
	}
}

// A device with a smaller MTU between the ends: long frames are lost and counted, others pass, and it heals.
func TestLongestFrame(t *testing.T) {
	l := build(t, Spec{Medium: Wire})
	must(t, l.Link(0).SetFaults(Faults{Longest: 1500}))
	a, b := open(t, l, 0, 0), open(t, l, 0, 1)
	a.send(1, 1, 3, 1501+ethernetHeader)
	a.send(1, 9, 1, 1500+ethernetHeader)
	first := uint64(0)
	if !b.receive(2*time.Second, func(f []byte) bool { first, _ = number(f); return false }) || first != 9 {
		t.Errorf("the first frame that arrives is %d, want 9", first)
	}
	if c, err := l.Link(0).Counters(); err != nil || c.Lost != 3 {
		t.Errorf("%+v, %v", c, err)
	}
	must(t, l.Link(0).SetFaults(Faults{}))
	exchange(t, l, 0, 0, 1, 9000)
	if err := l.Link(0).SetFaults(Faults{Longest: -1}); err == nil {
		t.Error("a negative length is taken")
	}
}
