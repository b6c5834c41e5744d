package flowctl

import (
	"math"
	"testing"
	"time"

	"multiedge/internal/mono"
)

// endless is more frames than any test sends.
const endless = 1 << 30

// TestCwndConverges runs one flow over a queue of known rate: delay near the target, link busy.
func TestCwndConverges(t *testing.T) {
	for _, c := range []struct {
		name  string
		frame time.Duration // time on the wire of 8 KiB
		delay time.Duration // one way
		queue int
		most  time.Duration // delay above the minimum
	}{
		{"25 Gbit/s", 2624, 10 * time.Microsecond, 0, 450 * time.Microsecond},
		{"10 Gbit/s", 6560, 20 * time.Microsecond, 0, 450 * time.Microsecond},
		{"10 Gbit/s, far", 6560, 200 * time.Microsecond, 0, 450 * time.Microsecond},
		{"1 Gbit/s: a slow path may queue 16 frames", 65600, 20 * time.Microsecond, 0, 1050 * time.Microsecond},
		{"250 Mbit/s: for 2 ms", 262400, 20 * time.Microsecond, 0, 2100 * time.Microsecond},
		{"10 Gbit/s, shallow buffer", 6560, 20 * time.Microsecond, 24, 450 * time.Microsecond},
	} {
		s := newSim(9)
		f := newFlow(t, s, endless, Profiles[0], &wire{frame: c.frame, delay: c.delay, queue: c.queue}, ackWire())
		s.run(100*time.Millisecond, f.done)
		busy, start, first := f.fwd.busy, s.now, len(f.fate)
		lost := f.losses
		s.run(200*time.Millisecond, f.done)
		use := float64(f.fwd.busy-busy) / float64(s.now.Sub(start))
		share := float64(f.losses-lost) / float64(len(f.fate)-first)
		above := f.rtt.SRTT() - f.rtt.Min()
		t.Logf("%s: utilisation %.3f, delay %v above minimum, loss %.4f, %v", c.name, use, above, share, f)
		if use < 0.97 || above > c.most || share > 0.08 {
			t.Errorf("%s: utilisation %.3f, delay %v above minimum, loss %.4f, %v", c.name, use, above, share, f)
		}
	}
}

// TestCwndFairness starts a second flow while the first has the link. The second takes the queue it finds for the idle
// path, and has the better of it until both have drained a few times.
func TestCwndFairness(t *testing.T) {
	for _, frame := range []time.Duration{2624, 6560, 65600} {
		s := newSim(10)
		shared := &wire{frame: frame, delay: 20 * time.Microsecond}
		a := newFlow(t, s, endless, Profiles[0], shared, ackWire())
		s.run(50*time.Millisecond, a.done)
		b := newFlow(t, s, endless, Profiles[0], shared, ackWire())
		s.run(1200*time.Millisecond, a.done)
		a0, b0 := float64(a.arrivals), float64(b.arrivals)
		s.run(200*time.Millisecond, a.done)
		x, y := float64(a.arrivals)-a0, float64(b.arrivals)-b0
		jain := (x + y) * (x + y) / 2 / (x*x + y*y)
		use := (x + y) * float64(frame) / float64(200*time.Millisecond)
		t.Logf("%v a frame: %.0f and %.0f frames, Jain %.3f, utilisation %.3f, minimum %v %v", frame, x, y, jain, use,
			a.rtt.Min(), b.rtt.Min())
		if jain < 0.85 || use < 0.97 {
			t.Errorf("%v a frame: %.0f and %.0f frames, Jain %.3f, utilisation %.3f", frame, x, y, jain, use)
		}
	}
}

func sampled(d time.Duration, base time.Duration) *RTT {
	r := &RTT{}
	r.Update(base, 0)
	for range 50 {
		r.Update(d, 0)
	}
	return r
}

