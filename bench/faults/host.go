package faults

import (
	"fmt"
	"slices"
	"syscall"
	"time"

	"multiedge/bench/hostile"
	"multiedge/bench/kit"
	"multiedge/internal/lab"
)

// hostDead is the dead time in scenarios that wait for it.
const hostDead = 1500 * time.Millisecond

func hostScenarios() []Scenario {
	return []Scenario{
		{Name: "peer killed with -9", Group: Host, Criteria: "operations fail with peer-down by their deadline",
			Short: true, Dead: hostDead, Run: peerKilled},
		{Name: "daemon restarted", Group: Host,
			Criteria: "old operations fail within one round trip of contact with the new daemon (at the latest with " +
				"the next probe); clients reconnect", Short: true, Run: daemonRestarted},
		{Name: "sender's daemon restarted, its frames late", Group: Host,
			Criteria: "no late frame changes memory whose connection has ended; clients reconnect", Short: true,
			Set: twoLinks, Run: senderRestarted},
		{Name: "own daemon killed with -9", Group: Host, Short: true,
			Criteria: "operations fail with daemon-down within 1 s; clients reconnect", Run: ownDaemonKilled},
		{Name: "client killed with operations in flight", Group: Host,
			Criteria: "the client's memory is unpinned within 1 s; the peer gets a typed error; answers to the " +
				"client's reads change neither that memory nor memory registered since", Short: true, Set: smallFrames,
			Run: clientKilled},
		{Name: "target killed with writes in flight", Group: Host,
			Criteria: "the target's memory is unpinned within 1 s; the peer gets a typed error; late writes do not " +
				"change reused memory",
			Run: targetKilled},
		{Name: "memory revoked with operations in flight", Group: Host,
			Criteria: "operations fail with a key error; memory does not change after the revocation; clients start " +
				"anew", Short: true, Run: revoked},
		{Name: "stopped client", Group: Host,
			Criteria: "only the stopped client and one that never takes its completions stall; others keep at least " +
				"95 % of the goodput that they have alone", Short: true, Set: shaped, Run: stoppedClient},
		{Name: "receiver that takes no notifications", Group: Host,
			Criteria: "only the receiver's peers stall; others keep at least 95 % of the goodput that they have alone",
			Set:      shaped, Run: slowReceiver},
		{Name: "daemon stopped for 10 s", Group: Host, Criteria: "no operation fails; connections stay up", Short: true,
			Dead: 15 * time.Second, Run: daemonStopped},
		{Name: "files, configuration and control socket misused at once", Group: Host,
			Criteria: "broken peers files are refused; no stall lasts 1 s; goodput is at least 30 % of that beside " +
				"as much misuse of other daemons; once the files are repaired, the daemons serve everything",
			Short: true, Set: wholeHosts, Run: wholeDaemon},
	}
}

// atWork returns a client that has begun.
func (t *Trial) atWork(mix string, conns int) *agent {
	c := t.pair(mix, conns, 8)
	t.mark(c, "before")
	return c
}

func peerKilled(t *Trial) {
	c := t.atWork(MixRandom, 2)
	at := time.Now()
	t.crash(1)
	w := t.failing(c, at)
	t.counted("operations that failed", total(w.Errors))
	t.check("operations fail with peer-down", w.Errors["peer-down"] > 0, "errors: %s", counts(w.Errors))
	t.startDaemon(1)
	t.flowing(c, 10*time.Second)
}

// contactTime is the time by which a restarted peer has been contacted: the coarse time-out between two probes, and
// some more for a busy machine.
const contactTime = 500 * time.Millisecond

func daemonRestarted(t *Trial) {
	c := t.atWork(MixRandom, 2)
	t.restarted(1)
	ready := time.Now()
	w, took, ok := t.until(c, "after", 10*time.Second,
		func(w *Window) bool { return w.Ops > 0 && w.Reconnects > 0 })
	t.ms("work goes on after", took)
	t.counted("operations that failed", total(w.Errors))
	if !w.LastError.IsZero() {
		t.ms("old operations failed after", w.LastError.Sub(ready))
	}
	t.check("old operations fail at contact", w.Errors["peer-down"] > 0 && w.LastError.Sub(ready) <= contactTime,
		"errors %s, the last %v after the daemon was back", counts(w.Errors), w.LastError.Sub(ready))
	t.check("clients reconnect", ok, "dial errors %s", counts(w.DialErrors))
}

