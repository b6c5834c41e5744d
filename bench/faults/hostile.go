package faults

import (
	"context"
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
func (t *Trial) raw(ctx context.Context, kind string, count int) (*Result, error) {
	a, err := t.spawn(ctx, 0, Job{Role: RoleRaw, Name: kind, Kind: kind, Peer: "host1", Service: "store", Count: count,
		Seed: t.seed})
	if err != nil {
		return nil, err
	}
	return a.retire(ctx)
}

// rawBeside is raw beside a working client. It counts how the daemon answered operations.
func (t *Trial) rawBeside(ctx context.Context, kind string, count int) (c *agent, r *Result, err error) {
	if c, err = t.pair(ctx, MixRandom, 2, 8); err != nil {
		return nil, nil, err
	}
	if r, err = t.raw(ctx, kind, count); err != nil {
		return nil, nil, err
	}
	for k, n := range r.Types {
		t.counted("answered "+k, n)
	}
	return c, r, nil
}

func badKeys(ctx context.Context, t *Trial) error {
	c, r, err := t.rawBeside(ctx, rawBounds, 0)
	if err != nil {
		return err
	}
	t.injected("bad operations", r.Failed)
	t.check("each bad operation gets its own error, good ones succeed", len(r.Wrong) == 0, "%v", r.Wrong)
	return t.meanwhile(ctx, c)
}

func guessing(ctx context.Context, t *Trial) error {
	c, r, err := t.rawBeside(ctx, rawGuess, t.many(100000, 10000))
	if err != nil {
		return err
	}
	// a second may begin, and another end, within the time
	rate, most := float64(r.Done)/r.Seconds, guessesMost*(r.Seconds+1)
	t.injected("guesses", r.Done)
	t.row.Measured["guesses per second"] = rate
	t.check("no guess is right", len(r.Wrong) == 0, "%v", r.Wrong)
	t.check(fmt.Sprintf("at most %d a second are answered", guessesMost), float64(r.Done) <= most ||
		r.Types["cut off"] > 0, "%d guesses were answered in %.2f s", r.Done, r.Seconds)
	return t.meanwhile(ctx, c)
}

func breaksRules(ctx context.Context, t *Trial) error {
	c, err := t.pair(ctx, MixBulk, 2, 8)
	if err != nil {
		return err
	}
	was, err := t.status(ctx, 0)
	if err != nil {
		return err
	}
	d := t.span(2*time.Second, 500*time.Millisecond)
	before, err := t.measure(ctx, c, "before", d)
	if err != nil {
		return err
	}
	r, err := t.raw(ctx, rawScribble, 0)
	if err != nil {
		return err
	}
	meanwhile, err := t.mark(ctx, c, "meanwhile")
	if err != nil {
		return err
	}
	now, err := t.status(ctx, 0)
	if err != nil {
		return err
	}
	t.injected("rules broken", r.Done)
	t.counted("clients evicted", now.Evictions-was.Evictions)
	t.check("each client is evicted or kept as it should be", len(r.Wrong) == 0, "%v", r.Wrong)
	t.agrees("evictions", now.Evictions-was.Evictions, r.Failed, 0)
	t.unfailed(before, meanwhile)
	t.row.Measured["others keep"] = meanwhile.rate() / max(before.rate(), 1)
	return nil
}
