package flowctl

import (
	"math"
	"testing"
	"time"

	"multiedge/internal/mono"
)

// lanes are so many lanes of a cable, which may carry data.
func lanes(c Congestion, n int) (list []Controller) {
	for range n {
		l := c.New()
		l.(Sharer).Share(true)
		list = append(list, l)
	}
	return list
}

const fabricRTT = 20 * time.Microsecond

// firstCut is what a first frame, if marked, leaves of a window: half of the smoothed share is cut.
var firstCut = 1 - (DefaultFabric.Share+(1-DefaultFabric.Share)/16)/2

// round has a lane's whole window acknowledged in one round trip, of which that share was marked.
func round(l Controller, now *mono.Time, r *RTT, marked float64) {
	*now = now.Add(fabricRTT)
	n := max(1, int(l.Frames()))
	l.Allows(n, *now)
	r.Update(fabricRTT, 0)
	l.OnMarks(*now, n, int(math.Ceil(marked*float64(n))), r)
	l.OnAck(*now, n, r)
}

// The share of marked frames is smoothed with a weight of 1/16 once a round trip, and half of it is cut (RFC 8257
// sections 3.3 and 4.2).
func TestDCTCP(t *testing.T) {
	l := lanes(DefaultFabric.Cable(), 1)[0].(*fabricLane)
	now, r := mono.Time(time.Hour), &RTT{}
	share := DefaultFabric.Share
	for k, marked := range []float64{1, 1, 0, 0.25, 0, 0, 0.5, 0, 1} {
		was := l.frames
		part := math.Ceil(marked*float64(int(was))) / float64(int(was))
		round(l, &now, r, marked)
		share += (part - share) / 16
		window := was
		if marked > 0 {
			window *= 1 - share/2
		} else {
			window += float64(int(was)) / was
		}
		if math.Abs(l.share-share) > 1e-9 || math.Abs(l.frames-window) > 1e-9 {
			t.Errorf("round %d: share %v, want %v; window %v, want %v", k, l.share, share, l.frames, window)
		}
	}
}

// A window that is not reached does not grow, however lately it kept a frame back; one that is reached grows.
func TestUnreachedWindowDoesNotGrow(t *testing.T) {
	l := lanes(DefaultFabric.Cable(), 1)[0]
	now, r := mono.Time(time.Hour), &RTT{}
	round(l, &now, r, 0)
	inFlight := int(l.Frames())
	l.Allows(inFlight, now)
	was := 0.0
	for k := range 12 {
		now = now.Add(fabricRTT)
		acked := max(2, inFlight-4)
		inFlight -= acked
		l.OnAck(now, acked, r)
		for ; inFlight < 6; inFlight++ { // the sender's port takes no more
			l.Allows(inFlight, now)
		}
		if k == 3 {
			was = l.Frames()
		}
	}
	if l.Frames() != was {
		t.Errorf("6 frames were in flight, and a window of %v became %v", was, l.Frames())
	}
	for range 2 {
		round(l, &now, r, 0)
	}
	if l.Frames() <= was {
		t.Errorf("a window that was reached stays at %v", was)
	}
}

// Marks within one round trip cut the window once.
func TestMarksCutOnce(t *testing.T) {
	for name, c := range map[string]struct {
		way  Congestion
		part float64
	}{"fabric": {DefaultFabric, firstCut}, "wan": {CubicParams{}, cubicBetaMark},
		"lossy": {IPCongestion("lossy"), 0.8}} {
		l := c.way.New()
		if s, ok := l.(Sharer); ok {
			s.Share(true)
		}
		now, r := mono.Time(time.Hour), &RTT{}
		r.Update(fabricRTT, 0)
		was := l.Frames()
		l.Allows(int(was), now)
		for k := range 5 {
			l.OnMarks(now.Add(time.Duration(k)*time.Microsecond), 1, 1, r)
		}
		if got := l.Frames() / was; math.Abs(got-c.part) > 0.01 {
			t.Errorf("%s: a window of %v became %v", name, was, l.Frames())
		}
		if l.OnMarks(now.Add(10*fabricRTT), 1, 0, r); math.Abs(l.Frames()/was-c.part) > 0.01 {
			t.Errorf("%s: no mark made it %v", name, l.Frames())
		}
	}
}

