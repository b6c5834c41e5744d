package faults

import (
	"fmt"
	"slices"
	"time"

	"multiedge/bench/kit"
)

// Lanes of an IP link over equal paths, of which one swallows everything (PROTOCOL clauses 21.7 and 21.9).

const (
	testLanes = 8
	testPaths = 4
	// blackMost is how much longer the slowest write may take because a path has gone black.
	blackMost = 50 * time.Millisecond
	// lanesBack is how soon the lanes of a black path must have found another.
	lanesBack = 10 * time.Second
)

func laned(s *kit.ClusterSpec) {
	routed(s)
	s.Lab.Paths, s.Lanes = testPaths, testLanes
}

// blackLane blackens one of the paths between the routers, one direction after the other.
func blackLane() Scenario {
	return Scenario{
		Name: "lanes: one of several equal paths goes black", Group: Network, Short: true,
		Criteria: "no operation fails; the slowest write of 64 KiB takes at most 50 ms more than before, each way, " +
			"as a median; every lane is good again within 10 s, over other paths",
		Set: laned,
		Run: func(t *Trial) {
			c := t.pair(MixWrites, 2, 8)
			_, ok := t.event(lanesBack, func() bool { return t.goodLanes(0)+t.goodLanes(1) == 2*testLanes })
			t.check("all lanes are good", ok, "%d and %d", t.goodLanes(0), t.goodLanes(1))
			for _, toFirst := range []bool{false, true} {
				t.blackenPaths(c, toFirst)
			}
			t.unfailed(t.drain(c))
		},
	}
}

// goodLanes counts a host's lanes whose paths are good.
func (t *Trial) goodLanes(host int) (n int) {
	for k := range testLanes {
		name := "edge0"
		if k > 0 {
			name = fmt.Sprintf("edge0/%d", k)
		}
		if p := t.path(host, name, t.cluster.Lab().Host(1-host).Name()); p != nil && p.State == "good" {
			n++
		}
	}
	return n
}

// blackenPaths blackens each path in one direction for a while.
func (t *Trial) blackenPaths(c *agent, toFirst bool) {
	l, way := t.cluster.Lab(), "to the second host"
	if toFirst {
		way = "to the first host"
	}
	var before, during, back []time.Duration
	late := 0
	for path := range testPaths {
		clean := t.measure(c, "clean", 300*time.Millisecond)
		t.mark(c, "black begins")
		kit.Check(l.Blacken(path, toFirst, true))
		black := time.Now()
		t.pause(300 * time.Millisecond)
		w := t.mark(c, "black")
		t.injected("paths blackened", 1)
		before, during = append(before, clean.Worst), append(during, w.Worst)
		// the host whose frames vanish finds its lanes dead, and the first host, which asked, draws other ports
		host := 0
		if toFirst {
			host = 1
		}
		_, ok := t.event(lanesBack, func() bool { return t.goodLanes(host) == testLanes })
		if back = append(back, time.Since(black)); !ok {
			late++
		}
		kit.Check(l.Blacken(path, toFirst, false))
		t.unfailed(clean, w)
		_, ok = t.event(lanesBack, func() bool { return t.goodLanes(0)+t.goodLanes(1) == 2*testLanes })
		t.check("all lanes are good before the next path", ok, "%d and %d", t.goodLanes(0), t.goodLanes(1))
	}
	slices.Sort(before)
	slices.Sort(during)
	worst, clean := during[testPaths/2], before[testPaths/2]
	t.ms("slowest write, clean, "+way, clean)
	t.ms("slowest write, "+way, worst)
	t.ms("longest until all lanes are good, "+way, slices.Max(back))
	t.check("the slowest write "+way, worst <= clean+blackMost, "%v, %v before", worst, clean)
	t.check("lanes find other paths, "+way, late == 0, "%d times not within %v", late, lanesBack)
	t.counted("other ports drawn", uint64(t.scrape(0)["edge_lane_draws_total"]))
}
