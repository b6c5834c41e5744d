package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"multiedge/bench/kit"
	"multiedge/bench/report"
	"multiedge/bench/workload"
)

// ShardSetup is how many threads serve the links of each daemon.
type ShardSetup struct {
	Shards    int
	Receivers int // of each shard
}

// String is as in "2 shards + 1 receiver".
func (s ShardSetup) String() string { return report.Threads(s.Shards, s.Receivers) }

// ShardSweep compares numbers of shards: pairs of processes, one at each host and a connection between them, move data
// at the same time, and the daemons are read at the beginning and at the end of a time in which all pairs do.
type ShardSweep struct {
	Cluster ClusterSpec // its Shards and Receivers are what varies
	// of each pair; its Duration is the time that counts, Depth and Region are for all pairs together
	Plan   Plan
	Tests  []string // report.OneWay, report.TwoWay, report.Read
	Setups []ShardSetup
	Pairs  []int
	Rounds int

	Row  func(r *report.Row)
	Show func(step int, what string) // before each
}

// Steps returns how many measurements there are.
func (w *ShardSweep) Steps() int { return w.Rounds * len(w.Setups) * len(w.Tests) * len(w.Pairs) }

// pairsTime bounds how long half of the processes may take to begin.
const pairsTime = 20 * time.Second

// settle is how long pairs run before what counts: congestion windows open.
const settle = 200 * time.Millisecond

// Run measures everything once in each round. Each round begins with another setup, and has hosts of its own for each.
func (w *ShardSweep) Run(ctx context.Context) error {
	step := 0
	return kit.Try(func() {
		inTurns(w.Rounds, w.Setups, func(_ int, setup ShardSetup) {
			spec := w.Cluster
			spec.Shards, spec.Receivers = setup.Shards, setup.Receivers
			withCluster(ctx, spec, func(c *Cluster) {
				for _, test := range w.Tests {
					for _, pairs := range w.Pairs {
						what := fmt.Sprintf("%v, %d connections, %s", setup, pairs, test)
						w.Show(step, what)
						step++
						kit.Doing(func() { w.Row(w.measure(ctx, c, test, pairs)) }, "%s", what)
					}
				}
			})
		})
	})
}

// measure runs so many pairs.
func (w *ShardSweep) measure(ctx context.Context, c *Cluster, test string, pairs int) *report.Row {
	p := w.Plan
	p.Test = test
	spec := kit.Get(p.Specs())[0]
	spec.Depth = max(spec.Depth/pairs, leastDepth)
	spec.Batch = min(spec.Batch, spec.Depth)
	spec.Count, spec.Duration = 0, p.Duration+10*pairsTime // ended when all is measured
	region := max(p.region()/pairs, 2*spec.Size+64<<10)

	crowd := kit.NewCrew()
	defer crowd.Stop()
	c.crowd(ctx, crowd, pairs, region, []workload.Spec{spec})
	row := c.readShards(ctx, crowd, pairs, p.Duration)
	row.Test, row.MessageBytes, row.Bidirectional, row.QueueDepth, row.RegionBytes = test, spec.Size,
		test == report.TwoWay, spec.Depth*pairs, region
	row.Connections = pairs
	c.finishShards(row)
	return row
}

// crowd starts the servers and, when they are there, the clients of a measurement, and returns when every client has
// begun and the settling time is over.
func (c *Cluster) crowd(ctx context.Context, w *kit.Crew, pairs, region int, specs []workload.Spec) {
	service := func(i int) string { return fmt.Sprint("pair-", i) }
	for i := range pairs {
		w.Add("server", c.worker(1, &Job{Server: true, Region: region, Service: service(i)}, specs))
		w.AwaitStarted(ctx)
	}
	for i := range pairs {
		w.Add("client", c.worker(0, &Job{Region: region, Service: service(i), Peer: c.lab.Host(1).Name(), Specs: specs},
			specs))
	}
	within, cancel := context.WithTimeout(ctx, 2*pairsTime)
	defer cancel()
	for began := 0; began < pairs; {
		kit.Doing(func() {
			var e Event
			if said := w.Next(within); said.Into(&e) == nil && e.Begin {
				began++
			}
		}, "%d of %d connections are up", began, pairs)
	}
	pass(ctx, w, settle)
}

// pass lets time pass in which nobody may fail.
func pass(ctx context.Context, w *kit.Crew, d time.Duration) {
	within, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	var err error
	for err == nil {
		err = kit.Try(func() { w.Next(within) })
	}
	if !errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil {
		kit.Check(err)
	}
}
