package faults

import (
	"context"
	"fmt"
	"time"
)

// tell counts what clients did.
func (s *soak) tell(w *Window) {
	s.counted("operations", w.Ops)
	s.counted("operations that failed, typed", total(w.Errors))
	s.counted("reconnects", w.Reconnects)
}

// sample takes the state of everything.
func (s *soak) sample(ctx context.Context, show func(*Sample)) error {
	x := Sample{Seconds: time.Since(s.start).Seconds()}
	if s.active != nil {
		x.Fault = s.active.name
	}
	for h := range x.Daemons {
		pid := s.cluster.Daemon(h).Pid()
		m, err := s.scrape(ctx, h)
		if err != nil {
			return err
		}
		x.Daemons[h] = DaemonSample{
			Resident: resident(pid), Descriptors: int(m["process_open_fds"]), Goroutines: int(m["go_goroutines"]), Pinned: uint64(m["edge_pinned_bytes"]),
			Starts: s.starts[h],
		}
	}
	for _, c := range s.clients {
		if c.killed {
			continue
		}
		w, err := s.mark(ctx, c, "sample")
		if err != nil {
			return err
		}
		if c == s.forward {
			x.P50, x.P99, x.Stall, x.Goodput, x.Ops, x.Errors = w.P50, w.P99, float64(w.Stall), w.rate(), w.Ops, w.Errors
		}
		s.tell(w)
	}
	s.samples = append(s.samples, x)
	show(&x)
	return nil
}

// slopes enters how resident memory grew over the second half, and judges that where it is long enough.
func (s *soak) slopes() {
	half := s.samples[len(s.samples)/2:]
	for h := range 2 {
		var x, y []float64
		for i := range half {
			x, y = append(x, half[i].Seconds/3600), append(y, float64(half[i].Daemons[h].Resident))
		}
		if len(y) == 0 {
			continue
		}
		share := slope(x, y) / y[0]
		s.row.Measured[fmt.Sprintf("resident memory of host%d %% per hour", h)] = 100 * share
		what := fmt.Sprintf("resident memory of host%d grows less than 1 %% per hour", h)
		if span := time.Duration((x[len(x)-1] - x[0]) * float64(time.Hour)); span < slopeSpan {
			s.skipped(what)
		} else {
			s.check(what, share < slopeMost, "%.2f %%", 100*share)
		}
	}
}