// Frames that left before a cut do not cut again, however long the queue makes their round trip: a window of data is
// cut once (RFC 8257 section 3.3). If nothing is told of some of them, that does not last.
func TestMarksOfTheSameWindow(t *testing.T) {
	l := lanes(DefaultFabric.Cable(), 1)[0]
	now, r := mono.Time(time.Hour), &RTT{}
	r.Update(fabricRTT, 0)
	n := int(l.Frames())
	l.Allows(n, now)
	for k := range n - 1 {
		now = now.Add(fabricRTT) // the queue grows
		r.Update(time.Duration(k)*fabricRTT, 0)
		l.OnMarks(now, 1, 1, r)
		l.OnAck(now, 1, r)
	}
	was := l.Frames()
	if math.Abs(was-DefaultFabric.Initial*firstCut) > 1e-9 {
		t.Errorf("marks of one window of data make it %v", was)
	}
	l.Allows(1, now)
	l.OnMarks(now, 1, 1, r)
	if l.Frames() != was {
		t.Errorf("before the last of them it is %v", l.Frames())
	}
	if l.OnMarks(now.Add(time.Second), 1, 1, r); l.Frames() >= was {
		t.Errorf("of one nothing was told, and later marks leave it at %v", l.Frames())
	}
}

// Marks bring the window below the least that delay and losses leave, not below its own; these neither cut nor raise it
// there. Without marks it grows again.
func TestMarksGoLower(t *testing.T) {
	l := lanes(DefaultFabric.Cable(), 1)[0]
	now, r := mono.Time(time.Hour), &RTT{}
	for range 100 {
		round(l, &now, r, 1)
	}
	if l.Frames() != DefaultFabric.Least {
		t.Fatalf("a window of %v, want %v", l.Frames(), DefaultFabric.Least)
	}
	l.OnLoss(now, 5)
	for range 5 {
		l.OnTimeout(now)
	}
	if l.Frames() != DefaultFabric.Least {
		t.Errorf("after losses %v", l.Frames())
	}
	if l.NextSend() <= now || l.Allows(0, now) || !l.Allows(0, l.NextSend()) {
		t.Errorf("a window of %v is not paced: %v", l.Frames(), l.NextSend().Sub(now))
	}
	for range 40 {
		round(l, &now, r, 0)
	}
	if l.Frames() < 8 {
		t.Errorf("without marks %v", l.Frames())
	}
}

// Lanes share what one window has at first and at least, and grow together by a frame in a round trip. One that carries
// nothing has no part.
func TestLanesShareAWindow(t *testing.T) {
	for _, n := range []int{1, 2, 8} {
		cable := DefaultFabric.Cable()
		all := lanes(cable, n)
		sum := func() (s float64) {
			for _, l := range all {
				s += l.Frames()
			}
			return s
		}
		if s := sum(); s != DefaultFabric.Initial {
			t.Errorf("%d lanes begin with %v frames", n, s)
		}
		now, r := mono.Time(time.Hour), make([]RTT, n)
		for k, l := range all { // ends the start
			r[k].Update(fabricRTT, 0)
			l.OnLoss(now, 1)
		}
		was := sum()
		for range 8 {
			began := now
			for k, l := range all {
				at := began
				round(l, &at, &r[k], 0)
				now = at
			}
		}
		if grown := sum() - was; grown < 4 || grown > 8.1 {
			t.Errorf("%d lanes grow by %v frames in 8 round trips", n, grown)
		}
		for k := range 200 {
			for _, l := range all {
				l.OnTimeout(now.Add(time.Duration(k) * time.Second))
			}
		}
		if s := sum(); math.Abs(s-DefaultDelay.Min) > 1e-9 {
			t.Errorf("%d lanes keep %v frames", n, s)
		}
		for _, l := range all[1:] {
			l.(Sharer).Share(false)
		}
		if least := all[0].(*fabricLane).p.Min; least != DefaultDelay.Min {
			t.Errorf("of %d lanes one is left, with a least window of %v", n, least)
		}
	}
}

