package faults

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"multiedge/edge"
)

// Kinds of diallers besides the one of set-up under faults.
const (
	dialHold  = "hold"  // connections that are all kept open
	dialCycle = "cycle" // connections opened and closed at once
)

// perConnMost bounds the resident memory of a daemon for a connection that is not used.
const perConnMost = 8 << 10

func loadScenarios() []Scenario {
	return []Scenario{
		{Name: "10,000 connections between two nodes", Group: Load, Criteria: "U; memory per connection stated, at most 8 KiB in each daemon", Set: cable, Run: holding},
		{Name: "connections opened and closed", Group: Load, Criteria: "U; none fails; nothing grows", Short: true, Set: cable, Run: cycling},
	}
}

// crowd opens idle connections; the function it returns closes those it keeps.
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

// crowds has a process of host 0 open connections, and passes its result on while it still holds them.
func (t *Trial) crowds(ctx context.Context, kind string, n int, then func(*Result) error) error {
	if _, err := t.serve(ctx, 1, "store"); err != nil {
		return err
	}
	a, err := t.spawn(ctx, 0, Job{Role: RoleDial, Name: kind, Kind: kind, Peer: "host1", Service: "store", Count: n})
	if err != nil {
		return err
	}
	r, err := a.result(ctx)
	if err != nil {
		return err
	}
	t.injected("connections", r.Done)
	t.row.Measured["connections per second"] = float64(r.Done) / max(r.Seconds, 1e-9)
	t.ms("slowest connection", r.Slowest)
	t.check("none fails", int(r.Done) == n && r.Failed == 0, "%d of %d, failed: %s", r.Done, n, counts(r.Types))
	err = then(r)
	_, quitErr := a.quit()
	return errors.Join(err, quitErr)
}

func holding(ctx context.Context, t *Trial) error {
	var was [2]uint64
	for h := range was {
		was[h] = resident(t.cluster.Daemon(h).Pid())
	}
	return t.crowds(ctx, dialHold, t.many(10000, 1000), func(r *Result) error {
		for h := range was {
			per := (float64(resident(t.cluster.Daemon(h).Pid())) - float64(was[h])) / float64(max(r.Done, 1))
			t.row.Measured[fmt.Sprintf("bytes per connection, host%d", h)] = per
			t.check(fmt.Sprintf("memory per connection in host%d", h), per <= perConnMost, "%.0f bytes", per)
		}
		st, err := t.status(ctx, 1)
		t.counted("connections at the peer", uint64(st.Connections))
		t.agrees("connections at the peer", uint64(st.Connections), r.Done, 0)
		return err
	})
}

func cycling(ctx context.Context, t *Trial) error {
	return t.crowds(ctx, dialCycle, t.many(20000, 300), func(r *Result) error {
		m, err := t.scrape(ctx, 1)
		t.counted("connections opened at the peer", uint64(m["edge_connections_opened_total"]))
		t.agrees("connections opened at the peer", uint64(m["edge_connections_opened_total"]), r.Done, 0)
		return err
	})
}
