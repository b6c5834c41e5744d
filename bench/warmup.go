package bench

import (
	"time"

	"multiedge/bench/workload"
)

// Warmup is how long a series runs before what counts: congestion windows open, pages and code become warm.
func Warmup(specs []workload.Spec) time.Duration {
	if len(specs) == 0 || specs[0].Count > 0 {
		return 0 // a number of messages was asked for, so that many are sent
	}
	return warmup(specs[0].Duration)
}

// warmup is how long work of a duration is done before what counts, by every transport.
func warmup(d time.Duration) time.Duration { return min(200*time.Millisecond, d/4) }