// add adds a later window to w, in the fields that scenarios use.
func (w *Window) add(o *Window) {
	merge := func(dst *map[string]uint64, src map[string]uint64) {
		for k, n := range src {
			if *dst == nil {
				*dst = map[string]uint64{}
			}
			(*dst)[k] += n
		}
	}
	merge(&w.Errors, o.Errors)
	merge(&w.DialErrors, o.DialErrors)
	w.Seconds, w.Bytes, w.Stall = w.Seconds+o.Seconds, w.Bytes+o.Bytes, max(w.Stall, o.Stall)
	w.Reconnects += o.Reconnects
	if o.Reconnects > 0 {
		w.Ops = 0 // only operations of new connections prove that work goes on
	}
	w.Ops += o.Ops
	if w.FirstError.IsZero() {
		w.FirstError = o.FirstError
	}
	if !o.LastError.IsZero() {
		w.LastError = o.LastError
	}
}

func ownDaemonKilled(t *Trial) {
	c := t.atWork(MixRandom, 2)
	at := time.Now()
	t.crash(0)
	w, took, failed := t.until(c, "killed", 2*time.Second,
		func(w *Window) bool { return w.Errors["daemon-down"] > 0 })
	t.ms("operations failed after", took)
	t.check("operations fail with daemon-down within 1 s", failed && w.LastError.Sub(at) <= time.Second, "errors %s",
		counts(w.Errors))
	t.counted("operations that failed", total(w.Errors))
	t.startDaemon(0)
	back := time.Now()
	t.flowing(c, 10*time.Second)
	t.ms("work goes on after", time.Since(back))
}

// beside measures the share of its goodput that one client keeps while something is done to another client on the same
// wire. The reference is its goodput while the other client is idle. Beside a working client it has half of that, which
// would measure nothing.
func (t *Trial) beside(other *agent, stop, resume func()) {
	calm := t.work("store", MixBulk, 1, 8)
	t.flowing(calm, 5*time.Second)
	var x turns
	rounds := t.many(turnsJudged, 1)
	begin := func() {
		call[any](other, "resume", nil)
		t.flowing(other, 10*time.Second)
		stop()
	}
	for range rounds {
		t.drain(other)
		t.turn(calm, &x, t.span(5*time.Second, 500*time.Millisecond)/time.Duration(rounds), begin)
		resume()
	}
	t.ms("others' stall", x.stall())
	t.unfailed(x.all()...)
	t.check("others go on", x.goesOn(), "nothing completes")
	t.share("others keep", "others keep at least 95 %", x.ratio(), 0.95)
	t.flowing(other, 10*time.Second)
}

func stoppedClient(t *Trial) {
	c := t.pair(MixRandom, 2, 8)
	t.injected("clients stopped", 1)
	var full *agent // takes no completions, so its rings fill; a stopped client has no more due than was in flight
	t.beside(c, func() {
		kit.Check(c.proc.Signal(syscall.SIGSTOP))
		full = t.spawn(0, Job{Role: RoleHostile, Name: fmt.Sprintf("cram%d", len(t.agents)), Kind: "cram",
			Peer: "host1", Service: "store", Seed: t.seed})
	}, func() {
		kit.Check(c.proc.Signal(syscall.SIGCONT))
		t.tried("completions that nobody takes", last[hostile.Report](full).Acts)
	})
}

func slowReceiver(t *Trial) {
	t.serve(1, "store")
	slow := t.serve(1, "slow")
	c := t.work("slow", MixSmall, 2, 8)
	t.flowing(c, 5*time.Second)
	t.injected("receivers stopped", 1)
	t.beside(c, func() { kit.Check(slow.proc.Signal(syscall.SIGSTOP)) },
		func() { kit.Check(slow.proc.Signal(syscall.SIGCONT)) })
}

func daemonStopped(t *Trial) {
	c := t.atWork(MixRandom, 4)
	d := t.cluster.Daemon(1)
	kit.Check(d.Signal(syscall.SIGSTOP))
	t.pause(t.span(10*time.Second, 2*time.Second))
	kit.Check(d.Signal(syscall.SIGCONT))
	t.injected("daemons stopped", 1)
	at := time.Now()
	t.flowing(c, 10*time.Second)
	t.ms("work goes on after", time.Since(at))
	w := t.measure(c, "after", t.span(time.Second, 500*time.Millisecond))
	t.unfailed(w)
}

