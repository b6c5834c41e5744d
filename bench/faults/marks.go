package faults

import (
	"strings"
	"time"

	"multiedge/bench/kit"
)

// Routers that mark, and that treat marks badly (ECN, PROTOCOL clause 21.12).

const (
	// What a router does with datagrams of IPv4.
	ruleMarkSome = "ip ecn ect0 numgen random mod 8 != 0 ip ecn set ce"
	ruleMarkAll  = "ip ecn set ce"
	ruleBleach   = "ip ecn != not-ect ip ecn set not-ect"
	ruleDrop     = "ip ecn != not-ect drop"

	// markedMost is the goodput, as a part of that before, that such marks leave at most.
	markedMost = 0.5
)

// rules sets the rules of the router (lab.SetRules); without any it changes nothing.
func (t *Trial) rules(rules ...string) {
	if t.isIPv6() {
		for i := range rules {
			rules[i] = strings.ReplaceAll(rules[i], "ip ecn", "ip6 ecn")
		}
	}
	kit.Check(t.cluster.Lab().Link(0).SetRules(1, rules...))
}

// marks is whether the path of a host knows marks to get through.
func (t *Trial) marks(host int) string {
	p := t.path(host, "edge0", t.cluster.Lab().Host(1-host).Name())
	if p == nil {
		return "no path"
	}
	return p.Marks
}

// knows judges that a host believes so of marks, soon.
func (t *Trial) knows(host int, want string) {
	took, ok := t.event(2*time.Second, func() bool { return t.marks(host) == want })
	t.ms("marks are "+want+" after", took)
	t.check("marks are "+want, ok, "they are %s", t.marks(host))
}

// marking is a router that marks under load.
func marking() Scenario {
	return Scenario{
		Name: "ecn: a router marks most datagrams", Group: Network, Short: true,
		Criteria: "the sender slows to at most half, although nothing is lost; it is fast again within 2 s",
		Set:      routed,
		Run: func(t *Trial) {
			c := t.pair(MixBulk, 2, 8)
			t.knows(0, "good")
			clean := t.measure(c, "clean", 500*time.Millisecond)
			was := t.count()
			t.rules(ruleMarkSome)
			t.pause(100 * time.Millisecond)
			w := t.measure(c, "marked", t.span(time.Second, 500*time.Millisecond))
			t.rules()
			did := less(t.count().daemons, was.daemons)
			t.injected("datagrams marked", did["frames_marked"])
			t.counted("frames lost", did["frames_lost"]-min(did["frames_lost"], did["spurious_losses"]))
			t.row.Measured["goodput ratio"] = w.rate() / clean.rate()
			t.check("the sender slows down", w.rate() < markedMost*clean.rate(), "%.3g of %.3g Gbit/s", w.rate()*8/1e9,
				clean.rate()*8/1e9)
			t.check("without losses", t.row.Counted["frames lost"] < 10, "%d lost", t.row.Counted["frames lost"])
			t.recovers(c, clean)
			t.unfailed(clean, w, t.drain(c))
		},
	}
}

// recovers judges that a client soon moves a quarter at least of what it moved before: the machine may be busier.
func (t *Trial) recovers(c *agent, clean *Window) {
	var now float64
	took, ok := t.event(2*time.Second, func() bool {
		now = t.measure(c, "after", 100*time.Millisecond).rate()
		return now > clean.rate()/4
	})
	t.ms("fast again after", took)
	t.check("fast again within 2 s", ok, "%.3g of %.3g Gbit/s", now*8/1e9, clean.rate()*8/1e9)
}

// marksFail is a router that keeps marks from getting through, from the start on and under load.
func marksFail(name, rule string) Scenario {
	return Scenario{
		Name: "ecn: a router " + name, Group: Network, Short: true,
		Criteria: "that is noticed and told; no operation fails, and data moves as before",
		Set:      routed,
		Run: func(t *Trial) {
			c := t.pair(MixBulk, 2, 8)
			t.knows(0, "good")
			clean := t.measure(c, "clean", 300*time.Millisecond)
			t.rules(rule)
			t.injected("rules set", 1)
			t.knows(0, "failed")
			t.recovers(c, clean)
			w := t.measure(c, "without marks", 300*time.Millisecond)
			told := uint64(t.scrape(0)["edge_link_marks_failed_total"])
			t.counted("times told", told)
			t.check("it is told", told >= 1, "%d times", told)
			t.unfailed(clean, w, t.drain(c))
		},
	}
}

// allMarked is a router that marks everything, whatever is on its way.
func allMarked() Scenario {
	return Scenario{
		Name: "ecn: a router marks everything", Group: Network, Short: true,
		Criteria: "no operation fails; data goes on to move, slowly, and is fast again within 2 s after",
		Set:      routed,
		Run: func(t *Trial) {
			c := t.pair(MixBulk, 2, 8)
			clean := t.measure(c, "clean", 300*time.Millisecond)
			t.rules(ruleMarkAll)
			t.injected("rules set", 1)
			t.succeeds("data goes on to move", func() {
				for range t.many(10, 3) {
					t.flowing(c, 4*time.Second)
				}
			})
			w := t.measure(c, "marked", 300*time.Millisecond)
			t.row.Measured["goodput ratio"] = w.rate() / clean.rate()
			t.check("marks are believed", w.rate() < markedMost*clean.rate(), "%.3g of %.3g Gbit/s", w.rate()*8/1e9,
				clean.rate()*8/1e9)
			t.rules()
			t.recovers(c, clean)
			t.unfailed(clean, w, t.drain(c))
		},
	}
}

func markScenarios() []Scenario {
	return families(marking(), allMarked(), marksFail("wipes marks out", ruleBleach),
		marksFail("drops what may be marked", ruleDrop))
}
