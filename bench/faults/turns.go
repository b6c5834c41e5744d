package faults

import (
	"context"
	"slices"
	"time"
)

// turnsJudged is how many turns a figure of speed takes that is judged: with one, what else the machine does in either window decides.
const turnsJudged = 5

// turns are windows of a client without something and with it, by turns.
type turns struct{ clean, with []*Window }

// turn measures a client for a time d, begins something, and measures it for as long again.
func (t *Trial) turn(ctx context.Context, c *agent, x *turns, d time.Duration, begin func() error) error {
	clean, err := t.measure(ctx, c, "clean", d)
	if err != nil {
		return err
	}
	if err := begin(); err != nil {
		return err
	}
	with, err := t.measure(ctx, c, "fault", d)
	if err != nil {
		return err
	}
	x.clean, x.with = append(x.clean, clean), append(x.with, with)
	return nil
}

func (x *turns) all() []*Window { return slices.Concat(x.clean, x.with) }

// ratio is the goodput with as a share of the goodput without: the median of the turns.
func (x *turns) ratio() float64 {
	var v []float64
	for i, w := range x.with {
		v = append(v, w.rate()/max(x.clean[i].rate(), 1))
	}
	return median(v)
}

// cleanRate is the goodput without, in bytes per second: the median of the turns.
func (x *turns) cleanRate() float64 {
	var v []float64
	for _, w := range x.clean {
		v = append(v, w.rate())
	}
	return median(v)
}

// stall is the longest with.
func (x *turns) stall() (d time.Duration) {
	for _, w := range x.with {
		d = max(d, w.Stall)
	}
	return d
}

// p99 is the highest with.
func (x *turns) p99() (d time.Duration) {
	for _, w := range x.with {
		d = max(d, time.Duration(w.P99))
	}
	return d
}

// median of at least one value; of an even number, the lower of the two in the middle.
func median[T int64 | float64 | time.Duration](v []T) T {
	v = slices.Sorted(slices.Values(v))
	return v[(len(v)-1)/2]
}
