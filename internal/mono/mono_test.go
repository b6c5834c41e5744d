package mono

import (
	"testing"
	"time"
)

// TestTimesAreNoAddresses fails if a time could be the address of memory: Go's collector would look it up.
func TestTimesAreNoAddresses(t *testing.T) {
	if now := Now(); now < 1<<48 {
		t.Errorf("now is %#x, which could be an address", int64(now))
	}
}

// TestNowIsMonotonic fails if so early an origin has cost the clock its monotonic reading.
func TestNowIsMonotonic(t *testing.T) {
	before := Now()
	if origin == origin.Round(0) {
		t.Error("the origin has no monotonic reading: settings of the wall clock would move Now")
	}
	if Never.Add(time.Second) != Never || before.Add(time.Second) != before+1e9 {
		t.Error("Add is wrong")
	}
}
