package bench

import (
	"cmp"
	"context"
	"encoding/json"
	"time"

	"multiedge/bench/kit"
	"multiedge/bench/proc"
	"multiedge/bench/report"
	"multiedge/bench/workload"
	"multiedge/internal/inspect"
	"multiedge/internal/ipc"
)

// shardReading is what both daemons and the processes of a measurement have done up to a moment.
type shardReading struct {
	at     time.Time
	busy   float64 // seconds of all processors
	status [2]inspect.Status
	links  [2][]inspect.LinkStatus
	used   [2]proc.Usage // of the benchmark's processes, by host
}

// readShards reads, waits and reads again.
func (c *Cluster) readShards(ctx context.Context, w *crowd, d time.Duration) *report.Row {
	before := c.readAll(ctx, w)
	w.pass(ctx, d)
	after := c.readAll(ctx, w)
	return after.since(before)
}

func (c *Cluster) readAll(ctx context.Context, w *crowd) *shardReading {
	r := &shardReading{at: time.Now(), busy: report.BusySeconds()}
	for host := range r.status {
		c.ask(ctx, host, "status", &r.status[host])
		c.ask(ctx, host, "link", &r.links[host])
	}
	for i, k := range w.children {
		host := 1 // servers come first
		if i >= len(w.children)/2 {
			host = 0
		}
		used := kit.Get(proc.Of(k.Pid()))
		r.used[host] = r.used[host].Add(used)
	}
	return r
}

// ask gets one part of the status of a host's daemon.
func (c *Cluster) ask(ctx context.Context, host int, what string, into any) {
	body := kit.Get(ipc.Ask(ctx, c.Socket(host), ipc.Message{Kind: ipc.KindStatus, What: what}))
	kit.Check(json.Unmarshal(body, into))
}

// hosts names the ends of ShardLoad.
var hosts = [2]string{"client", "server"}

// since returns the row of what happened from o to r. Bytes are what arrived at the server; finishShards knows more.
func (r *shardReading) since(o *shardReading) *report.Row {
	st := &r.status[0]
	row := &report.Row{
		Transport: report.TransportEdge, Links: st.LinksUp,
		Setup: report.Setup{Attach: "daemon", Scheduler: st.Scheduler, Security: st.Security,
			Checksum: st.Checksum, Poll: st.Poll, Shards: len(st.Shards)},
		Seconds: r.at.Sub(o.at).Seconds(), LatencyKind: report.LatencyCompletion,
	}
	if len(st.Shards) > 0 {
		row.Receivers = st.Shards[0].Receivers
	}
	var ends [2]report.End
	var counters [2]report.Counters
	for h := range r.status {
		now, then := &r.status[h], &o.status[h]
		used := r.used[h].Since(o.used[h])
		ends[h] = report.End{
			ProcessUser: used.User, ProcessSystem: used.System,
			DaemonUser:   now.CPUUserSeconds - then.CPUUserSeconds,
			DaemonSystem: now.CPUSystemSeconds - then.CPUSystemSeconds,
		}
		counters[h] = workload.CountersOf(now.Counters).Sub(workload.CountersOf(then.Counters))
		for i := range min(len(now.Shards), len(then.Shards)) {
			a, b := &now.Shards[i], &then.Shards[i]
			row.ShardLoad = append(row.ShardLoad, report.ShardLoad{
				Host: hosts[h], Shard: i, CPU: max(0,
					a.CPUUserSeconds+a.CPUSystemSeconds-b.CPUUserSeconds-b.CPUSystemSeconds),
				ReceiversCPU:    max(0, a.CPUReceivers-b.CPUReceivers),
				FramesReceived:  a.Counters["frames_received"] - b.Counters["frames_received"],
				PayloadReceived: a.Counters["payload_received"] - b.Counters["payload_received"],
			})
		}
		for i := range min(len(r.links[h]), len(o.links[h])) {
			row.Dropped += r.links[h][i].Kernel["dropped"] - o.links[h][i].Kernel["dropped"]
		}
	}
	row.CPU = report.Ends(ends[0], ends[1])
	row.OtherCPU = max(0, r.busy-o.busy-row.CPU.Total)
	row.Client, row.Server, row.Counters = &counters[0], &counters[1], counters[0].Add(counters[1])
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
	if row.Seconds > 0 {
		row.Throughput, row.OperationsPerSecond = float64(row.Bytes)/row.Seconds, float64(row.Operations)/row.Seconds
	}
}
