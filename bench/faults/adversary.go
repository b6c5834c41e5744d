package faults

import (
	"context"
	"fmt"
	"time"

	"multiedge/bench"
	"multiedge/internal/lab"
)

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
func cable(s *bench.ClusterSpec) { s.Lab.Medium = lab.Cable }

// attack runs one kind of injector against a transfer. If restart is set, the daemon that is not attacked is restarted
// first.
func attack(name, criteria, kind string, restart, short bool) Scenario {
	return Scenario{
		Name: name, Group: Adversary, Criteria: criteria, Short: short, Set: cable,
		Run: func(ctx context.Context, t *Trial) error {
			a, err := t.assault(ctx, kind, restart)
			if err != nil {
				return err
			}
			return t.endured(ctx, a)
		},
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
func (t *Trial) assault(ctx context.Context, kind string, restart bool) (*assault, error) {
	ear, err := t.capture()
	if err != nil {
		return nil, err
	}
	a := &assault{}
	if a.client, err = t.pair(ctx, MixRandom, 2, 8); err != nil {
		return nil, err
	}
	file, n, err := ear.save(t.cluster.Dir())
	if err != nil {
		return nil, err
	}
	if restart {
		t.killDaemon(0)
		if err := t.cluster.StartDaemon(ctx, 0); err != nil {
			return nil, err
		}
		if err := t.flowing(ctx, a.client, 10*time.Second); err != nil {
			return nil, err
		}
	}
	if kind == injectReplay || kind == injectForge {
		t.row.Measured["frames captured"] = float64(n)
	}
	if _, err := t.mark(ctx, a.client, "before"); err != nil {
		return nil, err
	}
	a.was = map[string]uint64{}
	if err := t.addCounters(ctx, 1, a.was); err != nil {
		return nil, err
	}
	st, err := t.status(ctx, 1)
	if err != nil {
		return nil, err
	}
	a.resident, a.peers = resident(st.PID), st.Peers
	a.injector, err = t.spawn(ctx, 0, Job{Role: RoleInject, Name: kind, Kind: kind, Link: "edge0",
		Driver: t.spec.Driver, Target: t.cluster.Lab().Host(1).MAC(0), File: file, Seed: t.seed})
	return a, err
}

// aim has the injector send to the daemon or to nobody, at a rate or as fast as it can.
func (t *Trial) aim(ctx context.Context, a *assault, at string, rate int) error {
	_, err := a.injector.ask(ctx, Order{Do: DoAim, Name: at, Rate: rate}, func(e *Event) bool { return e.Aimed == at })
	return err
}

// byTurns measures the transfer, by turns, beside so many frames a second for nobody and as many for the daemon.
func (t *Trial) byTurns(ctx context.Context, a *assault, rounds int, d time.Duration, rate int) (*turns, error) {
	var x turns
	for range rounds {
		if err := t.aim(ctx, a, aimNobody, rate); err != nil {
			return nil, err
		}
		if err := t.turn(ctx, a.client, &x, d, func() error { return t.aim(ctx, a, aimDaemon, rate) }); err != nil {
			return nil, err
		}
	}
	return &x, nil
}

// endured measures the transfer beside the attack, by turns with as many frames for nobody. Then it lets the injector
// send as fast as it can. Then it stops the transfer. It judges the transfer and the daemon.
func (t *Trial) endured(ctx context.Context, a *assault) error {
	x, err := t.byTurns(ctx, a, t.many(turnsJudged, 1), t.span(600*time.Millisecond, 300*time.Millisecond), attackRate)
	if err != nil {
		return err
	}
	t.unfailed(x.all()...)
	t.row.Measured["goodput ratio"] = x.ratio()
	t.speed(fmt.Sprintf("goodput at least %.0f %% of that beside frames for nobody", 100*attackFloor),
		x.ratio() >= attackFloor, "%.1f %%", 100*x.ratio())
	if err := t.aim(ctx, a, aimDaemon, 0); err != nil {
		return err
	}
	busy, err := t.measure(ctx, a.client, "attacked", t.span(3*time.Second, 700*time.Millisecond))
	if err != nil {
		return err
	}
	t.check("the transfer goes on", busy.Ops > 0, "nothing completes: errors %s, dial errors %s", counts(busy.Errors),
		counts(busy.DialErrors))
	t.row.Measured["Gbit/s meanwhile"] = busy.rate() * 8 / 1e9
	rest, err := t.drain(ctx, a.client)
	if err != nil {
		return err
	}
	t.unfailed(busy, rest)
	if err := t.silent(ctx); err != nil {
		return err
	}
	return t.survived(ctx, a)
}

// silent judges the attacked daemon while the session is open and no client works: it may accept no more frames than
// the other daemon sends.
func (t *Trial) silent(ctx context.Context) error {
	t.quiet(ctx)
	was, now := [2]map[string]uint64{{}, {}}, [2]map[string]uint64{{}, {}}
	for _, h := range []int{0, 1} { // the sender first: frames in flight must not count against the receiver
		if err := t.addCounters(ctx, h, was[h]); err != nil {
			return err
		}
	}
	if !sleep(ctx, t.span(time.Second, 400*time.Millisecond)) {
		return ctx.Err()
	}
	for _, h := range []int{1, 0} {
		if err := t.addCounters(ctx, h, now[h]); err != nil {
			return err
		}
	}
	real, d := less(now[0], was[0])["data_frames_sent"], less(now[1], was[1])
	t.counted("frames accepted at rest", d["data_frames_received"])
	t.check("no injected frame is accepted", d["data_frames_received"] <= real && d["payload_received"] == 0 &&
		d["ops_applied"] == 0,
		"%d frames accepted where the peer sent %d, %d bytes of payload, %d operations", d["data_frames_received"],
		real, d["payload_received"], d["ops_applied"])
	return nil
}

// survived ends the attack and judges state, memory and counts of the attacked daemon.
func (t *Trial) survived(ctx context.Context, a *assault) error {
	st, err := t.status(ctx, 1)
	if err != nil {
		return err
	}
	grown := int64(resident(st.PID)) - int64(a.resident)
	r, err := a.injector.last(ctx)
	if err != nil {
		return err
	}
	now := map[string]uint64{}
	if err := t.addCounters(ctx, 1, now); err != nil {
		return err
	}
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
		t.check("no handshake begins without a cookie", r.Types[taken] == 0, "%d requests were taken",
			r.Types[taken])
	}
	return nil
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
		Run: func(ctx context.Context, t *Trial) error {
			a, err := t.assault(ctx, kind, false)
			if err != nil {
				return err
			}
			if err := t.aim(ctx, a, aimDaemon, 0); err != nil {
				return err
			}
			if !sleep(ctx, t.span(3*time.Second, 400*time.Millisecond)) {
				return ctx.Err()
			}
			t.killDaemon(0)
			if _, err := t.mark(ctx, a.client, "killed"); err != nil {
				return err
			}
			if err := t.cluster.StartDaemon(ctx, 0); err != nil {
				return err
			}
			took, ok := t.connects(ctx, a.client, 10*connectTime)
			t.ms("a real peer connected after", took)
			t.check("a real peer connects", ok, "not after %v", took.Round(time.Millisecond))
			t.speed("a real peer connects within 1 s", took <= connectTime, "after %v", took.Round(time.Millisecond))
			if _, err := a.client.drain(ctx); err != nil {
				return err
			}
			a.was["sessions_failed"]++ // that of the daemon we killed
			return t.survived(ctx, a)
		},
	}
}

// connects waits until a client that has lost all connections completes operations again.
func (t *Trial) connects(ctx context.Context, c *agent, within time.Duration) (time.Duration, bool) {
	return t.event(ctx, within, func() bool {
		w, err := t.mark(ctx, c, "connects")
		return err == nil && w.Ops > 0
	})
}
