package faults

import (
	"context"
	"fmt"
	"time"

	"multiedge/bench/kit"
	"multiedge/edge"
	"multiedge/internal/lab"
)

// Set-up under faults: connections, spread over several sessions.
const (
	setupConns    = 50
	setupSessions = 5 // the dialling host's daemon is killed and started again between them
	setupTime     = 60 * time.Second
)

func setup(name string, f lab.Faults, short bool) Scenario {
	return Scenario{
		Name: name, Group: Network, Criteria: "50 of 50 connections are made within 60 s, in 5 sessions", Short: short,
		Run: func(t *Trial) {
			t.serve(1, "store")
			t.setFaults(f)
			sessions := t.many(setupSessions, 2)
			want, start, done, slowest := sessions*setupConns/setupSessions, time.Now(), 0, time.Duration(0)
			for i := range sessions {
				if time.Since(start) > setupTime {
					break
				}
				if i > 0 {
					t.killDaemon(0)
					t.startDaemon(0)
				}
				r := t.dial(fmt.Sprintf("d%d-", i), want/sessions)
				done += int(r.Done)
				slowest = max(slowest, r.Slowest)
				for k, n := range r.Types {
					t.counted("dials that failed: "+k, n)
				}
			}
			took := time.Since(start)
			l := t.labCounters()
			t.injected("lost", l.Lost)
			t.injected("corrupted", l.Corrupted)
			t.counted("connections", uint64(done))
			t.ms("slowest connection", slowest)
			t.ms("all", took)
			t.check("all connections within 60 s", done == want && took <= setupTime, "%d of %d in %v", done, want,
				took.Round(time.Millisecond))
			t.setFaults(lab.Faults{})
		},
	}
}

// dial makes a process of host 0 open so many connections. Each writes once and closes.
func (t *Trial) dial(name string, n int) *Result {
	a := t.spawn(0, Job{Role: RoleDial, Name: name, Peer: "host1", Service: "store", Count: n, Seed: t.seed,
		Mix: MixSmall, Depth: 1, Deadline: deadline(t.dead)})
	// it gives up after setupTime; the connections made by then are judged
	r := answer[*Result](a, result, setupTime+patience)
	for _, w := range r.Wrong {
		t.row.U[1].fail("%s", w)
	}
	t.verifyOf(a)
	a.quit()
	return r
}

// runDial makes connections, one after another, and tries each until it is up.
func runDial(ctx context.Context, w *worker) {
	dev := kit.Get(edge.Open(ctx, edge.Config{Socket: w.job.Socket}))
	defer dev.Close()
	w.emit(Event{Started: true})
	c := &client{w: w, tally: newTally(), dev: dev}
	r := Result{Types: map[string]uint64{}}
	start := time.Now()
	if w.job.Kind != "" {
		defer c.crowd(ctx, &r)()
	}
	for w.job.Kind == "" && r.Done < uint64(w.job.Count) && time.Since(start) < setupTime && ctx.Err() == nil {
		r.count(time.Now(), c.once(ctx))
	}
	r.Seconds = time.Since(start).Seconds()
	w.answer(result, &r)
	w.serve(ctx, nil)
}

// count records the outcome of an attempt to connect that started at began.
func (r *Result) count(began time.Time, err error) {
	if err == nil {
		r.Done++
		r.Slowest = max(r.Slowest, time.Since(began))
		return
	}
	r.Failed++
	name, ok := typeOf(err)
	if r.Types[name]++; !ok && len(r.Wrong) < maxDetails {
		r.Wrong = append(r.Wrong, "untyped error: "+err.Error())
	}
}

// once connects, writes once and closes in good order.
func (c *client) once(ctx context.Context) error {
	l, err := c.open(ctx)
	if err != nil {
		return err
	}
	defer c.handIn(l)
	ctx, cancel := context.WithTimeout(ctx, c.w.job.Deadline)
	defer cancel()
	w := edge.Work{Kind: edge.Write, Remote: l.remote, Inline: []byte("here"), RemoteOff: gap, Flags: edge.Notify}
	op, err := l.conn.Post(ctx, &w)
	if err == nil {
		err = op.Wait(ctx)
		l.wrote(w.RemoteOff+guard, w.Inline, w.Flags, w.Imm, err)
	}
	if err != nil {
		l.conn.Abort()
		return err
	}
	if err := l.conn.CloseContext(ctx); err != nil && !isEnd(err) {
		l.conn.Abort()
		return err
	}
	return nil
}
