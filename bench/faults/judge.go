package faults

import (
	"math"
	"slices"
	"strings"
	"time"

	"multiedge/bench/report"
)

// lossFloor is the share of the clean goodput that must remain when a share p of the frames is lost. It is 0 where
// operations must only complete.
func lossFloor(p float64) float64 {
	switch {
	case p <= 0.001:
		return 0.9
	case p <= 0.01:
		return 0.7
	case p <= 0.05:
		return 0.4
	}
	return 0
}

// framesMost is the most frames that may be sent when a share p of the frames is lost, as a multiple of the fewest that
// could carry the payload.
func framesMost(p float64) float64 { return 1.3 / (1 - p) }

// stallMost is the longest time without a completion when one of several links goes black: three probe time-outs, at
// least 200 ms.
func stallMost(srtt, ackDelay time.Duration) time.Duration {
	return max(3*(2*srtt+ackDelay), 200*time.Millisecond)
}

// survivors is the share of clean goodput that must remain when one of k links is black.
func survivors(k int) float64 { return 0.9 * float64(k-1) / float64(k) }

// slope is the least-squares slope of y over x, in y per x, and its standard error; both are 0 for fewer than three
// points.
func slope(x, y []float64) (b, deviation float64) {
	n := float64(len(x))
	if len(x) < 3 {
		return 0, 0
	}
	var sx, sy, sxx, sxy float64
	for i := range x {
		sx, sy = sx+x[i], sy+y[i]
		sxx, sxy = sxx+x[i]*x[i], sxy+x[i]*y[i]
	}
	d := n*sxx - sx*sx
	if math.Abs(d) < 1e-12 {
		return 0, 0
	}
	b = (n*sxy - sx*sy) / d
	var rest float64 // sum of the squared residuals
	for i := range x {
		off := y[i] - sy/n - b*(x[i]-sx/n)
		rest += off * off
	}
	return b, math.Sqrt(rest / (n - 2) * n / d)
}

// less subtracts counters, name by name. A counter that went backwards, as after a restart, counts from zero.
func less(now, was map[string]uint64) map[string]uint64 {
	out := map[string]uint64{}
	for k, v := range now {
		if v >= was[k] {
			v -= was[k]
		}
		out[k] = v
	}
	return out
}

// rejected is the number of frames that the daemon rejected for their content, summed over its counters.
func rejected(c map[string]uint64) (n uint64) {
	for k, v := range c {
		if strings.HasPrefix(k, "rejected_") && k != "rejected_no_room" {
			n += v
		}
	}
	return n
}

// turnsJudged is the number of turns for a figure of speed that is judged. With one turn, other work of the machine in
// either window would decide.
const turnsJudged = 5

// turns are windows of a client without something and with it, alternately.
type turns struct{ clean, with []*Window }

// turn measures a client for a time d, calls begin, and measures it for as long again.
func (t *Trial) turn(c *agent, x *turns, d time.Duration, begin func()) {
	clean := t.measure(c, "clean", d)
	begin()
	x.clean, x.with = append(x.clean, clean), append(x.with, t.measure(c, "fault", d))
}

func (x *turns) all() []*Window { return slices.Concat(x.clean, x.with) }

// ratio is the median over the turns of the goodput with, as a share of the goodput without.
func (x *turns) ratio() float64 {
	var v []float64
	for i, w := range x.with {
		v = append(v, w.rate()/max(x.clean[i].rate(), 1))
	}
	return report.Median(v)
}

// cleanRate is the goodput without, in bytes per second: the median of the turns.
func (x *turns) cleanRate() float64 { return medianOf(x.clean, (*Window).rate) }

// goesOn reports whether something completed in each turn with.
func (x *turns) goesOn() bool {
	return !slices.ContainsFunc(x.with, func(w *Window) bool { return w.Ops == 0 })
}

// stall and cleanStall are the longest time without a completion, with and without.
func (x *turns) stall() time.Duration { return longestStall(x.with) }

func (x *turns) cleanStall() time.Duration { return longestStall(x.clean) }

func longestStall(ws []*Window) (d time.Duration) {
	for _, w := range ws {
		d = max(d, w.Stall)
	}
	return d
}

// p99 and cleanP99 are the time of the slowest hundredth of the operations, with and without: the median of the turns.
func (x *turns) p99() time.Duration { return medianP99(x.with) }

func (x *turns) cleanP99() time.Duration { return medianP99(x.clean) }

func medianP99(ws []*Window) time.Duration {
	return time.Duration(medianOf(ws, func(w *Window) float64 { return w.P99 }))
}

func medianOf(ws []*Window, of func(*Window) float64) float64 {
	var v []float64
	for _, w := range ws {
		v = append(v, of(w))
	}
	return report.Median(v)
}
