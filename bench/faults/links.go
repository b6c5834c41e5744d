package faults

import (
	"context"
	"fmt"
	"slices"
	"time"

	"multiedge/bench"
	"multiedge/internal/lab"
)

// linkRate limits each link where links are cut, so that the links, not the processors, limit goodput.
const linkRate = "200mbit"

func twoLinks(s *bench.ClusterSpec) { s.Lab.Links, s.Lab.Rates = 2, []string{linkRate} }

// twoLinksLogged logs every change of a path: suspect paths, and good ones again, are logged at debug.
func twoLinksLogged(s *bench.ClusterSpec) {
	twoLinks(s)
	s.Log = "debug"
}

// rejoinTime is how soon a link that works again must be used again.
const rejoinTime = 2 * time.Second

// black cuts one of two links, in both directions or towards one host, and heals it. It does so several times, or once
// for so many seconds.
func black(name string, towards int, seconds int, short bool) Scenario {
	return Scenario{
		Name: name, Group: Network, Short: short, Set: twoLinksLogged,
		Criteria: "stalls last at most max(3 probe time-outs, 200 ms); with one of k links black, goodput is at " +
			"least 90 % of (k-1)/k of that before; the link is in use again within 2 s of healing",
		Run: func(ctx context.Context, t *Trial) error {
			c, err := t.pair(ctx, MixBulk, 2, 8)
			if err != nil {
				return err
			}
			cut := func(on bool) error {
				if towards < 0 {
					return t.cluster.Lab().Link(1).Cut(on)
				}
				return t.cluster.Lab().Link(1).CutTowards(towards, on)
			}
			if seconds > 0 {
				return t.blackLink(ctx, c, cut, time.Duration(seconds)*time.Second, 1)
			}
			return t.blackLink(ctx, c, cut, time.Second, t.many(turnsJudged, 1))
		},
	}
}

func (t *Trial) blackLink(ctx context.Context, c *agent, cut func(bool) error, black time.Duration, rounds int) error {
	d := t.span(time.Second, 500*time.Millisecond)
	clean, err := t.measure(ctx, c, "clean", d)
	if err != nil {
		return err
	}
	p, err := t.path(ctx, 0, "edge1", "host1")
	if err != nil || p == nil {
		return fmt.Errorf("no path over edge1 to cut: %w", err)
	}
	b, err := t.count(ctx)
	if err != nil {
		return err
	}
	windows := []*Window{clean}
	var (
		stalls []time.Duration
		ratios []float64
		back   time.Duration // the longest until the link was used again
		unused int           // healed links that were not
		before = clean
	)
	for range rounds {
		if err := cut(true); err != nil {
			return err
		}
		onset, err := t.measure(ctx, c, "onset", 500*time.Millisecond)
		if err != nil {
			return err
		}
		dark, err := t.measure(ctx, c, "black", t.span(black, d))
		if err != nil {
			return err
		}
		if err := cut(false); err != nil {
			return err
		}
		took, used := t.usedAgain(ctx, 1)
		if !used {
			unused++
		}
		healed, err := t.measure(ctx, c, "healed", d)
		if err != nil {
			return err
		}
		back = max(back, took)
		stalls = append(stalls, onset.Stall)
		ratios = append(ratios, 2*dark.rate()/max(before.rate()+healed.rate(), 1))
		windows, before = append(windows, onset, dark, healed), healed
	}
	after, err := t.drain(ctx, c)
	if err != nil {
		return err
	}
	t.unfailed(append(windows, after)...)
	_, l, err := t.since(ctx, b)
	if err != nil {
		return err
	}
	t.injected("cut", l.Cut)
	t.changes(ctx)
	ratio, stall, limit := median(ratios), median(stalls), stallMost(time.Duration(p.SRTT), ackDelay)
	t.ms("in use again", back)
	t.ms("stall", stall)
	t.ms("longest stall", slices.Max(stalls))
	t.row.Measured["clean Gbit/s"] = clean.rate() * 8 / 1e9
	t.row.Measured["goodput ratio"] = ratio
	t.speed(fmt.Sprintf("stall at most %v", limit.Round(time.Millisecond)), stall <= limit, "%v", stall)
	t.speed(fmt.Sprintf("goodput at least %.0f %% of that before", 100*survivors(2)), ratio >= survivors(2), "%.1f %%",
		100*ratio)
	t.check("in use again within 2 s of healing", unused == 0, "%d of %d times not after %v", unused, rounds,
		rejoinTime)
	return nil
}

