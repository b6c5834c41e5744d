package report

import (
	"slices"
	"testing"
	"time"
)

func TestMedian(t *testing.T) {
	v := []time.Duration{9, 1, 5, 3}
	if got := Median(v); got != 4 || slices.IsSorted(v) {
		t.Errorf("median of four: %d, want the mean of 3 and 5; sorted: %v", got, v)
	}
	if Median([]float64{7, 1, 2}) != 2 || Median[float64](nil) != 0 {
		t.Error("median of three, or of none")
	}
}
