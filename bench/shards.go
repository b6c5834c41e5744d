package bench

import (
	"context"
	"fmt"
	"sync"
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

	crowd := &crowd{failed: make(chan error, 2*pairs), began: make(chan struct{}, pairs)}
	defer crowd.stop()
	crowd.start(ctx, c, pairs, region, []workload.Spec{spec})
	crowd.wait(ctx, pairs)
	row := c.readShards(ctx, crowd, p.Duration)
	row.Test, row.MessageBytes, row.Bidirectional, row.QueueDepth, row.RegionBytes = test, spec.Size,
		test == report.TwoWay, spec.Depth*pairs, region
	row.Connections = pairs
	c.finishShards(row)
	return row
}

// crowd are the processes of a measurement.
type crowd struct {
	children []*kit.Process
	began    chan struct{} // one for each client whose measurement began
	failed   chan error
}

// start starts the servers and, when they are there, the clients.
func (w *crowd) start(ctx context.Context, c *Cluster, pairs, region int, specs []workload.Spec) {
	service := func(i int) string { return fmt.Sprint("pair-", i) }
	for i := range pairs {
		server := c.worker(1, &Job{Server: true, Region: region, Service: service(i)}, specs)
		w.children = append(w.children, server)
		kit.Checkf(server.AwaitStarted(ctx), "server")
		go w.follow("server", server)
	}
	for i := range pairs {
		client := c.worker(0, &Job{Region: region, Service: service(i), Peer: c.lab.Host(1).Name(), Specs: specs},
			specs)
		w.children = append(w.children, client)
		go w.follow("client", client)
	}
}

// follow reads what a process reports until it ends.
func (w *crowd) follow(what string, k *kit.Process) {
	for said := range k.Events {
		var e Event
		switch {
		case said.Error != "":
			w.fail(fmt.Errorf("%s: %s", what, said.Error))
		case said.Into(&e) == nil && e.Begin:
			w.began <- struct{}{}
		}
	}
	w.fail(fmt.Errorf("%s: %w", what, k.Failure()))
}

// fail reports the first failures; more do not matter.
func (w *crowd) fail(err error) {
	select {
	case w.failed <- err:
	default:
	}
}

// wait returns when every client has begun and the settling time is over.
func (w *crowd) wait(ctx context.Context, clients int) {
	late := time.After(2 * pairsTime)
	for range clients {
		select {
		case <-w.began:
		case err := <-w.failed:
			kit.Check(err)
		case <-ctx.Done():
			kit.Check(ctx.Err())
			return
		case <-late:
			kit.Fail("not all of %d connections came up within %v", clients, 2*pairsTime)
		}
	}
	w.pass(ctx, settle)
}

// pass lets time pass in which nothing may fail.
func (w *crowd) pass(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
		return
	case err := <-w.failed:
		kit.Check(err)
	case <-ctx.Done():
		kit.Check(ctx.Err())
		return
	}
}

// stop ends all processes at once.
func (w *crowd) stop() {
	var all sync.WaitGroup
	for _, k := range w.children {
		all.Go(k.Stop)
	}
	all.Wait()
}
