package engine_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"multiedge/internal/engine"
	"multiedge/internal/mono"
)

// Clause 8.4: whoever writes and waits, again and again, waits for a round trip; an answer carries the acknowledgement, and when
// answers cease nobody waits for them for long; writes that come close together share acknowledgements, until they do not.
func TestPushes(t *testing.T) { inBothForms(t, testPushes) }

func testPushes(t *testing.T, sealed bool) {
	r := newRig(t, rigOptions{sealed: sealed})
	c := r.connect(engine.DialOptions{})
	var keys [2]engine.Op
	for i := range r.n {
		_, k := r.export(1-i, c[1-i], 8, both)
		keys[i] = engine.Op{Kind: engine.OpWrite, Flags: engine.Notify, Key: k, Local: make([]byte, 8)}
	}
	r.settle()
	var sent [2]int
	write := func(i int) {
		op := keys[i]
		op.Token = uint64(sent[i])
		sent[i]++
		r.submit(i, c[i], op)
	}
	acks := func() uint64 { return r.n[1].e.Count.AcksExplicit }
	took := func() time.Duration { // of a write that nobody answers
		start := r.now
		write(0)
		r.must("a write", time.Second, r.all(0, sent[0]))
		r.n[1].e.TakeNotify(c[1])
		return r.now.Sub(start)
	}
	const trip = 2 * time.Microsecond // beyond the round trip, for rounding
	lone := func(what string, within int) {
		t.Helper()
		late := 0
		for range 50 {
			if d := took(); d > 2*r.hop+trip {
				late++
			}
		}
		if late > within {
			t.Errorf("%s: %d of 50 lone writes took longer than a round trip of %v, want at most %d", what, late, 2*r.hop, within)
		}
	}
	answered := func(after time.Duration, within uint64) {
		t.Helper()
		before := acks()
		for range 50 {
			write(0)
			r.must("a request", time.Second, func() bool { _, ok := r.n[1].e.TakeNotify(c[1]); return ok })
			r.rest(after)
			write(1)
			r.must("an answer", time.Second, func() bool { _, ok := r.n[0].e.TakeNotify(c[0]); return ok })
		}
		if n := acks() - before; n > within {
			t.Errorf("50 requests that were answered after %v were acknowledged by %d frames of their own, want at most %d", after, n, within)
		}
	}
	lone("at first", 1) // one in 256 waits to see whether others come
	answered(0, 20)
	lone("after quick answers", 2)
	answered(15*time.Microsecond, 20)
	lone("after slower answers", 2)
	answered(40*time.Microsecond, 50) // too slow to be waited for
	lone("after answers that were too slow", 1)

	start, ready, rnd := r.now, [2]mono.Time{r.now, r.now}, rand.New(rand.NewPCG(1, 2))
	want := [2]int{sent[0] + 500, sent[1] + 500}
	busy := [2]bool{}
	thought := time.Duration(0)
	for len(r.n[0].done) < want[0] || len(r.n[1].done) < want[1] {
		for i := range r.n {
			if busy[i] && len(r.n[i].done) == sent[i] {
				think := time.Duration(rnd.IntN(10_000))
				busy[i], ready[i] = false, r.now.Add(think)
				thought += think
			}
			if !busy[i] && sent[i] < want[i] && ready[i] <= r.now {
				write(i)
				busy[i] = true
			}
			r.n[i].e.TakeNotify(c[i])
		}
		r.rest(500 * time.Nanosecond)
	}
	if d := (r.now.Sub(start) - thought/2) / 500; d > 2*r.hop+10*time.Microsecond {
		t.Errorf("500 writes each way, each waited for, took %v each, want hardly more than a round trip of %v", d, 2*r.hop)
	}

	for _, gap := range []time.Duration{time.Microsecond, 12 * time.Microsecond} {
		var first, last uint64
		const writes = 640
		for k := range writes {
			if k == writes/2 {
				first = acks()
			}
			write(0)
			for _, f := range r.take(0) {
				r.give(1, f)
			}
			for end := r.now.Add(gap); r.now < end; r.now = r.now.Add(time.Microsecond) {
				for _, f := range r.take(1) {
					r.give(0, f)
				}
			}
			r.n[1].e.TakeNotify(c[1])
		}
		last = acks()
		r.must("writes", time.Second, r.all(0, sent[0]))
		if per := writes / 2 / (last - first); per < min(14, uint64(1+20*time.Microsecond/gap)) {
			t.Errorf("writes every %v were acknowledged by a frame for %d, want one for 16 or every 20 us", gap, per)
		}
		lone("after a crowd", 5)
	}
}

// Clause 8.4: the frame with PUSH overtakes the others of its write, on a shorter link, and is acknowledged before the write is whole.
func TestPushOvertakes(t *testing.T) { inBothForms(t, testPushOvertakes) }

func testPushOvertakes(t *testing.T, sealed bool) {
	r := newRig(t, rigOptions{sealed: sealed, links: 2})
	c := r.connect(engine.DialOptions{})
	_, key := r.export(1, c[1], 32<<10, both)
	r.settle()
	for i, ahead := range []time.Duration{0, 10 * time.Microsecond, 60 * time.Microsecond} {
		r.submit(0, c[0], engine.Op{Kind: engine.OpWrite, Key: key, Local: make([]byte, 32<<10), Token: uint64(i)})
		frames := r.take(0)
		if len(frames) < 4 {
			t.Fatalf("a write of 32 KiB in %d frames, want at least 4", len(frames))
		}
		r.give(1, frames[len(frames)-1])
		for _, f := range r.take(1) {
			r.give(0, f)
		}
		r.now = r.now.Add(ahead)
		for _, f := range frames[:len(frames)-1] {
			r.give(1, f)
		}
		start := r.now
		r.must("the write", time.Second, r.all(0, i+1))
		if d := r.now.Sub(start); d > r.hop+22*time.Microsecond {
			t.Errorf("a write whose last frame came %v ahead of the others completed %v after them, want an acknowledgement within 20 us and a trip of %v", ahead, d, r.hop)
		}
		r.rest(time.Millisecond)
	}
}
