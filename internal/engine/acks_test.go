package engine_test

import (
	"testing"
	"time"

	"multiedge/internal/engine"
	"multiedge/internal/wire"
)

// flow keeps three writes outstanding per direction until each has sent so many data frames.
func (r *rig) flow(c [2]engine.ConnID, dirs []int, size int, frames uint64) {
	r.t.Helper()
	src := pattern(1, size)
	var key [2]engine.Op
	var next [2]int
	for _, i := range dirs {
		_, k := r.export(1-i, c[1-i], size, both)
		key[i] = engine.Op{Kind: engine.OpWrite, Key: k, Local: src}
	}
	r.must("the traffic", 10*time.Second, func() bool {
		enough := true
		for _, i := range dirs {
			for next[i]-len(r.n[i].done) < 3 {
				key[i].Token = uint64(next[i])
				r.submit(i, c[i], key[i])
				next[i]++
			}
			enough = enough && r.n[i].e.Count.Traffic.DataFramesSent >= frames
		}
		return enough
	})
}

// Clause 8.2: in two-way traffic acknowledgements ride on data frames; below one explicit frame per 100 data frames
// remains.
func TestAcksPiggyback(t *testing.T) { inBothForms(t, testAcksPiggyback) }

func testAcksPiggyback(t *testing.T, sealed bool) {
	for _, profile := range []string{"default", "paper"} {
		for _, links := range []int{1, 2} {
			r := newRig(t, rigOptions{sealed: sealed, profile: profile, links: links})
			r.hop = 50 * time.Microsecond
			c := r.connect(engine.DialOptions{})
			r.settle()
			before := [2]engine.Counters{r.n[0].e.Count, r.n[1].e.Count}
			r.flow(c, []int{0, 1}, 200_000, 5000)
			for i := range r.n {
				n := &r.n[i].e.Count
				explicit, data := n.Loss.AcksExplicit-before[i].Loss.AcksExplicit,
					n.Traffic.DataFramesSent-before[i].Traffic.DataFramesSent
				if explicit*100 >= data {
					t.Errorf("%s, %d links, node %d: %d explicit acknowledgements for %d data frames sent", profile,
						links, i, explicit, data)
				}
				if n.Loss.FramesRetransmitted+n.Loss.FramesLost+n.Loss.NacksSent != 0 {
					t.Errorf("%s, %d links, node %d: %d retransmitted, %d lost, %d nacks on a perfect network "+
						"(clause 8.3)", profile, links, i, n.Loss.FramesRetransmitted, n.Loss.FramesLost,
						n.Loss.NacksSent)
				}
			}
		}
	}
}

// Paper section 2.1.2, clause 8.2: one-way traffic is acknowledged every so many frames.
func TestAcksOneWay(t *testing.T) { inBothForms(t, testAcksOneWay) }

func testAcksOneWay(t *testing.T, sealed bool) {
	for _, c := range []struct {
		profile     string
		least, most float64 // data frames per frame back
	}{{"paper", 45, 49}, {"default", 15, 17}} {
		r := newRig(t, rigOptions{sealed: sealed, profile: c.profile})
		conn := r.connect(engine.DialOptions{})
		const size = 4_000_000
		_, key := r.export(1, conn[1], size, both)
		r.settle()
		r.submit(0, conn[0], engine.Op{Kind: engine.OpWrite, Token: 1, Key: key, Local: make([]byte, size)})
		data, back := 0, 0
		for end := r.now.Add(time.Second); len(r.n[0].done) == 0; r.now++ {
			if r.now > end {
				t.Fatalf("%s: not done within a second", c.profile)
			}
			for _, f := range r.take(0) { // one by one, as from a wire
				data++
				r.now = r.now.Add(2 * time.Microsecond)
				r.give(1, f)
				for _, g := range r.take(1) {
					back++
					r.give(0, g)
				}
			}
			for _, g := range r.take(1) {
				back++
				r.give(0, g)
			}
			if len(r.n[0].done) == 0 && r.n[0].e.NextTimeout() > r.now && r.n[1].e.NextTimeout() > r.now {
				r.now = r.now.Add(time.Microsecond)
			}
		}
		if per := float64(data) / float64(back); per < c.least || per > c.most {
			t.Errorf("%s: %d data frames and %d frames back, one per %.1f, want one per %v to %v", c.profile, data,
				back, per, c.least, c.most)
		}
	}
}

