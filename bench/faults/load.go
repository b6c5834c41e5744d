package faults

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"sync/atomic"
	"time"

	"multiedge/bench/kit"
	"multiedge/bench/proc"
	"multiedge/edge"
	"multiedge/internal/ipc"
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

// grown has a process of host 0 open connections while a client works, and passes to each how much the resident memory
// of each host's daemon has grown while the process still holds them. seen is how many connections the peer counts, and
// what they are.
func (t *Trial) grown(kind string, n int, what string, seen func() int, each func(r *Result, host int, grown float64)) {
	c := t.pair(MixSmall, 2, 8)
	before := seen()
	var was [2]uint64
	for h := range was {
		was[h] = proc.Resident(t.cluster.Daemon(h).Pid())
	}
	a := t.spawn(0, Job{Role: RoleDial, Name: kind, Kind: kind, Peer: "host1", Service: "store", Count: n})
	r := a.result()
	t.injected("connections", r.Done)
	t.row.Measured["connections per second"] = float64(r.Done) / max(r.Seconds, 1e-9)
	t.ms("slowest connection", r.Slowest)
	t.check("no connection fails", int(r.Done) == n && r.Failed == 0, "%d of %d, failed: %s", r.Done, n,
		counts(r.Types))
	for h := range was {
		each(r, h, float64(proc.Resident(t.cluster.Daemon(h).Pid()))-float64(was[h]))
	}
	t.all(what, uint64(seen()-before), r.Done)
	t.goesOn(c)
	a.quit()
}

func holding(t *Trial) {
	t.grown(dialHold, t.many(10000, 1000), "connections at the peer",
		func() int { return t.status(1).Connections }, func(r *Result, h int, grown float64) {
			per := grown / float64(max(r.Done, 1))
			t.row.Measured[fmt.Sprintf("bytes per connection, host%d", h)] = per
			t.check(fmt.Sprintf("memory per connection in host%d", h), per <= perConnMost, "%.0f bytes", per)
		})
}

