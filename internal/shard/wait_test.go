package shard

import (
	"testing"
	"time"
)

// mostWait is how long any single step of a test may take on a loaded machine. Nothing waits that long when it works.
const mostWait = 30 * time.Second

// waitFor polls a condition that no channel announces.
func waitFor(t testing.TB, what string, within time.Duration, ok func() bool) {
	t.Helper()
	for start := time.Now(); !ok(); time.Sleep(time.Millisecond) {
		if time.Since(start) > within {
			t.Fatalf("%s: not within %v", what, within)
		}
	}
}
