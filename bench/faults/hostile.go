package faults

import (
	"fmt"
	"time"

	"multiedge/bench/kit"
	"multiedge/bench/proc"
	"multiedge/internal/lab"
)

func adversaryScenarios() []Scenario {
	unheard := "no session changes; no such frame is accepted; beside 20,000 a second, goodput is at least 80 % of " +
		"that beside as many frames for nobody; resident memory grows by at most 8 MiB"
	return []Scenario{
		attack("frames forged blindly", unheard, injectBlind, false, true),
		attack("frames replayed as they were, or from other addresses", unheard, injectReplay, false, true),
		attack("frames forged by one who listens", unheard, injectForge, false, false),
		attack("frames of an old epoch replayed after a restart", unheard, injectReplay, true, false),
		attack("malformed frames", unheard, injectMalformed, false, true),
		flood("spoofed hellos", injectHello, true),
		poisonedHello(),
		flood("spoofed session requests", injectInit, false),
		handshakeFlood(),
		{Name: "out of bounds, stale and foreign keys", Group: Adversary,
			Criteria: "each bad operation fails with its own typed error; good operations succeed", Short: true,
			Run: badKeys},
		{Name: "guessing of keys", Group: Adversary, Short: true,
			Criteria: "no guess is right; the daemon answers at most 5,000 guesses a second",
			Run:      guessing},
		{Name: "flood of descriptors", Group: Adversary,
			Criteria: "the daemon closes unrequested descriptors at once; the transfer goes on", Short: true,
			Run: descriptorFlood},
		{Name: "client that breaks the rings' rules", Group: Adversary, Short: true, Set: shaped,
			Criteria: "the daemon evicts only the client that breaks them", Run: breaksRules},
	}
}

// raw runs a raw client in host 0 and returns its report.
func (t *Trial) raw(kind string, count int) *Result {
	a := t.spawn(0, Job{Role: RoleRaw, Name: kind, Kind: kind, Peer: "host1", Service: "store", Count: count,
		Seed: t.seed})
	defer a.quit()
	return a.result()
}

// rawBeside is raw beside a working client. It counts how the daemon answered operations.
func (t *Trial) rawBeside(kind string, count int) (c *agent, r *Result) {
	c = t.pair(MixRandom, 2, 8)
	r = t.raw(kind, count)
	for k, n := range r.Types {
		t.counted("answered "+k, n)
	}
	return c, r
}

func badKeys(t *Trial) {
	c, r := t.rawBeside(rawBounds, 0)
	t.injected("bad operations", r.Failed)
	t.check("each bad operation gets its own error, good ones succeed", len(r.Wrong) == 0, "%v", r.Wrong)
	t.unfailed(t.mark(c, "meanwhile"))
}

func guessing(t *Trial) {
	c, r := t.rawBeside(rawGuess, t.many(100000, 10000))
	// a second may begin, and another end, within the time
	rate, most := float64(r.Done)/r.Seconds, guessesMost*(r.Seconds+1)
	t.injected("guesses", r.Done)
	t.row.Measured["guesses per second"] = rate
	t.check("no guess is right", len(r.Wrong) == 0, "%v", r.Wrong)
	t.check(fmt.Sprintf("at most %d a second are answered", guessesMost), float64(r.Done) <= most ||
		r.Types["cut off"] > 0, "%d guesses were answered in %.2f s", r.Done, r.Seconds)
	t.unfailed(t.mark(c, "meanwhile"))
}

func breaksRules(t *Trial) {
	c := t.pair(MixBulk, 2, 8)
	was := t.status(0)
	d := t.span(2*time.Second, 500*time.Millisecond)
	before := t.measure(c, "before", d)
	r := t.raw(rawScribble, 0)
	meanwhile := t.mark(c, "meanwhile")
	now := t.status(0)
	t.injected("rules broken", r.Done)
	t.counted("clients evicted", now.Evictions-was.Evictions)
	t.check("each client is evicted or kept as it should be", len(r.Wrong) == 0, "%v", r.Wrong)
	t.agrees("evictions", now.Evictions-was.Evictions, r.Failed, 0)
	t.unfailed(before, meanwhile)
	t.row.Measured["others keep"] = meanwhile.rate() / max(before.rate(), 1)
}

