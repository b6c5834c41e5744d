package faults

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"multiedge/bench/proc"
	"multiedge/edge"
)

// Kinds of diallers besides the one of set-up under faults.
const (
	dialHold  = "hold"  // all connections stay open
	dialCycle = "cycle" // each connection is closed as soon as it is open
)

// perConnMost bounds the resident memory of a daemon for a connection that is not used.
const perConnMost = 8 << 10

// cycleMost bounds how much a daemon grows while connections are opened and closed. A daemon that leaks 250 bytes per
// connection grows by more.
const cycleMost = 4 << 20

func loadScenarios() []Scenario {
	return []Scenario{
		{Name: "10,000 connections between two nodes", Group: Load,
			Criteria: "each daemon's resident memory grows by at most 8 KiB per connection", Set: cable, Run: holding},
		{Name: "connections opened and closed", Group: Load, Short: true, Set: cable,
			Criteria: "no connection fails; each daemon's resident memory grows by at most 4 MiB",
			Run:      cycling},
		pendingScenario(),
	}
}

// crowd opens idle connections. The function that it returns closes those that it kept open.
func (c *client) crowd(ctx context.Context, r *Result) func() {
	hello, err := json.Marshal(greeting{ID: c.w.job.Name})
	var open []*edge.Conn
	for i := 0; i < c.w.job.Count && err == nil && ctx.Err() == nil; i++ {
		began := time.Now()
		attempt, cancel := context.WithTimeout(ctx, dialTime)
		conn, e := c.dev.Dial(attempt, c.w.job.Peer, c.w.job.Service, edge.Data(hello))
		if e == nil && c.w.job.Kind == dialCycle {
			if e = conn.CloseContext(attempt); isEnd(e) {
				e = nil
			}
		} else if e == nil {
			open = append(open, conn)
		}
		cancel()
		r.count(began, e)
	}
	return func() {
		for _, conn := range open {
			conn.Close()
		}
	}
}

// crowds has a process of host 0 open connections. It passes the result on while the process still holds them.
func (t *Trial) crowds(kind string, n int, then func(*Result)) {
	a := t.spawn(0, Job{Role: RoleDial, Name: kind, Kind: kind, Peer: "host1", Service: "store", Count: n})
	r := a.result()
	t.injected("connections", r.Done)
	t.row.Measured["connections per second"] = float64(r.Done) / max(r.Seconds, 1e-9)
	t.ms("slowest connection", r.Slowest)
	t.check("no connection fails", int(r.Done) == n && r.Failed == 0, "%d of %d, failed: %s", r.Done, n,
		counts(r.Types))
	then(r)
	a.quit()
}

func holding(t *Trial) {
	c := t.pair(MixSmall, 2, 8)
	before := t.status(1)
	var was [2]uint64
	for h := range was {
		was[h] = proc.Resident(t.cluster.Daemon(h).Pid())
	}
	t.crowds(dialHold, t.many(10000, 1000), func(r *Result) {
		for h := range was {
			per := (float64(proc.Resident(t.cluster.Daemon(h).Pid())) - float64(was[h])) / float64(max(r.Done, 1))
			t.row.Measured[fmt.Sprintf("bytes per connection, host%d", h)] = per
			t.check(fmt.Sprintf("memory per connection in host%d", h), per <= perConnMost, "%.0f bytes", per)
		}
		n := uint64(t.status(1).Connections - before.Connections)
		t.counted("connections at the peer", n)
		t.agrees("connections at the peer", n, r.Done, 0)
		t.goesOn(c)
	})
}

// goesOnTime is the time within which an operation completes even on a busy machine.
const goesOnTime = 2 * time.Second

// goesOn judges that a client works and that none of its operations has failed since its last window.
func (t *Trial) goesOn(c *agent) {
	so := t.mark(c, "so far")
	w, took, ok := t.until(c, "goes on", goesOnTime, func(w *Window) bool { return w.Ops > 0 })
	t.unfailed(so, w)
	t.check("the other client goes on", ok, "nothing completes for %v", took)
}

func cycling(t *Trial) {
	c := t.pair(MixSmall, 2, 8)
	was := t.scrape(1)
	var before [2]uint64
	for h := range before {
		before[h] = proc.Resident(t.cluster.Daemon(h).Pid())
	}
	t.crowds(dialCycle, t.many(20000, 300), func(r *Result) {
		for h, b := range before {
			grown := int64(proc.Resident(t.cluster.Daemon(h).Pid())) - int64(b)
			t.row.Measured[fmt.Sprintf("resident MiB grown, host%d", h)] = float64(grown) / (1 << 20)
			t.check(fmt.Sprintf("memory of host%d does not grow", h), grown <= cycleMost, "%d bytes", grown)
		}
		m := t.scrape(1)
		n := uint64(m["edge_connections_opened_total"] - was["edge_connections_opened_total"])
		t.counted("connections opened at the peer", n)
		t.agrees("connections opened at the peer", n, r.Done, 0)
		t.goesOn(c)
	})
}
