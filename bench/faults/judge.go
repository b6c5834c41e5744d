package faults

import (
	"math"
	"strings"
	"time"
)

// lossFloor is the share of clean goodput that must remain at a share of frames lost; 0 where only completion is asked
// for.
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

// framesMost is how many frames may be sent for the same payload at a share p of frames lost, as a multiple of the
// least.
func framesMost(p float64) float64 { return 1.3 / (1 - p) }

// stallMost is how long nothing may complete when a link of several goes black: three probe time-outs or 200 ms.
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
	var rest float64 // squares of what the line does not explain
	for i := range x {
		off := y[i] - sy/n - b*(x[i]-sx/n)
		rest += off * off
	}
	return b, math.Sqrt(rest / (n - 2) * n / d)
}

// less subtracts counters, name by name; what went backwards, as after a restart, counts from zero.
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

// rejected is how many frames were turned away for what they held, whatever counters the daemon has for it.
func rejected(c map[string]uint64) (n uint64) {
	for k, v := range c {
		if strings.HasPrefix(k, "rejected_") && k != "rejected_no_room" {
			n += v
		}
	}
	return n
}