// What an adversary may cost the daemon that is attacked.
const (
	grownMost   = 8 << 20     // resident bytes; 100 for each frame of a million would be twelve times as much
	connectTime = time.Second // until a real peer is connected
	guessesMost = 5000        // keys tried per second and peer (clause 6.9)
	// frames per second beside which goodput is judged: 10 us more for each would be a fifth of a processor
	attackRate  = 20000
	attackFloor = 0.8 // share of the goodput beside as many frames that go to nobody
	strangers   = 0   // nodes remembered that do not exist
)

// cable gives injectors the whole speed of the machine.
func cable(s *kit.ClusterSpec) { s.Lab.Medium = lab.Cable }

// attack runs one kind of injector against a transfer. If restart is set, the daemon that is not attacked is restarted
// first.
func attack(name, criteria, kind string, restart, short bool) Scenario {
	return Scenario{
		Name: name, Group: Adversary, Criteria: criteria, Short: short, Set: cable,
		Run: func(t *Trial) { t.endured(t.assault(kind, restart)) },
	}
}

// assault is an attack under way.
type assault struct {
	client   *agent
	injector *agent
	was      map[string]uint64 // counters of the attacked daemon
	resident uint64
	peers    int
}

// assault starts a transfer, captures its frames and, if asked, restarts the first host's daemon. It then makes an
// injector ready to send to the second host.
func (t *Trial) assault(kind string, restart bool) *assault {
	ear := t.capture()
	a := &assault{}
	a.client = t.pair(MixRandom, 2, 8)
	file, n := kit.Get2(ear.save(t.cluster.Dir()))
	if restart {
		t.killDaemon(0)
		t.startDaemon(0)
		t.flowing(a.client, 10*time.Second)
	}
	if kind == injectReplay || kind == injectForge {
		t.row.Measured["frames captured"] = float64(n)
	}
	t.mark(a.client, "before")
	a.was = map[string]uint64{}
	t.addCounters(1, a.was)
	st := t.status(1)
	a.resident, a.peers = proc.Resident(st.PID), st.Peers
	a.injector = t.spawn(0, Job{Role: RoleInject, Name: kind, Kind: kind, Link: "edge0",
		Driver: t.spec.Driver, Target: t.cluster.Lab().Host(1).MAC(0), File: file, Seed: t.seed})
	return a
}

// aim makes the injector send frames to the daemon or to an address without a host. rate limits it, in frames
// a second; 0: no limit.
func (t *Trial) aim(a *assault, at string, rate int) {
	call[any](a.injector, "aim", Aim{at, rate})
}

// byTurns measures the transfer, by turns, beside so many frames a second for nobody and as many for the daemon.
func (t *Trial) byTurns(a *assault, rounds int, d time.Duration, rate int) *turns {
	var x turns
	for range rounds {
		t.aim(a, aimNobody, rate)
		t.turn(a.client, &x, d, func() { t.aim(a, aimDaemon, rate) })
	}
	return &x
}

// endured measures the transfer beside the attack, by turns with as many frames for nobody. Then it lets the injector
// send as fast as it can. Then it stops the transfer. It judges the transfer and the daemon.
func (t *Trial) endured(a *assault) {
	x := t.byTurns(a, t.many(turnsJudged, 1), t.span(600*time.Millisecond, 300*time.Millisecond), attackRate)
	t.unfailed(x.all()...)
	t.share("goodput ratio", fmt.Sprintf("goodput at least %.0f %% of that beside frames for nobody", 100*attackFloor),
		x.ratio(), attackFloor)
	t.aim(a, aimDaemon, 0)
	busy := t.measure(a.client, "attacked", t.span(3*time.Second, 700*time.Millisecond))
	t.check("the transfer goes on", busy.Ops > 0, "nothing completes: errors %s, dial errors %s", counts(busy.Errors),
		counts(busy.DialErrors))
	t.row.Measured["Gbit/s meanwhile"] = busy.rate() * 8 / 1e9
	t.unfailed(busy, t.drain(a.client))
	t.silent()
	t.survived(a)
}

