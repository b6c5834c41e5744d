package bench

import (
	"cmp"
	"context"
	"time"

	"multiedge/bench/kit"
	"multiedge/bench/proc"
	"multiedge/bench/report"
	"multiedge/bench/workload"
)

// shardReading is what both daemons and the processes of a measurement have done up to a moment.
type shardReading struct {
	at      time.Time
	busy    float64 // seconds of all processors
	daemons [2]*workload.Reading
	used    [2]proc.Usage // of the benchmark's processes, by host
}

// readShards reads, waits and reads again.
func (c *Cluster) readShards(ctx context.Context, w *kit.Crew, pairs int, d time.Duration) *report.Row {
	before := c.readAll(ctx, w, pairs)
	pass(ctx, w, d)
	after := c.readAll(ctx, w, pairs)
	return after.since(before)
}

func (c *Cluster) readAll(ctx context.Context, w *kit.Crew, pairs int) *shardReading {
	r := &shardReading{at: time.Now(), busy: report.BusySeconds()}
	for host := range r.daemons {
		r.daemons[host] = workload.ReadDaemon(ctx, c.Socket(host))
	}
	for i := range 2 * pairs {
		host := 1 // servers come first
		if i >= pairs {
			host = 0
		}
		r.used[host] = proc.Sum(r.used[host], kit.Get(proc.Of(w.Process(i).Pid())))
	}
	return r
}

// hosts names the ends of ShardLoad.
var hosts = [2]string{"client", "server"}

// since returns the row of what happened from o to r. Bytes are what arrived at the server; finishShards knows more.
func (r *shardReading) since(o *shardReading) *report.Row {
	info, shards := &r.daemons[0].Info, r.daemons[0].Status.Shards
	row := &report.Row{
		Transport: report.TransportEdge, Links: info.Links,
		Setup: report.Setup{Attach: "daemon", Scheduler: info.Scheduler, Security: info.Security,
			Checksum: info.Checksum, Poll: info.Poll, Shards: len(shards)},
		Seconds: r.at.Sub(o.at).Seconds(), LatencyKind: report.LatencyCompletion,
	}
	if len(shards) > 0 {
		row.Receivers = shards[0].Receivers
	}
	var ends [2]workload.Counted
	for h := range ends {
		ends[h] = r.daemons[h].Since(o.daemons[h]).Counted
		used := proc.Since(r.used[h], o.used[h])
		ends[h].CPU.ProcessUser, ends[h].CPU.ProcessSystem = used.User, used.System
		row.Dropped += ends[h].Dropped
		now, then := r.daemons[h].Status.Shards, o.daemons[h].Status.Shards
		for i := range min(len(now), len(then)) {
			a, b := &now[i], &then[i]
			row.ShardLoad = append(row.ShardLoad, report.ShardLoad{
				Host: hosts[h], Shard: i, CPU: max(0,
					a.CPUUserSeconds+a.CPUSystemSeconds-b.CPUUserSeconds-b.CPUSystemSeconds),
				ReceiversCPU:    max(0, a.CPUReceivers-b.CPUReceivers),
				FramesReceived:  a.Counters["frames_received"] - b.Counters["frames_received"],
				PayloadReceived: a.Counters["payload_received"] - b.Counters["payload_received"],
			})
		}
	}
	row.CPU = report.Ends(ends[0].CPU, ends[1].CPU)
	row.OtherCPU = max(0, r.busy-o.busy-row.CPU.Total)
	row.Client, row.Server = &ends[0].Counters, &ends[1].Counters
	row.Counters = proc.Sum(ends[0].Counters, ends[1].Counters)
	return row
}

// finishShards fills in what follows from the test: what arrived counts, at the server, with reads at the client, and
// in two-way at both.
func (c *Cluster) finishShards(row *report.Row) {
	row.LinkRates, row.MTU = c.Rates(), cmp.Or(c.spec.Lab.MTU, 9000)
	for _, s := range row.ShardLoad {
		if row.Bidirectional || s.Host == hosts[1] != (row.Test == report.Read) {
			row.Bytes += s.PayloadReceived
		}
	}
	row.Operations = row.Bytes / uint64(max(row.MessageBytes, 1))
	row.Rated()
}
