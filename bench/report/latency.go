package report

import (
	"math"
	"slices"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Latency summarises a distribution, in nanoseconds. Count 0: nothing was measured.
type Latency struct {
	Count  uint64  `json:"count"`
	Min    float64 `json:"min"`
	Mean   float64 `json:"mean"`
	Stddev float64 `json:"stddev"`
	P50    float64 `json:"p50"`
	P90    float64 `json:"p90"`
	P99    float64 `json:"p99"`
	P999   float64 `json:"p99_9"`
	P9999  float64 `json:"p99_99"`
	Max    float64 `json:"max"`
}

// Recorder collects durations in a histogram of three significant digits. Recording allocates nothing.
type Recorder struct {
	h *hdrhistogram.Histogram
}

// The range of a Recorder. Longer durations count as recordMax, so that one stall is seen and not lost.
const (
	recordMin = 1
	recordMax = int64(100 * time.Second)
)

// NewRecorder returns an empty recorder. Its memory, about 400 KiB, is touched now and not while something is measured.
func NewRecorder() *Recorder {
	r := &Recorder{h: hdrhistogram.New(recordMin, recordMax, 3)}
	r.Reset()
	return r
}

// Recorders returns so many of them.
func Recorders(n int) (all []*Recorder) {
	for range n {
		all = append(all, NewRecorder())
	}
	return all
}

// Summaries stores the distributions of recorders, one after the other.
func Summaries(all []*Recorder, to ...*Latency) {
	for i, l := range to {
		*l = all[i].Summary(1)
	}
}

// Record adds one duration.
func (r *Recorder) Record(d time.Duration) {
	// The value is clamped into range, so RecordValue cannot fail.
	_ = r.h.RecordValue(min(max(int64(d), recordMin), recordMax))
}

// Reset forgets everything recorded.
func (r *Recorder) Reset() { r.h.Reset() }

// Count returns how many durations were recorded.
func (r *Recorder) Count() uint64 { return uint64(r.h.TotalCount()) }

// Summary returns the distribution with each value multiplied by scale: 0.5 turns round trips into one-way times.
func (r *Recorder) Summary(scale float64) Latency {
	if r.h.TotalCount() == 0 {
		return Latency{}
	}
	q := func(p float64) float64 { return float64(r.h.ValueAtQuantile(p)) * scale }
	return Latency{
		Count: r.Count(), Min: float64(r.h.Min()) * scale, Mean: r.h.Mean() * scale, Stddev: r.h.StdDev() * scale,
		P50: q(50), P90: q(90), P99: q(99), P999: q(99.9), P9999: q(99.99), Max: float64(r.h.Max()) * scale,
	}
}

// Least returns the nanoseconds of a call of f: the least mean of many batches of n, since other programs only add.
func Least(batches, n int, f func(i int)) float64 {
	best := time.Duration(math.MaxInt64)
	for range batches {
		start := time.Now()
		for i := range n {
			f(i)
		}
		best = min(best, time.Since(start))
	}
	return float64(best) / float64(n)
}

// Spread sums values up: how many there are, the one in the middle, and their range.
type Spread struct {
	Rounds           int // 0: nothing was measured
	Median, Min, Max float64
}

// SpreadOf returns the Spread of v.
func SpreadOf(v []float64) Spread {
	if len(v) == 0 {
		return Spread{}
	}
	return Spread{len(v), Median(v), slices.Min(v), slices.Max(v)}
}

// Median returns the value in the middle of v, of an even number the mean of the two there; 0 of none. v stays as it
// is.
func Median[T float64 | time.Duration](v []T) T {
	if len(v) == 0 {
		return 0
	}
	v = slices.Sorted(slices.Values(v))
	n := len(v)
	return (v[(n-1)/2] + v[n/2]) / 2
}
