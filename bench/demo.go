package bench

import (
	"time"

	"multiedge/bench/report"
	"multiedge/internal/lab"
)

// Demo returns the cluster and the measurements of the demonstration: the paper's three tests over a range of sizes on two links with
// jumbo frames, every byte checked, in well under a minute.
func Demo() (ClusterSpec, []Plan) {
	cluster := ClusterSpec{Lab: lab.Spec{Hosts: 2, Links: 2, MTU: 9000}, Pin: true}
	var plans []Plan
	for _, test := range []string{report.OneWay, report.TwoWay, report.PingPong} {
		plans = append(plans, Plan{Test: test, Sizes: demoSizes, Duration: 900 * time.Millisecond, Integrity: true, Seed: 1, Region: demoRegion})
	}
	return cluster, plans
}

var demoSizes = []int{8, 64, 512, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20}

// demoRegion is larger than caches, yet quickly filled with patterns before each measurement.
const demoRegion = 64 << 20