// Paper section 2.1.2: with profile paper every frame waits up to 5 ms to be acknowledged, with default far less, and
// the last one (PUSH, clause 8.4) not at all.
func TestAckDelay(t *testing.T) {
	for _, c := range []struct {
		profile     string
		least, most time.Duration
		lone        time.Duration // beside the round trip
	}{{"paper", 4900 * time.Microsecond, 5200 * time.Microsecond, 5 * time.Millisecond}, {"default",
		80 * time.Microsecond, 200 * time.Microsecond, 0}} {
		r := newRig(t, rigOptions{profile: c.profile})
		conn := r.connect(engine.DialOptions{})
		_, key := r.export(1, conn[1], 100_000, both)
		r.settle()
		r.rest(20 * time.Millisecond)
		op := engine.Op{Kind: engine.OpWrite, Token: 1, Key: key, Local: make([]byte, 100_000)}
		r.submit(0, conn[0], op)
		first := r.take(0)[0] // the first frame of many: no PUSH
		r.give(1, first)
		start := r.now
		var waited time.Duration
		for r.now < start.Add(20*time.Millisecond) && waited == 0 {
			for _, f := range r.take(1) {
				if len(kinds(f.b)) > 0 {
					waited = r.now.Sub(start)
				}
			}
			r.now = r.now.Add(10 * time.Microsecond)
		}
		if waited < c.least || waited > c.most {
			t.Errorf("%s: a frame without PUSH was acknowledged after %v, want %v to %v", c.profile, waited, c.least,
				c.most)
		}

		r = newRig(t, rigOptions{profile: c.profile})
		conn = r.connect(engine.DialOptions{})
		_, key = r.export(1, conn[1], 8, both)
		r.settle()
		r.submit(0, conn[0], engine.Op{Kind: engine.OpWrite, Token: 1, Key: key, Local: make([]byte, 8)})
		start = r.now
		r.must("a lone write", time.Second, r.all(0, 1))
		if took := r.now.Sub(start) - c.lone; took < 0 || took > 2*r.hop+2*time.Microsecond {
			t.Errorf("%s: a lone write took %v beside %v, want a round trip of %v", c.profile, took, c.lone, 2*r.hop)
		}
	}
}

// Clause 8.4: an application that answers at once carries the acknowledgement: request and reply need no explicit one.
func TestPingPongPiggybacks(t *testing.T) { inBothForms(t, testPingPongPiggybacks) }

func testPingPongPiggybacks(t *testing.T, sealed bool) {
	r := newRig(t, rigOptions{sealed: sealed})
	c := r.connect(engine.DialOptions{})
	_, k0 := r.export(0, c[0], 8, both)
	_, k1 := r.export(1, c[1], 8, both)
	r.settle()
	keys := [2]engine.Op{{Key: k1}, {Key: k0}}
	before := [2]engine.Counters{r.n[0].e.Count, r.n[1].e.Count}
	const turns = 500
	var sent [2]uint64
	send := func(i int) {
		r.submit(i, c[i], engine.Op{Kind: engine.OpWrite, Flags: engine.Notify, Token: sent[i], Key: keys[i].Key,
			Local: []byte("pingpong")})
		sent[i]++
	}
	send(0)
	r.must("ping-pong", 5*time.Second, func() bool {
		for i := range 2 {
			if _, ok := r.n[i].e.TakeNotify(c[i]); ok {
				send(i)
			}
		}
		return sent[0] >= turns
	})
	for i := range 2 {
		if n := r.n[i].e.Count.Loss.AcksExplicit - before[i].Loss.AcksExplicit; n > turns/100 {
			t.Errorf("node %d sent %d explicit acknowledgements in %d turns", i, n, turns)
		}
	}
}

// Clause 8.2: an acknowledgement that is due rides on data that leaves at that moment, however few frames it is for.
func TestDueAckRides(t *testing.T) { inBothForms(t, testDueAckRides) }

func testDueAckRides(t *testing.T, sealed bool) {
	r := newRig(t, rigOptions{sealed: sealed})
	c := r.connect(engine.DialOptions{})
	_, k0 := r.export(0, c[0], 8, both)
	_, k1 := r.export(1, c[1], 100_000, both)
	r.settle()
	r.submit(0, c[0], engine.Op{Kind: engine.OpWrite, Token: 1, Key: k1, Local: make([]byte, 100_000)})
	r.give(1, r.take(0)[0]) // no PUSH: it need not be acknowledged at once
	r.now = r.now.Add(200 * time.Microsecond)
	before := r.n[1].e.Count
	r.submit(1, c[1], engine.Op{Kind: engine.OpWrite, Token: 1, Key: k0, Local: make([]byte, 8)})
	frames, n := len(r.take(1)), r.n[1].e.Count.Loss.AcksExplicit-before.Loss.AcksExplicit
	if frames != 1 || n != 0 {
		t.Errorf("%d frames, %d of them only to acknowledge", frames, n)
	}
	if at := r.n[1].e.NextTimeout(); at <= r.now {
		t.Error("something is still due")
	}
}

// Round robin is of the frames that the scheduler places: acknowledgements of operations, which leave where the peer's
// frames arrive, take no turn.
func TestAcksTakeNoTurn(t *testing.T) {
	r := newRig(t, rigOptions{links: 2, scheduler: "srr"})
	c := r.connect(engine.DialOptions{})
	var op [2]engine.Op
	for i := range r.n {
		_, key := r.export(1-i, c[1-i], 8, both)
		op[i] = engine.Op{Kind: engine.OpWrite, Key: key, Local: make([]byte, 8)}
	}
	r.settle()
	var on []int
	r.pass = func(from int, f *flight) bool {
		if from == 0 && carries(f.b, wire.KindWrite) {
			on = append(on, f.link)
		}
		return true
	}
	acks := r.n[0].e.Count.Loss.AcksExplicit
	for k := range 40 {
		i := min(k%4, 1) // three of the peer's for each of ours
		r.submit(i, c[i], op[i])
		op[i].Token++
		r.must("a write", time.Second, r.all(i, int(op[i].Token)))
	}
	if r.n[0].e.Count.Loss.AcksExplicit-acks < 10 {
		t.Fatal("the peer's writes were not acknowledged by frames of their own")
	}
	for k := 1; k < len(on); k++ {
		if on[k] == on[k-1] {
			t.Fatalf("links of the writes: %v", on)
		}
	}
}
