package flowctl

import (
	"fmt"
	"testing"
	"time"

	"multiedge/internal/mono"
)

func TestPathLoss(t *testing.T) {
	const want = 30000
	clean := newFlow(t, newSim(1), want, Profiles[0], tenGig(), ackWire())
	base := clean.finish(time.Minute)
	if clean.losses+clean.spurious > 0 || len(clean.fate) != want {
		t.Fatalf("clean path: %v", clean)
	}
	t.Logf("clean: %v, %v", base, clean)
	for _, c := range []struct{ loss, goodput float64 }{{0.001, 0.9}, {0.01, 0.7}, {0.05, 0.4}, {0.3, 0}} {
		for seed := uint64(1); seed <= 2; seed++ {
			n := want
			if c.goodput == 0 {
				n = want / 10
			}
			f := newFlow(t, newSim(seed), n, Profiles[0], tenGig(), ackWire())
			f.fwd.loss, f.back[0].loss, f.fwd.dup = c.loss, c.loss, 0.01
			took := f.finish(time.Minute)
			share := float64(base) / float64(took) * float64(n) / want
			t.Logf("loss %g seed %d: goodput %.2f of clean, %v", c.loss, seed, share, f)
			if share < c.goodput || float64(len(f.fate)) > float64(n)*1.3/(1-c.loss) || f.spuriousShare() > 0.005 {
				t.Errorf("loss %g seed %d: goodput %.2f of clean, %v", c.loss, seed, share, f)
			}
		}
	}
}

func TestPathReordering(t *testing.T) {
	fixed := Profiles[0]
	fixed.Congestion = FixedWindow(512)
	for _, p := range []Profile{Profiles[0], fixed, Profiles[1]} {
		for _, share := range []float64{0.01, 0.1, 0.5, 1} {
			for _, late := range []int{30, 4000} { // frames that overtake
				if share == 1 && late > 30 && (p.Congestion.Fixed() == 0 || p.Acks.Exact) {
					continue // delays beyond the target for every frame are congestion to a window driven by delay
				}
				s := newSim(uint64(late))
				f := newFlow(t, s, 20000, p, tenGig(), ackWire())
				f.fwd.reorder, f.fwd.late = share, time.Duration(late)*f.fwd.frame
				took := f.finish(time.Minute)
				name := fmt.Sprintf("%s/%d: %g late by up to %d frames", p.Name, p.Congestion.Fixed(), share, late)
				t.Logf("%s: %v %v", name, took, f)
				limit := 0.02
				if share == 1 {
					limit = 0.03 // the whole first window is late, before anything is known
				}
				// Nothing was lost: every judgement is spurious, heard of or not. The paper's protocol obeys a negative
				// acknowledgement, so that a link that reorders costs it many; what must hold is that all arrives.
				if !p.Acks.Exact && float64(f.losses) > limit*float64(len(f.fate)) {
					t.Errorf("%s: %v", name, f)
				}
			}
		}
	}
}

// Blocks that take a link with 50 times the delay in turn must not make packets look lost.
func TestPathSlowWayBack(t *testing.T) {
	f := newFlow(t, newSim(3), 20000, Profiles[0], tenGig(), ackWire(), &wire{frame: 100, delay: time.Millisecond})
	f.fwd.reorder, f.fwd.late = 0.05, 200*time.Microsecond
	took := f.finish(time.Minute)
	t.Logf("%v %v", took, f)
	if f.spuriousShare() > 0.02 {
		t.Error(f)
	}
}

// A receiver that is off its core for milliseconds is neither loss nor the end of the window.
func TestPathDescheduledReceiver(t *testing.T) {
	s := newSim(4)
	f := newFlow(t, s, 30000, Profiles[0], tenGig(), ackWire())
	period, off := mono.Time(20*time.Millisecond), mono.Time(4*time.Millisecond)
	f.pause = func(now mono.Time) mono.Time {
		if now%period < off {
			return now - now%period + off
		}
		return now
	}
	took := f.finish(time.Minute)
	ideal := time.Duration(f.want) * f.fwd.frame * 20 / 16
	t.Logf("%v, ideal %v: %v", took, ideal, f)
	if f.spurious > 0 || float64(took) > 1.15*float64(ideal) {
		t.Errorf("%v, ideal %v: %v", took, ideal, f)
	}
}

// A path that goes dark is probed, and carries on when it comes back.
func TestPathDark(t *testing.T) {
	s := newSim(5)
	start := s.now
	f := newFlow(t, s, 10000, Profiles[0], tenGig(), ackWire())
	dark := func(now mono.Time) bool {
		d := now.Sub(start)
		return d > 10*time.Millisecond && d < 310*time.Millisecond
	}
	f.fwd.dark, f.back[0].dark = dark, dark
	s.run(300*time.Millisecond, f.done)
	if f.l.Probes() < 4 {
		t.Errorf("%d probes in 290 ms of darkness", f.l.Probes())
	}
	took := f.finish(time.Minute)
	t.Logf("%v %v", took, f)
	if took > 300*time.Millisecond {
		t.Errorf("took %v after the path came back", took)
	}
}

// The tail of a transfer is repaired by a probe, not by the coarse timeout.
func TestPathTail(t *testing.T) {
	for seed := uint64(1); seed <= 20; seed++ {
		s := newSim(seed)
		f := newFlow(t, s, 200, Profiles[0], tenGig(), ackWire())
		f.fwd.dark = func(mono.Time) bool { return len(f.fate) > 190 && len(f.fate) <= 200 }
		if took := f.finish(time.Minute); took > 8*time.Millisecond {
			t.Errorf("seed %d: took %v, %v", seed, took, f)
		}
	}
}

// Each seed draws its own faults; what finish and settle check must hold under all of them.
func TestPathMixedFaults(t *testing.T) {
	for seed := uint64(1); seed <= 40; seed++ {
		s := newSim(seed)
		p := Profiles[s.rng.IntN(2)]
		draw := func(most float64) float64 { return most * s.rng.Float64() * float64(s.rng.IntN(2)) }
		fwd, back := tenGig(), ackWire()
		for _, w := range []*wire{fwd, back} {
			w.delay = time.Duration(s.rng.IntN(2_000_000))
			w.loss, w.dup, w.reorder = draw(0.3), draw(0.5), draw(0.5)
			w.late = time.Duration(s.rng.IntN(10_000_000))
		}
		fwd.queue = s.rng.IntN(2) * (20 + s.rng.IntN(500))
		f := newFlow(t, s, 3000, p, fwd, back)
		f.finish(5 * time.Minute)
		if !p.Acks.Exact && f.spuriousShare() > 0.1 {
			t.Errorf("seed %d: %+v %+v: %v", seed, *fwd, *back, f)
		}
	}
}
