// Package hist counts durations in exponential buckets: plain words that one thread writes. The buckets are those of
// Prometheus' native histograms, so that a scrape can show them both as such and, sums of them, as classic ones.
package hist

import (
	"fmt"
	"math"
	"time"
)

// Bounds are powers of two in seconds, each with three more between it and the next: 2^(k/4), which is Schema 2.
const (
	Schema    = 2
	PerOctave = 1 << Schema
	MinExp    = -20 // bucket 0 has all up to 2^-20 s, about 1 us
	maxExp    = 34  // 2^34 s is more than any Duration: nothing is beyond the last bucket
	Buckets   = 1 + (maxExp-MinExp)*PerOctave
)

// Histogram is how many durations fell into each bucket. Bucket i > 0 has those above 2^(MinExp+(i-1)/PerOctave)
// seconds and up to 2^(MinExp+i/PerOctave), that included. The zero value is empty.
type Histogram struct {
	Counts [Buckets]uint64
	Sum    uint64 // nanoseconds; it wraps after 584 years, those of simultaneous things added
}

// Observe counts one duration. Negative ones count as 0.
func (h *Histogram) Observe(d time.Duration) {
	h.Counts[bucket(d)]++
	h.Sum += uint64(max(d, 0))
}

// Bound is the longest duration of bucket i, in seconds.
func Bound(i int) float64 { return math.Exp2(MinExp + float64(i)/PerOctave) }

// Add adds what o counted.
func (h *Histogram) Add(o *Histogram) {
	for i, n := range o.Counts {
		h.Counts[i] += n
	}
	h.Sum += o.Sum
}

// Count returns how many durations were counted.
func (h *Histogram) Count() (n uint64) {
	for _, c := range h.Counts {
		n += c
	}
	return n
}

// String says in short what was counted; most of the buckets are empty.
func (h Histogram) String() string { return fmt.Sprintf("%d in %v", h.Count(), time.Duration(h.Sum)) }

// shortest is the longest duration of bucket 0.
const shortest = time.Second >> -MinExp

// Parts of a float64.
const (
	mantissaBits = 52
	mantissaMask = 1<<mantissaBits - 1
	exponentBias = 1023
)

// bends are the mantissas of 2^(1/4), 2^(2/4), 2^(3/4) and 2. Between two powers of two the logarithm is above the
// straight line, but by less than a quarter: what is in the n-th quarter of the line is in the n-th of the logarithm up
// to bends[n], and in the next one beyond.
var bends = [PerOctave]uint64{0x306fe0a31b715, 0x6a09e667f3bcd, 0xae89f995ad3ad, 1 << mantissaBits}

// bucket returns the number of the bucket of d: exponent and first bits of the mantissa of d in seconds, corrected by
// bends. Upper bounds are included, hence the 1 that is taken off. Below 2^19 s, six days, rounding to a float64 moves
// no whole number of nanoseconds across a bound. A comparison by the sign of a difference is no branch, which would be
// mispredicted when durations are mixed.
func bucket(d time.Duration) int {
	if d <= shortest {
		return 0
	}
	b := math.Float64bits(float64(d)*1e-9) - 1
	i := b >> (mantissaBits - Schema)
	beyond := (bends[i%PerOctave] - 1 - b&mantissaMask) >> 63
	return int(i+beyond) + 1 - (exponentBias+MinExp)*PerOctave
}
