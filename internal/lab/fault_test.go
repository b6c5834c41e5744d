package lab

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"multiedge/internal/fault"
	"multiedge/internal/mono"
)

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

// meet counts a frame with a fate, and returns how many copies of it are as whole as one before them.
func (n *Counters) meet(v *fault.Fate) uint64 {
	n.Received++
	n.Lost += uint64(count(v.End == fault.Lost))
	n.Duplicated += uint64(max(v.N, 1) - 1)
	n.Reordered += uint64(count(v.Late))
	whole := 0
	for _, copy := range v.Copies[:v.N] {
		n.Corrupted += uint64(count(copy.Bit > 0))
		whole += count(copy.Bit == 0)
	}
	return uint64(max(whole, 1) - 1)
}

// What arrives is what the counters say, and what they say is what the seed decides.
func TestWireFaults(t *testing.T) {
	for _, c := range []struct {
		mtu int
		Faults
	}{
		{1500, Faults{}},
		{1500, Faults{Loss: .1, Corrupt: .1, Dup: .1}},
		{1500, Faults{Corrupt: .2, Dup: .1, Hold: .1, HoldFor: 3 * time.Millisecond}},
		{9000, Faults{Loss: .3, Burst: 5, Dup: .2}},
		{9000, Faults{Loss: .05, Corrupt: .2, Dup: .05, Reorder: .1, Delay: 2 * time.Millisecond}},
		{65535, Faults{Loss: .01, Dup: .01}},
	} {
		t.Run(fmt.Sprintf("mtu %d %+v", c.mtu, c.Faults), func(t *testing.T) {
			l := build(t, Spec{MTU: c.mtu, Medium: Wire, Faults: c.Faults, Seed: 42})
			from, to := open(t, l, 0, 0), open(t, l, 0, 1)
			const frames, size = 2000, 1400
			var expect Counters
			again := uint64(0)
			s := fault.Keyed(42, 0, 0)
			for range frames {
				v := s.Next(&c.Faults, 0, fault.Frame{Len: size, Data: true})
				again += expect.meet(&v)
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
					if mono.Now().Sub(start) > 20*time.Second {
						t.Fatalf("%d frames arrived; counters %+v", got, n)
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
			if got != n.Delivered || duplicated != again || corrupted != n.Corrupted {
				t.Errorf("%d frames, %d again, %d spoiled; counters %+v", got, duplicated, corrupted, n)
			}
			if (reordered > 0) != (c.Reorder+c.Hold > 0) {
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
	if !b.receive(patience(true), func(f []byte) bool { first, _ = number(f); return false }) || first != 9 {
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
