package flowctl

import (
	"testing"
	"time"

	"multiedge/internal/mono"
)

// A path that becomes longer while it is in use is full again within seconds, as far as the largest window reaches,
// unless it became so by little more than the delay that is allowed.
func TestPathBecomesLonger(t *testing.T) {
	for _, c := range []struct {
		frame, more time.Duration
		least       float64
	}{
		{6560, 100 * time.Microsecond, 0.97},
		{6560, 500 * time.Microsecond, 0.95},
		{6560, 700 * time.Microsecond, 0.95},
		{6560, time.Millisecond, 0.95},
		{6560, 5 * time.Millisecond, 0.95 * 192 * 6.56 / 5000},
		{65600, 600 * time.Microsecond, 0.9},
		{65600, 5 * time.Millisecond, 0.85},
	} {
		s := newSim(uint64(c.more))
		w := &wire{frame: c.frame, delay: 20 * time.Microsecond}
		f := newFlow(t, s, endless, Profiles[0], w, ackWire())
		s.run(200*time.Millisecond, f.done)
		short := f.rtt.Min()
		w.delay += c.more
		s.run(2500*time.Millisecond, f.done)
		busy, start := w.busy, s.now
		s.run(200*time.Millisecond, f.done)
		use := float64(w.busy-busy) / float64(s.now.Sub(start))
		t.Logf("%v a frame, %v longer: utilisation %.3f, minimum %v, %v", c.frame, c.more, use, f.rtt.Min(), f)
		if use < c.least {
			t.Errorf("%v a frame, %v longer: utilisation %.3f, %v", c.frame, c.more, use, f)
		}
		w.delay -= c.more
		s.run(200*time.Millisecond, f.done)
		if f.rtt.Min() > 2*short {
			t.Errorf("%v a frame, as short as before: minimum %v, it was %v", c.frame, f.rtt.Min(), short)
		}
	}
}

// So is one with a long round trip, which has few drains in that time, whether it is much longer then or, compared with
// itself, little; and it is full at once when it begins.
func TestLongPathBecomesLonger(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct{ delay, more time.Duration }{{100 * ms, 12 * ms}, {100 * ms, 5 * ms / 2},
		{400 * ms, 12 * ms}} {
		s := newSim(1)
		w := &wire{frame: 6560, delay: c.delay}
		f := newFlow(t, s, endless, Profiles[0], w, ackWire())
		s.run(10*c.delay, f.done)
		if f.cwnd.Frames() < 180 {
			t.Errorf("%v: at the start %v", c.delay, f)
		}
		w.delay += c.more
		s.run(3*time.Second+20*c.delay, f.done)
		if f.rtt.Min() < c.delay+c.more*4/5 || f.cwnd.Frames() < 180 {
			t.Errorf("%v, and %v more: minimum %v, %v", c.delay, c.more, f.rtt.Min(), f)
		}
	}
}

// Flows that share a path do not take each other's queue for a longer path again and again: the queue is what their
// least windows and what is allowed make, and all get the like of it.
func TestSharedPathStaysShort(t *testing.T) {
	never := func() bool { return false }
	for _, c := range []struct {
		frame time.Duration
		flows int
		most  time.Duration // queue; without rises it is three quarters of that
	}{
		{2624, 2, 400 * time.Microsecond}, {2624, 30, 1200 * time.Microsecond},
		{6560, 8, 800 * time.Microsecond}, {6560, 30, 3 * time.Millisecond},
		{65600, 8, 5500 * time.Microsecond}, {65600, 30, 14 * time.Millisecond},
		{262400, 8, 15 * time.Millisecond}, {262400, 30, 47 * time.Millisecond},
	} {
		s := newSim(uint64(c.flows))
		w := &wire{frame: c.frame, delay: 20 * time.Microsecond}
		var flows []*flow
		for range c.flows {
			flows = append(flows, newFlow(t, s, endless, Profiles[0], w, ackWire()))
			s.run(20*time.Millisecond, never)
		}
		s.run(3*time.Second, never)
		before := make([]int, len(flows))
		for i, f := range flows {
			before[i] = f.arrivals
		}
		var queue time.Duration
		const looks = 50
		for range looks {
			s.run(40*time.Millisecond, never)
			queue += w.free.Sub(s.now) / looks
		}
		var sum, squares float64
		for i, f := range flows {
			n := float64(f.arrivals - before[i])
			sum, squares = sum+n, squares+n*n
		}
		jain := sum * sum / squares / float64(len(flows))
		least := time.Duration(c.flows) * drainFrames * c.frame
		t.Logf("%v a frame, %d flows: queue %v, of least windows %v, Jain %.3f, %v", c.frame, c.flows, queue, least,
			jain, flows[0])
		if queue > c.most || jain < 0.8 {
			t.Errorf("%v a frame, %d flows: queue %v, of least windows %v, Jain %.3f, %v", c.frame, c.flows, queue,
				least, jain, flows[0])
		}
	}
}

// A long path that several flows fill stays full: the queue that they allow each other there is no reason to drain it,
// which takes two round trips.
func TestSharedLongPathStaysFull(t *testing.T) {
	const ms = time.Millisecond
	never := func() bool { return false }
	for _, c := range []struct {
		delay time.Duration
		flows int
	}{{20 * ms, 4}, {50 * ms, 8}, {50 * ms, 16}} {
		s := newSim(uint64(c.flows))
		w := &wire{frame: 65600, delay: c.delay}
		for range c.flows {
			newFlow(t, s, endless, Profiles[0], w, ackWire())
			s.run(20*ms, never)
		}
		s.run(4*time.Second, never)
		busy, start := w.busy, s.now
		s.run(4*time.Second, never)
		if use := float64(w.busy-busy) / float64(s.now.Sub(start)); use < 0.99 {
			t.Errorf("%d flows over %v: utilisation %.3f", c.flows, c.delay, use)
		}
	}
}

// Where the round trip of the idle path is known nothing above it is believed.
func TestKnownPathDoesNotRise(t *testing.T) {
	const base, ms = 110 * time.Microsecond, mono.Time(time.Millisecond)
	var rtt RTT
	c := DelayParams{Base: base}.window()
	rtt.Update(base, 0)
	for now := ms; now < 4000*ms; now += ms {
		rtt.Update(5*time.Millisecond, 0)
		c.OnAck(now, 1, &rtt)
		if now > 100*ms && c.starting {
			t.Fatalf("starts anew after %v", time.Duration(now))
		}
	}
	if rtt.Min() != base {
		t.Errorf("minimum %v", rtt.Min())
	}
}
