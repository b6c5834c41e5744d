package faults

import (
	"fmt"
	"slices"
	"time"

	"multiedge/bench/kit"
	"multiedge/bench/report"
	"multiedge/internal/lab"
)

// linkRate limits each link where links are cut, so that the links, not the processors, limit goodput.
const linkRate = "200mbit"

func twoLinks(s *kit.ClusterSpec) { s.Lab.Links, s.Lab.Rates = 2, []string{linkRate} }

// twoLinksLogged logs every change of a path: suspect paths, and good ones again, are logged at debug.
func twoLinksLogged(s *kit.ClusterSpec) {
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
		Run: func(t *Trial) {
			c := t.pair(MixBulk, 2, 8)
			cut := func(on bool) {
				if towards < 0 {
					t.cut(1, on)
				} else {
					t.cutTowards(1, towards, on)
				}
			}
			if seconds > 0 {
				t.blackLink(c, cut, time.Duration(seconds)*time.Second, 1)
			} else {
				t.blackLink(c, cut, time.Second, t.many(turnsJudged, 1))
			}
		},
	}
}

func (t *Trial) blackLink(c *agent, cut func(bool), black time.Duration, rounds int) {
	d := t.span(time.Second, 500*time.Millisecond)
	clean := t.measure(c, "clean", d)
	p, b := t.present(1), t.count()
	windows := []*Window{clean}
	var (
		stalls []time.Duration
		ratios []float64
		back   time.Duration // the longest until the link was used again
		unused int           // healed links that were not
		before = clean
	)
	for range rounds {
		cut(true)
		onset := t.measure(c, "onset", 500*time.Millisecond)
		dark := t.measure(c, "black", t.span(black, d))
		cut(false)
		took, used := t.usedAgain(1)
		if !used {
			unused++
		}
		healed := t.measure(c, "healed", d)
		back = max(back, took)
		stalls = append(stalls, onset.Stall)
		ratios = append(ratios, 2*dark.rate()/max(before.rate()+healed.rate(), 1))
		windows, before = append(windows, onset, dark, healed), healed
	}
	after := t.drain(c)
	t.unfailed(append(windows, after)...)
	_, l := t.since(b)
	t.injected("cut", l.Cut)
	t.changes()
	stall, limit := report.Median(stalls), stallMost(time.Duration(p.SRTT), ackDelay)
	t.ms("in use again", back)
	t.ms("stall", stall)
	t.ms("longest stall", slices.Max(stalls))
	t.row.Measured["clean Gbit/s"] = clean.rate() * 8 / 1e9
	t.speed(fmt.Sprintf("stall at most %v", limit.Round(time.Millisecond)), stall <= limit, "%v", stall)
	t.share("goodput ratio", fmt.Sprintf("goodput at least %.0f %% of that before", 100*survivors(2)),
		report.Median(ratios), survivors(2))
	t.check("in use again within 2 s of healing", unused == 0, "%d of %d times not after %v", unused, rounds,
		rejoinTime)
}

// ackDelay is the longest delay of an acknowledgement by a peer, a part of a probe time-out.
const ackDelay = 5 * time.Millisecond

// usedBytes is more than probes send within the time. More than that is data.
const usedBytes = 256 << 10

// usedAgain waits until data leaves host 0 on a link again.
func (t *Trial) usedAgain(link int) (time.Duration, bool) {
	name, sent := fmt.Sprintf("edge%d", link), func() (n uint64) {
		for _, l := range t.links(0) {
			if l.Number == link {
				n = l.Counters["bytes_sent"]
			}
		}
		return n
	}
	was := sent()
	return t.event(rejoinTime, func() bool {
		p := t.path(0, name, "host1")
		return p != nil && p.State == "good" && sent() > was+usedBytes
	})
}

// changes judges that the changes of links were counted and logged: each is an event, a log line and a count. It needs
// twoLinksLogged.
func (t *Trial) changes() {
	m := t.scrape(0)
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
		Run: func(t *Trial) {
			c := t.pair(MixRandom, 2, 8)
			b := t.count()
			for range t.many(3, 2) {
				t.cutAll(true)
				t.pause(t.span(2*time.Second, 700*time.Millisecond))
				t.cutAll(false)
				t.pause(t.span(5*time.Second, 700*time.Millisecond))
			}
			w := t.drain(c)
			t.unfailed(w)
			_, l := t.since(b)
			t.injected("cut", l.Cut)
			t.row.Measured["operations"] = float64(w.Ops)
			t.ms("stall", w.Stall)
		},
	}
}

func (t *Trial) cutAll(on bool) {
	l := t.cluster.Lab()
	for i := range l.Links() {
		kit.Check(l.Link(i).Cut(on))
	}
}

// gone takes all links away for longer than the dead time.
func gone() Scenario {
	return Scenario{
		Name: "all links off beyond the dead time", Group: Network, Criteria: "every operation fails by its deadline",
		Short: true, Set: twoLinks, Dead: 1500 * time.Millisecond,
		Run: func(t *Trial) {
			c := t.pair(MixRandom, 2, 8)
			b := t.labCounters()
			t.cutAll(true)
			at := time.Now()
			w := t.failing(c, at)
			l := t.labCounters()
			t.injected("cut", l.Cut-b.Cut)
			t.counted("operations that failed", total(w.Errors))
			t.check("operations fail with peer-down", w.Errors["peer-down"] > 0, "errors: %s", counts(w.Errors))
			t.cutAll(false)
			t.flowing(c, 10*time.Second)
		},
	}
}

// failing waits until every operation that was in flight at a moment has failed, and returns the window. U2 judges the
// deadline.
func (t *Trial) failing(c *agent, at time.Time) *Window {
	t.pause(time.Until(at.Add(deadline(t.dead))))
	w := t.mark(c, "failing")
	if !w.FirstError.IsZero() {
		t.ms("first error after", w.FirstError.Sub(at))
	}
	t.check("operations in flight fail by the deadline", !w.LastError.IsZero(), "no operation failed")
	return w
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
		Set: func(s *kit.ClusterSpec) {
			s.Lab.Links, s.Lab.Medium, s.Lab.Rates = 2, lab.Switch, []string{"500mbit", "50mbit"}
		},
		Run: func(t *Trial) {
			c := t.pair(MixBulk, 2, 16)
			w := t.measure(c, "work", t.span(3*time.Second, 600*time.Millisecond))
			t.unfailed(w)
			t.injected("links slowed down", 1)
			t.share("share of the summed rate", "goodput at least 85 % of the sum of the rates", w.rate()*8/550e6, 0.85)
		},
	}
}

// longer gives the only link of two hosts fifteen times the delay while it is in use.
func longer() Scenario {
	const before, after = 200 * time.Microsecond, 3 * time.Millisecond
	return Scenario{
		Name: "a path that becomes 3 ms longer", Group: Network,
		Criteria: "three seconds later, goodput is at least half of that before", Short: true,
		Set: func(s *kit.ClusterSpec) { s.Lab.Rates = []string{linkRate} },
		Run: func(t *Trial) {
			t.setFaults(lab.Faults{Delay: before})
			c := t.pair(MixBulk, 2, 16)
			was := t.measure(c, "short", time.Second)
			t.setFaults(lab.Faults{Delay: after})
			t.injected("paths made longer", 1)
			learning := t.measure(c, "becoming longer", 3*time.Second)
			is := t.measure(c, "long", time.Second)
			t.unfailed(was, learning, is)
			t.share("goodput ratio", "goodput at least half of that before", is.rate()/was.rate(), 0.5)
		},
	}
}