func TestCwndRules(t *testing.T) {
	const ms = mono.Time(time.Millisecond)
	c := DelayParams{Target: 100 * time.Microsecond, Min: 0.01, Max: 256, Initial: 100}.New()
	low, high := sampled(50*time.Microsecond, 50*time.Microsecond), sampled(200*time.Microsecond, 50*time.Microsecond)

	c.OnAck(10*ms, 10, low)
	if c.Frames() != 100 {
		t.Errorf("a window that was never full grew to %v", c.Frames())
	}
	if c.Allows(100, 10*ms) || !c.Allows(99, 10*ms) {
		t.Error("Allows disagrees with Frames")
	}
	c.OnAck(10*ms, 10, low)
	if c.Frames() != 110 {
		t.Errorf("starting: %v", c.Frames())
	}
	c.OnLoss(10*ms, 20)
	c.Allows(1000, 10*ms)
	c.OnAck(10*ms, 10, low)
	if c.Frames() != 100.1 {
		t.Errorf("steady: %v", c.Frames())
	}
	c.OnLoss(10*ms, 1000)
	if c.Frames() != 55 {
		t.Errorf("loss within one round trip took more than half: %v", c.Frames())
	}

	c.OnAck(20*ms, 1, high) // the round since 10 ms had a low sample
	if c.Frames() != 55 {
		t.Errorf("cut to %v although the round had a low delay", c.Frames())
	}
	c.OnAck(21*ms-2, 1, high)
	c.OnAck(21*ms-1, 1, high)
	c.OnAck(21*ms, 1, high) // three samples make a round
	target := 50e3 + 100e3*(1+1/math.Sqrt(55))
	want := 55 * (1 - 0.8*(200e3-target)/200e3)
	if math.Abs(c.Frames()-want) > 1e-3 {
		t.Errorf("cut to %v, want %v", c.Frames(), want)
	}
	c.OnAck(21*ms+1, 1, high)
	if math.Abs(c.Frames()-want) > 1e-3 {
		t.Errorf("cut twice in a round trip: %v", c.Frames())
	}

	c.OnTimeout(30 * ms)
	if math.Abs(c.Frames()-want) > 1e-3 {
		t.Errorf("the first timeout cut: %v", c.Frames())
	}
	c.OnTimeout(30 * ms)
	if math.Abs(c.Frames()-want) > 1e-3 {
		t.Errorf("the second timeout cut: %v", c.Frames())
	}
	for range 30 {
		c.OnTimeout(30 * ms)
	}
	if c.Frames() != 0.01 {
		t.Errorf("Min: %v", c.Frames())
	}
	if at := c.NextSend(); at <= 30*ms || at > 131*ms || c.Allows(0, at-1) || !c.Allows(0, at) || c.Allows(1, at) {
		t.Errorf("pacing: NextSend %v", at)
	}
	c.OnAck(c.NextSend(), 1, low)
	if c.Frames() < 1 || c.NextSend() != 0 {
		t.Errorf("does not leave pacing: %v, NextSend %v", c.Frames(), c.NextSend())
	}

	c = FixedWindow(512).New()
	c.OnAck(40*ms, 9, high)
	c.OnLoss(40*ms, 500)
	c.OnTimeout(40 * ms)
	if c.Frames() != 512 || !c.Allows(511, 0) || c.Allows(512, 0) {
		t.Errorf("fixed window: %v", c.Frames())
	}
}

// A hundred senders into one port need windows below one frame.
func TestCwndPacing(t *testing.T) {
	s := newSim(11)
	p := Profiles[0]
	paced := DefaultDelay
	paced.Min, paced.Base = 0.01, 110*time.Microsecond
	p.Congestion = paced
	shared := &wire{frame: 65600, delay: 20 * time.Microsecond}
	var flows []*flow
	for range 60 {
		flows = append(flows, newFlow(t, s, endless, p, shared, ackWire()))
	}
	never := func() bool { return false }
	s.run(500*time.Millisecond, never)
	busy, start := shared.busy, s.now
	s.run(200*time.Millisecond, never)
	use := float64(shared.busy-busy) / float64(s.now.Sub(start))
	queue := shared.free.Sub(s.now)
	t.Logf("utilisation %.3f, queue %v, first flow %v", use, queue, flows[0])
	if queue > 3*time.Millisecond || use < 0.9 {
		t.Errorf("utilisation %.3f, queue %v", use, queue)
	}
}