// silent judges the attacked daemon while the session is open and no client works: it may accept no more frames than
// the other daemon sends.
func (t *Trial) silent() {
	t.quiet()
	was, now := [2]map[string]uint64{{}, {}}, [2]map[string]uint64{{}, {}}
	for _, h := range []int{0, 1} { // the sender first: frames in flight must not count against the receiver
		t.addCounters(h, was[h])
	}
	t.pause(t.span(time.Second, 400*time.Millisecond))
	for _, h := range []int{1, 0} {
		t.addCounters(h, now[h])
	}
	real, d := less(now[0], was[0])["data_frames_sent"], less(now[1], was[1])
	t.counted("frames accepted at rest", d["data_frames_received"])
	t.check("no injected frame is accepted", d["data_frames_received"] <= real && d["payload_received"] == 0 &&
		d["ops_applied"] == 0,
		"%d frames accepted where the peer sent %d, %d bytes of payload, %d operations", d["data_frames_received"],
		real, d["payload_received"], d["ops_applied"])
}

// survived ends the attack and judges state, memory and counts of the attacked daemon.
func (t *Trial) survived(a *assault) {
	st := t.status(1)
	grown := int64(proc.Resident(st.PID)) - int64(a.resident)
	r := last[*Result](a.injector)
	now := map[string]uint64{}
	t.addCounters(1, now)
	d := less(now, a.was)
	t.injected(a.injector.job.Kind+" frames", r.Done)
	if a.injector.job.Kind == injectHandshakes {
		t.counted("handshakes answered", r.Types["handshakes"])
		t.check("strangers are answered", r.Types["handshakes"] > 0, "none of %s", counts(r.Types))
	}
	t.row.Measured["injected per second"] = float64(r.Fastest) / max(r.Seconds, 1e-9)
	t.row.Measured["resident MiB grown"] = float64(grown) / (1 << 20)
	t.counted("frames rejected", rejected(d)+d["unknown_session"]+d["frames_duplicated"])
	t.counted("sessions failed", d["sessions_failed"])
	t.counted("frames dropped by the kernel", d["kernel_dropped"])
	if seen := d["frames_received"] + d["kernel_dropped"]; seen < r.Done {
		t.row.U[3].fail("%d frames were injected, the daemon and its kernel saw %d", r.Done, seen)
	}
	t.check("no session changes", d["sessions_failed"] == 0, "%d sessions failed", d["sessions_failed"])
	t.check(fmt.Sprintf("resident memory grows by at most %d MiB", grownMost>>20), grown <= grownMost, "%d MiB",
		grown>>20)
	t.check("no node that does not exist is remembered", st.Peers-a.peers <= strangers, "%d nodes remembered",
		st.Peers-a.peers)
	switch a.injector.job.Kind {
	case injectBlind:
		t.tried("seals that did not open", d["rejected_auth"])
		read := d["rejected_malformed"] + d["rejected_header_sum"] + d["rejected_payload_sum"]
		t.check("no frame whose seal does not open is read", read == 0,
			"%d frames were read and found to be malformed: all were well formed, and some not sealed", read)
	case injectForge:
		t.tried("seals that did not open", d["rejected_auth"])
	case injectInit:
		t.tried("requests without a valid cookie", d["rejected_cookie"])
		t.tried("strangers asked for a cookie", r.Types[askedAgain])
		t.check("no handshake begins without a cookie", r.Types[taken] == 0, "%d requests were taken", r.Types[taken])
	}
}

// tried counts how often the injected work reached the code that it was made to test.
func (t *Trial) tried(what string, n uint64) {
	t.counted(what, n)
	if n == 0 {
		t.row.U[3].fail("%s: none, so the frames prove nothing", what)
	}
}

// flood announces nodes that do not exist. Meanwhile a real node comes back and connects.
func flood(name, kind string, short bool) Scenario {
	return Scenario{
		Name: name, Group: Adversary, Short: short, Set: cable,
		Criteria: "no node that does not exist is remembered; a real peer connects within 1 s",
		Run: func(t *Trial) {
			a := t.assault(kind, false)
			t.aim(a, aimDaemon, 0)
			t.pause(t.span(3*time.Second, 400*time.Millisecond))
			t.killDaemon(0)
			t.mark(a.client, "killed")
			t.startDaemon(0)
			took, ok := t.event(10*connectTime, func() bool { return t.mark(a.client, "connects").Ops > 0 })
			t.ms("a real peer connected after", took)
			t.check("a real peer connects", ok, "not after %v", took.Round(time.Millisecond))
			t.speed("a real peer connects within 1 s", took <= connectTime, "after %v", took.Round(time.Millisecond))
			call[*Window](a.client, "drain", nil)
			a.was["sessions_failed"]++ // that of the daemon we killed
			t.survived(a)
		},
	}
}
