package faults

import (
	"slices"
	"time"

	"multiedge/bench/kit"
	"multiedge/internal/lab"
)

// Faults of networks of IP, with a router between the hosts (PROTOCOL clause 21).

func routed(s *kit.ClusterSpec) { s.Lab.Medium = lab.Routed }

// families are scenarios of routed hosts over IPv4, and the same over IPv6, which the short form leaves out.
func families(list ...Scenario) []Scenario {
	six := slices.Clone(list)
	for i := range six {
		set := six[i].Set
		six[i].Name += ", IPv6"
		six[i].Short = false
		six[i].Set = func(s *kit.ClusterSpec) {
			set(s)
			s.Lab.IPv6 = true
		}
	}
	return append(list, six...)
}

// isIPv6 reports whether the hosts' addresses are.
func (t *Trial) isIPv6() bool { return t.cluster.Lab().Host(0).IP(0).Is6() }

// rebinding gives the host whose program dials another IP address under load, as a translator of addresses does when it
// forgets, and a network to which a host moves.
func rebinding() Scenario {
	return Scenario{
		Name: "rebinding: a peer's IP address changes under load", Group: Network, Short: true,
		Criteria: "no operation fails; data moves again within 2 s; each change is followed and counted",
		Set: func(s *kit.ClusterSpec) {
			routed(s)
			s.AllAddresses = true
		},
		Run: func(t *Trial) {
			c := t.pair(MixRandom, 2, 8)
			windows := []*Window{t.measure(c, "clean", 300*time.Millisecond)}
			moves, stall := t.many(5, 2), time.Duration(0)
			for k := range moves {
				kit.Check(t.cluster.Lab().Link(0).Renumber(0, byte(3+k)))
				stall = max(stall, t.movesOn(c, "change %d", k+1))
				windows = append(windows, t.measure(c, "moved", 300*time.Millisecond))
				t.injected("addresses changed", 1)
			}
			t.ms("longest stall", stall)
			t.unfailed(append(windows, t.drain(c))...)
			followed := uint64(t.scrape(1)["edge_path_moves_total"])
			t.counted("moves followed", followed)
			t.check("each change is followed", followed >= uint64(moves), "%d of %d", followed, moves)
		},
	}
}

// confined has a peer that is authorised, and confined to a network, move outside it under load: somebody who has its
// key, say, or routes its network.
func confined() Scenario {
	return Scenario{
		Name: "allow: a peer moves outside its networks", Group: Adversary, Short: true,
		Criteria: "from outside nothing completes, no move is followed, and frames are counted; inside again, data " +
			"moves within 2 s and no operation has failed",
		Set: func(s *kit.ClusterSpec) {
			routed(s)
			s.AllAddresses = true
			s.Allow = []string{"10.100.0.2/31", "10.101.0.0/16", "fd77::2/127", "fd77:1::/32"}
		},
		Run: func(t *Trial) {
			c := t.pair(MixRandom, 2, 8)
			windows := []*Window{t.measure(c, "clean", 300*time.Millisecond)}
			for range t.many(5, 1) {
				moved, refused := t.scrape(1)["edge_path_moves_total"], t.scrape(1)["edge_place_errors_total"]
				kit.Check(t.cluster.Lab().Link(0).Renumber(0, 9))
				t.injected("moves outside", 1)
				t.pause(100 * time.Millisecond) // what was under way before
				outside := t.measure(c, "outside", time.Second)
				t.check("nothing completes outside", outside.Ops == 0, "%d operations", outside.Ops)
				now := t.scrape(1)
				n := uint64(now["edge_place_errors_total"] - refused)
				t.counted("frames refused", n)
				t.check("frames from outside are counted", n > 0, "none")
				t.check("no move outside is followed", now["edge_path_moves_total"] == moved, "%v, %v before",
					now["edge_path_moves_total"], moved)
				kit.Check(t.cluster.Lab().Link(0).Renumber(0, 3))
				t.movesOn(c, "the peer's return")
				windows = append(windows, outside, t.measure(c, "inside", 300*time.Millisecond))
			}
			t.unfailed(append(windows, t.drain(c))...)
		},
	}
}

// mtuBlackHole makes the router's port carry shorter datagrams under load. The daemons believe no ICMP, so long ones
// vanish silently to them.
func mtuBlackHole() Scenario {
	return Scenario{
		Name: "mtu black hole behind a router", Group: Network, Short: true,
		Criteria: "no operation fails; data moves again within 2 s, in the longest datagrams that pass",
		Set:      routed,
		Run: func(t *Trial) {
			c := t.pair(MixBulk, 2, 8)
			windows := []*Window{t.measure(c, "clean", 300*time.Millisecond)}
			before := t.present(0)
			mtu, headers := 1450, 28+14
			if t.isIPv6() {
				headers = 48 + 14
			}
			kit.Check(t.cluster.Lab().Link(0).SetRouterMTU(1, mtu))
			t.injected("MTUs made smaller", 1)
			t.ms("longest stall", t.movesOn(c, "datagrams became shorter"))
			found, ok := t.event(2*time.Second, func() bool {
				p := t.path(0, "edge0", "host1")
				return p != nil && p.MTU == mtu-headers
			})
			t.ms("the size that passes is found after", found)
			t.check("datagrams are as long as pass", ok, "%+v, before %+v", t.path(0, "edge0", "host1"), before)
			t.unfailed(append(windows, t.measure(c, "shrunk", 300*time.Millisecond), t.drain(c))...)
		},
	}
}

func routedScenarios() []Scenario {
	return families(rebinding(), confined(), mtuBlackHole(), forgedICMP(), spoofedSource(), blackLane())
}
