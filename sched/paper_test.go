package sched

import (
	"testing"
)

// line is a link of the simulation: frames leave it in order, one per interval, and are acknowledged a round trip
// later; window limits what is outstanding.
type line struct {
	interval, rtt float64 // microseconds
	window        int
	free          float64
	acks          []float64 // times at which outstanding frames are acknowledged
}

const frameBytes = 8192

// throughput sends frames for a while over lines, all of which have work all the time, and returns the sum over the sum
// of the rates.
func throughput(s Scheduler, lines []*line, total float64) float64 {
	live := uint64(1)<<len(lines) - 1
	now, sent, rate := 0.0, 0, 0.0
	for _, l := range lines {
		rate += 1 / l.interval
	}
	for now < total {
		var room uint64
		for i, l := range lines {
			for len(l.acks) > 0 && l.acks[0] <= now {
				l.acks = l.acks[1:]
				s.Done(i, frameBytes)
			}
			if len(l.acks) < l.window {
				room |= 1 << i
			}
		}
		if i, ok := s.Pick(live, room); ok {
			l := lines[i]
			l.free = max(l.free, now) + l.interval
			l.acks = append(l.acks, l.free+l.rtt)
			s.Sent(i, frameBytes)
			sent++
			continue
		}
		next := total
		for _, l := range lines {
			if len(l.acks) > 0 {
				next = min(next, l.acks[0])
			}
		}
		now = next
	}
	return float64(sent) / (rate * total)
}

// TestFigure35 is the paper's section 3.2.5: one link of 10 Gbit/s and four of 1 Gbit/s.
func TestFigure35(t *testing.T) {
	speeds := []float64{10, 1, 1, 1, 1}
	for _, c := range []struct {
		name     string
		weighted bool
		least    float64
		most     float64
	}{
		{"srr", true, 5.0/14 - 0.02, 5.0/14 + 0.02}, // five times the slowest
		{"wsrr", false, 0, 5.0/14 + 0.02},           // without weights it is srr
		{"wsrr", true, 0.93, 1.01},
		{"wd", true, 0.93, 1.01},
		{"adaptive", false, 0.96, 1.01}, // and this one knows nothing
	} {
		for _, window := range []int{24, 64, 192} {
			s := create(t, c.name)
			var lines []*line
			for i, gbit := range speeds {
				lines = append(lines, &line{interval: frameBytes * 8 / 1000 / gbit, rtt: 60, window: window})
				if c.weighted {
					s.SetWeight(i, gbit)
				}
			}
			got := throughput(s, lines, 500_000)
			t.Logf("%s, weights %v, window %d: %.3f of the sum", c.name, c.weighted, window, got)
			if got < c.least || got > c.most {
				t.Errorf("%s, weights %v, window %d: %.3f of the sum, want %.2f to %.2f", c.name, c.weighted, window,
					got, c.least, c.most)
			}
		}
	}
}

// Equal links share equally whatever the scheduler, and wrong weights cost the static schedulers but not adaptive.
func TestEqualAndMisweighted(t *testing.T) {
	for _, name := range Names() {
		for _, wrong := range []bool{false, true} {
			s := create(t, name)
			var lines []*line
			for i := range 4 {
				lines = append(lines, &line{interval: 6.5, rtt: 60, window: 64})
				if wrong {
					s.SetWeight(i, []float64{10, 1, 1, 1}[i])
				}
			}
			got := throughput(s, lines, 200_000)
			t.Logf("%s, wrong weights %v: %.3f", name, wrong, got)
			if least := 0.97; got < least && (!wrong || name == "srr" || name == "adaptive") {
				t.Errorf("%s, wrong weights %v: %.3f of the sum", name, wrong, got)
			}
		}
	}
}
