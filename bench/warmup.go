package bench

import (
	"time"

	"multiedge/bench/workload"
)

// Warmup is how long a session runs before what counts: congestion windows open, pages and code become warm.
func Warmup(specs []workload.Spec) time.Duration {
	const most = 200 * time.Millisecond
	if len(specs) == 0 || specs[0].Count > 0 {
		return 0 // a number of messages was asked for, so that many are sent
	}
	return min(most, specs[0].Duration/4)
}