// unpinTime is how soon memory of a process that died must be unpinned.
const unpinTime = time.Second

// unpinned waits until a host's daemon has unpinned all registered memory.
func (t *Trial) unpinned(host int) {
	took, ok := t.event(unpinTime, func() bool { return t.status(host).PinnedBytes == 0 })
	t.ms("unpinned after", took)
	t.check("unpinned within 1 s", ok, "not after %v", took)
}

// endings returns the ends of connections that a server has seen.
func (a *agent) endings() []Ended {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.ended)
}

// saidWrong returns what a server found that must never happen.
func (a *agent) saidWrong() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.wrongs)
}

// reuse has other clients use the memory that was given back. Their oracle notices every other write to it.
func (t *Trial) reuse() {
	t.serve(1, "next")
	c := t.work("next", MixRandom, 4, 8)
	t.flowing(c, 10*time.Second)
	t.unfailed(t.measure(c, "reuse", t.span(time.Second, 300*time.Millisecond)))
}

func targetKilled(t *Trial) {
	c := t.atWork(MixBulk, 4)
	at := time.Now()
	t.servers[0].kill()
	t.injected("servers killed", 1)
	t.unpinned(1)
	w, _, ok := t.until(c, "killed", 2*time.Second, func(w *Window) bool { return total(w.Errors) > 0 })
	t.ms("peer told after", w.FirstError.Sub(at))
	t.counted("operations that failed", total(w.Errors))
	t.check("the peer gets a typed answer", ok && w.Errors["untyped"] == 0, "%s", counts(w.Errors))
	t.reuse()
}

func revoked(t *Trial) {
	c := t.atWork(MixBulk, 2)
	exports := call[uint64](t.servers[0], "revoke", nil)
	t.injected("exports revoked", exports)
	w, took, ok := t.until(c, "revoked", 2*time.Second, func(w *Window) bool {
		return w.Errors["key"] > 0 && w.Reconnects >= exports && w.Ops > 0
	})
	t.ms("anew after", took)
	t.counted("operations that failed", total(w.Errors))
	t.check("operations fail with a key error, clients start anew", ok, "errors %s, %d reconnects", counts(w.Errors),
		w.Reconnects)
}

// lateTime is the delay of frames on one of two links. It is longer than a restart of the daemon that sent them, on a
// busy machine too.
const lateTime = 2500 * time.Millisecond

// lateFrames are to be on that link when the daemon is killed; some are the other host's.
const lateFrames = 50

// taken is how many frames a link has taken from the hosts.
func (t *Trial) taken(link int) uint64 {
	c, err := t.cluster.Lab().Link(link).Counters()
	kit.Check(err)
	return c.Received
}

// senderRestarted kills the daemon of clients that write, while their frames are on a long link, and starts it again.
// The memory that they write stays registered and mapped: only the end of the session keeps the frames out. Servers
// take a checksum of the memory once the new daemon has been heard over the short link. The old frames arrive after
// that.
func senderRestarted(t *Trial) {
	c := t.atWork(MixBulk, 2)
	server := t.servers[0]
	first := t.taken(1)
	t.setFaultsOf(1, lab.Faults{Delay: lateTime})
	t.event(time.Second, func() bool { return t.taken(1) >= first+lateFrames })
	killed := time.Now()
	t.restarted(0)
	_, ok := t.endings(server, c.job.Conns)
	took := time.Since(killed)
	t.ms("old connections ended after", took)
	t.check("old connections end before the last old frames come", ok && took < lateTime, "%d of %d after %v",
		len(server.endings()), c.job.Conns, took)
	was := t.unknown()
	t.pause(lateTime + lateTime/2 - min(took, lateTime))
	t.setFaultsOf(1, lab.Faults{})
	t.flowing(c, 10*time.Second)
	now := t.unknown()
	t.tried("old frames that came afterwards", now-was)
	w := t.mark(c, "after")
	t.check("clients reconnect", w.Up == c.job.Conns, "%d of %d connections", w.Up, c.job.Conns)
}

// unknown returns the number of frames that host 1 received for sessions that it does not have.
func (t *Trial) unknown() uint64 {
	return t.status(1).Counters["unknown_session"]
}