// ackDelay is the longest delay of an acknowledgement by a peer, a part of a probe time-out.
const ackDelay = 5 * time.Millisecond

// usedBytes is more than probes send within the time. More than that is data.
const usedBytes = 256 << 10

// usedAgain waits until data leaves host 0 on a link again.
func (t *Trial) usedAgain(ctx context.Context, link int) (time.Duration, bool) {
	name, sent := fmt.Sprintf("edge%d", link), func() (n uint64) {
		links, err := t.links(ctx, 0)
		for i := range links {
			if err == nil && links[i].Number == link {
				n = links[i].Counters["bytes_sent"]
			}
		}
		return n
	}
	was := sent()
	return t.event(ctx, rejoinTime, func() bool {
		p, err := t.path(ctx, 0, name, "host1")
		return err == nil && p != nil && p.State == "good" && sent() > was+usedBytes
	})
}

// changes judges that the changes of links were counted and logged: each is an event, a log line and a count. It needs
// twoLinksLogged.
func (t *Trial) changes(ctx context.Context) {
	m, err := t.scrape(ctx, 0)
	if err != nil {
		t.check("changes of links are counted and logged", false, "%v", err)
		return
	}
	lines := t.logged("node=host0", "path changed")
	t.counted("path changes", uint64(m["edge_path_changes_total"]))
	t.counted("log lines of path changes", uint64(lines))
	t.check("changes of links are counted and logged", m["edge_path_changes_total"] > 0 &&
		uint64(m["edge_path_changes_total"]) <= uint64(lines),
		"%v counted, %d logged", m["edge_path_changes_total"], lines)
}

// flapping takes all links away for a while, again and again.
func flapping() Scenario {
	return Scenario{
		Name: "all links 5 s on, 2 s off", Group: Network, Criteria: "no operation fails; connections stay up",
		Short: true, Set: twoLinks,
		Run: func(ctx context.Context, t *Trial) error {
			c, err := t.pair(ctx, MixRandom, 2, 8)
			if err != nil {
				return err
			}
			b, err := t.count(ctx)
			if err != nil {
				return err
			}
			for range t.many(3, 2) {
				for _, off := range []bool{true, false} {
					if err := t.cutAll(off); err != nil {
						return err
					}
					on := t.span(5*time.Second, 700*time.Millisecond)
					if off {
						on = t.span(2*time.Second, 700*time.Millisecond)
					}
					if !sleep(ctx, on) {
						return ctx.Err()
					}
				}
			}
			w, err := t.drain(ctx, c)
			if err != nil {
				return err
			}
			t.unfailed(w)
			_, l, err := t.since(ctx, b)
			t.injected("cut", l.Cut)
			t.row.Measured["operations"] = float64(w.Ops)
			t.ms("stall", w.Stall)
			return err
		},
	}
}

func (t *Trial) cutAll(on bool) error {
	l := t.cluster.Lab()
	for i := range l.Links() {
		if err := l.Link(i).Cut(on); err != nil {
			return err
		}
	}
	return nil
}

