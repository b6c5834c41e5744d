package report

import (
	"slices"
	"time"
)

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
