package flowctl

import (
	"testing"
	"time"

	"multiedge/internal/mono"
)

// acks gives a controller acknowledgements, as many as its window has, for so many round trips.
func acks(c Controller, now *mono.Time, rtt time.Duration, rounds int) {
	r := &RTT{}
	for range rounds {
		n := max(1, int(c.Frames()))
		for range n {
			r.Update(rtt, 0)
			c.Allows(1<<20, *now) // it is full
			*now = now.Add(rtt / time.Duration(n))
			c.OnAck(*now, 1, r)
		}
	}
}

// Paths within a building keep windows of their own, driven by delay; long ones share one, and go back when a shorter
// round trip shows that only the peer was slow.
func TestAutoChooses(t *testing.T) {
	cable := IPCongestion("auto").(Cabled).Cable()
	join := func() *autoLane {
		l := cable.New().(*autoLane)
		l.Share(true)
		return l
	}
	a, b := join(), join()
	now := mono.Time(time.Hour)
	acks(a, &now, 500*time.Microsecond, 3)
	if _, near := a.Sharer.(*fabricLane); !near || a.Budget() != 0 {
		t.Fatalf("near: %T, budget %v", a.Sharer, a.Budget())
	}
	acks(b, &now, 5*time.Millisecond, 3)
	if _, far := b.Sharer.(*cubicLane); !far || b.Budget() < 40 {
		t.Fatalf("far: %T, budget %v", b.Sharer, b.Budget())
	}
	c := join()
	acks(c, &now, 5*time.Millisecond, 1)
	if b.Budget() != c.Budget() || b.Frames()+c.Frames() > 1.01*c.c.far.window {
		t.Errorf("two lanes have %v and %v of a window of %v", b.Frames(), c.Frames(), c.c.far.window)
	}
	c.Share(false)
	if b.Frames() != b.c.far.window {
		t.Errorf("a lane alone has %v of a window of %v", b.Frames(), b.c.far.window)
	}
	acks(b, &now, time.Millisecond, 1)
	if _, near := b.Sharer.(*fabricLane); !near || b.c.far.lanes != 0 {
		t.Errorf("shorter after all: %T, %d lanes share", b.Sharer, b.c.far.lanes)
	}
}

// What is in flight on all lanes together is within the window, whoever sent it and however lanes come and go.
func TestCubicBudget(t *testing.T) {
	c := CubicParams{}.cable()
	c.rtt = 500 * time.Microsecond
	a, b := c.lane(), c.lane()
	a.Share(true)
	b.Share(true)
	now := mono.Time(time.Hour)
	sent := [2]int{}
	for k, l := range []*cubicLane{a, b} {
		for l.Allows(sent[k], now) {
			sent[k]++
		}
	}
	if sent != [2]int{cubicInitial, 0} {
		t.Fatalf("in flight %v", sent)
	}
	a.OnLoss(now, 4)
	if !b.Allows(0, now) || c.window != 7 {
		t.Errorf("a window of %v, in flight %d", c.window, c.inFlight)
	}
	a.OnLoss(now, 3) // of the same flight
	if c.window != 7 || c.inFlight != 3 {
		t.Errorf("a window of %v, in flight %d", c.window, c.inFlight)
	}
	a.Share(false)
	if c.inFlight != 0 || c.lanes != 1 {
		t.Errorf("in flight %d on %d lanes", c.inFlight, c.lanes)
	}
}

// What was sent on a short path, without pacing, is no debt when the path becomes long.
func TestCubicOwesNothingOfShortPaths(t *testing.T) {
	c := CubicParams{}.cable()
	l := c.New().(*cubicLane)
	now := mono.Time(time.Hour)
	c.rtt = paceFrom / 2
	for range 10_000 {
		l.Allows(1, now)
		l.settle(0)
	}
	c.rtt = 2 * paceFrom
	if !l.Allows(0, now) {
		t.Errorf("the next frame leaves in %v", l.NextSend().Sub(now))
	}
}

// On a long path no more than a millisecond's frames leave at once, and none is kept for ever.
func TestCubicPaces(t *testing.T) {
	const rtt = 50 * time.Millisecond
	c := CubicParams{}.cable()
	l := c.New()
	now := mono.Time(time.Hour)
	acks(l, &now, rtt, 8)
	if c.window < 1000 {
		t.Fatalf("a window of %v", c.window)
	}
	l.(*cubicLane).settle(0) // everything was acknowledged
	c.tokens, c.tokenAt = 0, now
	inFlight, most, window := 0, 0, c.window
	for end := now.Add(rtt); now < end; {
		burst := 0
		for l.Allows(inFlight, now) {
			inFlight++
			burst++
		}
		most = max(most, burst)
		if inFlight >= int(c.window) {
			break
		}
		if at := l.NextSend(); at <= now {
			t.Fatalf("nothing more leaves: %d of %v in flight", inFlight, c.window)
		} else {
			now = at
		}
	}
	c.window, c.tokens, c.tokenAt = 20, 1-1e-12, now // a moment before the next
	if l.Allows(0, now) || l.NextSend() <= now {
		t.Error("a frame is kept back until no later time")
	}
	if limit := int(paceGainStart*window/50) + 1; most > limit || inFlight < int(window) {
		t.Errorf("up to %d at once, want %d; %d of %v within a round trip", most, limit, inFlight, window)
	}
}