// gone takes all links away for longer than the dead time.
func gone() Scenario {
	return Scenario{
		Name: "all links off beyond the dead time", Group: Network, Criteria: "every operation fails by its deadline",
		Short: true, Set: twoLinks, Dead: 1500 * time.Millisecond,
		Run: func(ctx context.Context, t *Trial) error {
			c, err := t.pair(ctx, MixRandom, 2, 8)
			if err != nil {
				return err
			}
			b, err := t.labCounters()
			if err != nil {
				return err
			}
			if err := t.cutAll(true); err != nil {
				return err
			}
			at := time.Now()
			w, err := t.failing(ctx, c, at)
			if err != nil {
				return err
			}
			l, err := t.labCounters()
			if err != nil {
				return err
			}
			t.injected("cut", l.Cut-b.Cut)
			t.counted("operations that failed", total(w.Errors))
			t.check("operations fail with peer-down", w.Errors["peer-down"] > 0, "errors: %s", counts(w.Errors))
			if err := t.cutAll(false); err != nil {
				return err
			}
			return t.flowing(ctx, c, 10*time.Second)
		},
	}
}

// failing waits until every operation that was in flight at a moment has failed, and returns the window. U2 judges the
// deadline.
func (t *Trial) failing(ctx context.Context, c *agent, at time.Time) (*Window, error) {
	if !sleep(ctx, time.Until(at.Add(deadline(t.dead)))) {
		return nil, ctx.Err()
	}
	w, err := t.mark(ctx, c, "failing")
	if err == nil {
		if !w.FirstError.IsZero() {
			t.ms("first error after", w.FirstError.Sub(at))
		}
		t.check("operations in flight fail by the deadline", !w.LastError.IsZero(), "no operation failed")
	}
	return w, err
}

func total(m map[string]uint64) (n uint64) {
	for _, v := range m {
		n += v
	}
	return n
}

// unequal is two links of very different rates.
func unequal() Scenario {
	return Scenario{
		Name: "rates 10:1", Group: Network, Criteria: "goodput is at least 85 % of the sum of the rates",
		Short: true,
		Set: func(s *bench.ClusterSpec) {
			s.Lab.Links, s.Lab.Medium, s.Lab.Rates = 2, lab.Switch, []string{"500mbit", "50mbit"}
		},
		Run: func(ctx context.Context, t *Trial) error {
			c, err := t.pair(ctx, MixBulk, 2, 16)
			if err != nil {
				return err
			}
			w, err := t.measure(ctx, c, "work", t.span(3*time.Second, 600*time.Millisecond))
			if err != nil {
				return err
			}
			t.unfailed(w)
			share := w.rate() * 8 / 550e6
			t.injected("links slowed down", 1)
			t.row.Measured["share of the summed rate"] = share
			t.speed("goodput at least 85 % of the sum of the rates", share >= 0.85, "%.1f %%", 100*share)
			return nil
		},
	}
}

// longer gives the only link of two hosts fifteen times the delay while it is in use.
func longer() Scenario {
	const before, after = 200 * time.Microsecond, 3 * time.Millisecond
	return Scenario{
		Name: "a path that becomes 3 ms longer", Group: Network,
		Criteria: "three seconds later, goodput is at least half of that before", Short: true,
		Set: func(s *bench.ClusterSpec) { s.Lab.Rates = []string{linkRate} },
		Run: func(ctx context.Context, t *Trial) error {
			if err := t.setFaults(lab.Faults{Delay: before}); err != nil {
				return err
			}
			c, err := t.pair(ctx, MixBulk, 2, 16)
			if err != nil {
				return err
			}
			was, err := t.measure(ctx, c, "short", time.Second)
			if err != nil {
				return err
			}
			if err := t.setFaults(lab.Faults{Delay: after}); err != nil {
				return err
			}
			t.injected("paths made longer", 1)
			learning, err := t.measure(ctx, c, "becoming longer", 3*time.Second)
			if err != nil {
				return err
			}
			is, err := t.measure(ctx, c, "long", time.Second)
			if err != nil {
				return err
			}
			t.unfailed(was, learning, is)
			ratio := is.rate() / was.rate()
			t.row.Measured["goodput ratio"] = ratio
			t.speed("goodput at least half of that before", ratio >= 0.5, "%.1f %%", 100*ratio)
			return nil
		},
	}
}