func cycling(t *Trial) {
	opened := func() int { return int(t.scrape(1)["edge_connections_opened_total"]) }
	t.grown(dialCycle, t.many(20000, 300), "connections opened at the peer", opened,
		func(_ *Result, h int, grown float64) {
			t.row.Measured[fmt.Sprintf("resident MiB grown, host%d", h)] = grown / (1 << 20)
			t.check(fmt.Sprintf("memory of host%d does not grow", h), grown <= cycleMost, "%.0f bytes", grown)
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

// Dials to a node that is off, and the limits of what they may cost other clients of the dialling daemon.
const (
	pendingDials = 11000
	diallers     = 3                // users that dial: limits.dials is 4096 for each client
	pendingTime  = 60 * time.Second // time limit of each dial: longer than the scenario
	// forged announcements of that node a second: so many that their cost shows, although one is cheap
	claimRate    = 10000
	pendingStall = 500 * time.Millisecond // the longest time without a completion
	pendingP99   = 10 * time.Millisecond  // added to three times the clean p99
	pendingShare = 0.5                    // of the clean operations
	pendingLeast = 0.05                   // likewise; judged even on a busy machine
)

func threeHosts(s *kit.ClusterSpec) {
	s.Lab.Hosts, s.Lab.Medium = 3, 0
	s.Config = "mode = \"0666\"\n" + s.Config // a user may have half of the dials
}

// pending sends requests for connections and waits for no answer. The daemon has taken all of them when pending
// returns. Answers are refusals.
func (c *rawClient) pending(ctx context.Context, job *Job, r *Result) {
	taken, refused := make(chan error, 1), map[string]uint64{}
	var last atomic.Uint64
	go func() {
		for {
			m, fds, err := c.Conn.RecvFDs()
			ipc.CloseFDs(fds)
			if err != nil {
				taken <- err
				return
			}
			if m.Kind == ipc.KindVersion && m.ID == last.Load() {
				taken <- nil
				return // later answers stay unread
			}
			if m.Error != nil {
				refused[m.Error.Code.String()]++
			}
		}
	}()
	for i := range job.Count {
		kit.Check(c.Conn.SendContext(ctx, &ipc.Message{ID: 2 + uint64(i), Kind: ipc.KindDial, Peer: job.Peer,
			Service: job.Service, Timeout: pendingTime}))
		r.Done++
	}
	last.Store(2 + uint64(job.Count))
	kit.Check(c.Conn.SendContext(ctx, &ipc.Message{ID: last.Load(), Kind: ipc.KindVersion}))
	kit.Check(<-taken)
	for code, n := range refused {
		r.Types[code] += n
		r.Failed += n
	}
}

// pendingScenario measures a client while other clients of its daemon wait for a node that is off, and then while a
// stranger also claims to be that node.
func pendingScenario() Scenario {
	return Scenario{
		Name: "eleven thousand dials to a node that is off", Group: Load, Short: true, Set: threeHosts,
		Criteria: "beside the dials, then also beside 10,000 forged Hellos of that node a second: at least half as " +
			"many operations as without; p99 at most three times as long, plus 10 ms; no stall of 500 ms",
		Run: dialsPending,
	}
}

func dialsPending(t *Trial) {
	t.admitUsers()
	c := t.pair(MixSmall, 2, 8)
	off := t.status(2)
	node, err := hex.DecodeString(off.Node)
	kit.Checkf(err, "identity %q of host 2", off.Node)
	t.killDaemon(2)
	stranger := t.spawn(1, Job{Role: RoleInject, Name: injectClaim, Kind: injectClaim, Link: "edge0",
		Driver: t.spec.Driver, Target: t.cluster.Lab().Host(0).MAC(0), Node: node, Peer: off.Name, Seed: t.seed})
	a := &assault{injector: stranger}
	t.aim(a, aimNobody, claimRate)
	d := t.span(3*time.Second, time.Second)
	clean := t.measure(c, "clean", d)
	var idle []*agent
	for k := range diallers {
		dialler := t.spawn(0, Job{Role: RoleRaw, Name: rawPending, Kind: rawPending, Peer: off.Name,
			Service: "store", Count: pendingDials*(k+1)/diallers - pendingDials*k/diallers, UID: firstUser + k})
		r := dialler.result()
		t.injected("dials", r.Done)
		t.check("all dials wait", r.Failed == 0, "refused: %s", counts(r.Types))
		idle = append(idle, dialler)
	}
	dials := t.mark(c, "while they are made")
	t.aim(a, aimDaemon, claimRate)
	claimed := t.measure(c, "while the node is announced", d)
	r := last[*Result](stranger)
	t.injected("forged announcements", r.Done)
	t.unfailed(clean, dials, claimed)
	t.waited(clean, dials, "while dials are made")
	t.waited(clean, claimed, "while the node is announced")
	for _, p := range idle {
		p.quit()
	}
	t.startDaemon(2)
}

// waited compares latency, stalls and throughput of a window with those of a window without the fault.
func (t *Trial) waited(clean, with *Window, when string) {
	ms := func(ns float64) time.Duration { return time.Duration(ns) }
	most := 3*ms(clean.P99) + pendingP99
	t.ms("p99 clean", ms(clean.P99))
	t.ms("p99 "+when, ms(with.P99))
	t.ms("stall "+when, with.Stall)
	rate := func(w *Window) float64 { return float64(w.Ops) / max(w.Seconds, 1e-9) }
	share := rate(with) / max(rate(clean), 1)
	t.check("operations go on "+when, share >= pendingLeast, "%.2f %% of those clean", 100*share)
	t.share("share of clean operations "+when, "at least half of the clean operations "+when, share, pendingShare)
	t.check(fmt.Sprintf("no stall of %v %s", pendingStall, when), with.Stall < pendingStall, "%v", with.Stall)
	t.speed("p99 "+when, ms(with.P99) <= most, "%v, without %v", ms(with.P99), ms(clean.P99))
}
