package faults

import (
	"fmt"
	"time"
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
	return a.retire()
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
	t.meanwhile(c)
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
	t.meanwhile(c)
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
