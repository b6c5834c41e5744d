package engine_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"multiedge/internal/engine"
	"multiedge/internal/mono"
)

// Clause 8.4: whoever writes and waits, again and again, waits for a round trip; an answer carries the acknowledgement,
// and when answers cease nobody waits for them for long; writes that come close together share acknowledgements, until
// they do not.
func TestPushes(t *testing.T) { inBothForms(t, testPushes) }

// pushes is two nodes that write to each other, one write at a time.
type pushes struct {
	t    *testing.T
	r    *rig
	c    [2]engine.ConnID
	ops  [2]engine.Op
	sent [2]int
}

func newPushes(t *testing.T, sealed bool) *pushes {
	p := &pushes{t: t, r: newRig(t, rigOptions{sealed: sealed})}
	p.c = p.r.connect(engine.DialOptions{})
	for i := range p.r.n {
		_, k := p.r.export(1-i, p.c[1-i], 8, both)
		p.ops[i] = engine.Op{Kind: engine.OpWrite, Flags: engine.Notify, Key: k, Local: make([]byte, 8)}
	}
	p.r.settle()
	return p
}

func (p *pushes) write(i int) {
	op := p.ops[i]
	op.Token = uint64(p.sent[i])
	p.sent[i]++
	p.r.submit(i, p.c[i], op)
}

func (p *pushes) acks() uint64 { return p.r.n[1].e.Count.Loss.AcksExplicit }

func (p *pushes) noted(i int) bool { _, ok := p.r.n[i].e.TakeNotify(p.c[i]); return ok }

// took is how long a write takes that nobody answers.
func (p *pushes) took() time.Duration {
	start := p.r.now
	p.write(0)
	p.r.must("a write", time.Second, p.r.all(0, p.sent[0]))
	p.noted(1)
	return p.r.now.Sub(start)
}

// lone checks that of 50 lone writes so many at most take longer than a round trip.
func (p *pushes) lone(what string, within int) {
	p.t.Helper()
	const rounding = 2 * time.Microsecond
	late := 0
	for range 50 {
		if d := p.took(); d > 2*p.r.hop+rounding {
			late++
		}
	}
	if late > within {
		p.t.Errorf("%s: %d of 50 lone writes took longer than a round trip of %v, want at most %d", what, late,
			2*p.r.hop, within)
	}
}

// answered checks how many frames of their own acknowledge 50 requests that are answered after some time.
func (p *pushes) answered(after time.Duration, within uint64) {
	p.t.Helper()
	before := p.acks()
	for range 50 {
		p.write(0)
		p.r.must("a request", time.Second, func() bool { return p.noted(1) })
		p.r.rest(after)
		p.write(1)
		p.r.must("an answer", time.Second, func() bool { return p.noted(0) })
	}
	if n := p.acks() - before; n > within {
		p.t.Errorf("50 requests that were answered after %v were acknowledged by %d frames of their own, want at "+
			"most %d", after, n, within)
	}
}

func testPushes(t *testing.T, sealed bool) {
	p := newPushes(t, sealed)
	p.lone("at first", 1) // one in 256 waits to see whether others come
	p.answered(0, 20)
	p.lone("after quick answers", 2)
	p.answered(15*time.Microsecond, 20)
	p.lone("after slower answers", 2)
	p.answered(25*time.Microsecond, 20) // as of a program for which its daemon's core changes twice
	p.lone("after answers that take two switches", 2)
	p.answered(40*time.Microsecond, 50) // too slow to be waited for
	p.lone("after answers that were too slow", 1)
	p.think()
	for _, gap := range []time.Duration{time.Microsecond, 12 * time.Microsecond} {
		p.crowd(gap)
		p.lone("after a crowd", 5)
	}
}

// think has both write at once, each waiting for its write and thinking before the next.
func (p *pushes) think() {
	r := p.r
	start, ready, rnd := r.now, [2]mono.Time{r.now, r.now}, rand.New(rand.NewPCG(1, 2))
	want := [2]int{p.sent[0] + 500, p.sent[1] + 500}
	busy := [2]bool{}
	thought := time.Duration(0)
	for len(r.n[0].done) < want[0] || len(r.n[1].done) < want[1] {
		for i := range r.n {
			if busy[i] && len(r.n[i].done) == p.sent[i] {
				think := time.Duration(rnd.IntN(10_000))
				busy[i], ready[i] = false, r.now.Add(think)
				thought += think
			}
			if !busy[i] && p.sent[i] < want[i] && ready[i] <= r.now {
				p.write(i)
				busy[i] = true
			}
			r.n[i].e.TakeNotify(p.c[i])
		}
		r.rest(500 * time.Nanosecond)
	}
	if d := (r.now.Sub(start) - thought/2) / 500; d > 2*r.hop+10*time.Microsecond {
		p.t.Errorf("500 writes each way, each waited for, took %v each, want hardly more than a round trip of %v", d,
			2*r.hop)
	}
}

// crowd checks how seldom writes that follow each other after gap are acknowledged.
func (p *pushes) crowd(gap time.Duration) {
	r := p.r
	var first, last uint64
	const writes = 640
	for k := range writes {
		if k == writes/2 {
			first = p.acks()
		}
		p.write(0)
		for _, f := range r.take(0) {
			r.give(1, f)
		}
		for end := r.now.Add(gap); r.now < end; r.now = r.now.Add(time.Microsecond) {
			for _, f := range r.take(1) {
				r.give(0, f)
			}
		}
		r.n[1].e.TakeNotify(p.c[1])
	}
	last = p.acks()
	r.must("writes", time.Second, r.all(0, p.sent[0]))
	if per := writes / 2 / (last - first); per < min(14, uint64(1+20*time.Microsecond/gap)) {
		p.t.Errorf("writes every %v were acknowledged by a frame for %d, want one for 16 or every 20 us", gap, per)
	}
}

// Clause 8.4: the frame with PUSH overtakes the others of its write, on a shorter link, and is acknowledged before the
// write is whole.
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
			t.Errorf("a write whose last frame came %v ahead of the others completed %v after them, want an "+
				"acknowledgement within 20 us and a trip of %v", ahead, d, r.hop)
		}
		r.rest(time.Millisecond)
	}
}
