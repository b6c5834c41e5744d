package faults

import (
	"slices"
	"time"

	"multiedge/bench/report"
)

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

// stall is the longest time without a completion in the windows with.
func (x *turns) stall() (d time.Duration) {
	for _, w := range x.with {
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