// awake are the lanes that do not rest.
func awake(all []Controller) (list []*fabricLane) {
	for _, l := range all {
		if l := l.(*fabricLane); !l.rests {
			list = append(list, l)
		}
	}
	return list
}

// Clause 21.8: a lane without a whole frame gives its part to another and rests, so that of a small window there is one
// lane, as small as a window alone. What is acknowledged or lost on a lane that rests changes nothing. As the window
// grows the others come back, and nothing of it is lost.
func TestSmallWindowsRest(t *testing.T) {
	for _, n := range []int{2, 4, 8, 16} {
		all := lanes(DefaultFabric.Cable(), n)
		now, r := mono.Time(time.Hour), &RTT{}
		sum := func() (s float64) {
			for _, l := range all {
				s += l.Frames()
			}
			return s
		}
		rounds := func(times int, marked float64) {
			for range times {
				for _, l := range awake(all) {
					for _, o := range awake(all) {
						if o.frames < 1 && n > 1 && len(awake(all)) > 1 && !o.fresh {
							t.Fatalf("%d lanes: one of several has a window of %v", n, o.frames)
						}
					}
					round(l, &now, r, marked)
				}
			}
		}
		rounds(200, 1)
		if k := len(awake(all)); k != 1 || sum() != DefaultFabric.Least {
			t.Errorf("%d lanes: marks leave %d of them, with %v frames", n, k, sum())
		}
		for _, l := range all {
			if l := l.(*fabricLane); l.rests {
				if l.Allows(0, now) || l.NextSend() != 0 {
					t.Errorf("%d lanes: one that rests sends: %v", n, l.NextSend())
				}
				l.OnMarks(now, 1, 1, r)
				l.OnAck(now, 1, r)
				l.OnLoss(now, 1)
				l.OnTimeout(now)
			}
		}
		if sum() != DefaultFabric.Least {
			t.Errorf("%d lanes: those that rest make it %v", n, sum())
		}
		for was, k := sum(), 0; len(awake(all)) < n; was, k = sum(), k+1 {
			if rounds(1, 0); k == 1000 {
				t.Fatalf("%d lanes: %d are awake after %d round trips without marks", n, len(awake(all)), k)
			}
			if got := sum(); got < was || got > was+1.5*float64(n) {
				t.Fatalf("%d lanes: %v frames become %v", n, was, got)
			}
		}
		// the last lane that is awake leaves what it has to one that rests
		rounds(200, 1)
		last := awake(all)[0]
		last.Share(false)
		if k := awake(all); len(k) != 2 || sum() != 2*DefaultFabric.Least || last.rests {
			t.Errorf("%d lanes: without the last that was awake %d are, with %v", n, len(k)-1, sum()-last.frames)
		}
	}
}

// A lane that carries no data has no part of the CUBIC window.
func TestDeadLanesHaveNoPart(t *testing.T) {
	c := CubicParams{}.cable()
	all := lanes(c, 4)
	if idle := c.New(); c.lanes != 4 || all[0].Frames() != cubicInitial/4.0 {
		t.Errorf("%d lanes, %v frames for each; %T", c.lanes, all[0].Frames(), idle)
	}
	for _, l := range all[1:] {
		l.(Sharer).Share(false)
		l.(Sharer).Share(false)
	}
	if c.lanes != 1 || all[0].Frames() != cubicInitial {
		t.Errorf("%d lanes, %v frames", c.lanes, all[0].Frames())
	}
}
