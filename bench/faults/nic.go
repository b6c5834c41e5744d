package faults

import (
	"time"

	"multiedge/bench/kit"
	"multiedge/internal/lab"
)

// nic changes the second of two interfaces of host 0, and undoes the change.
func nic(name string, short bool, do, undo func(l *lab.Link) error, down bool) Scenario {
	return Scenario{
		Name: name, Group: Host, Criteria: "the daemon follows the change within 2 s; connections stay up",
		Short: short, Set: twoLinks,
		Run: func(t *Trial) {
			c := t.atWork(MixBulk, 2)
			l := t.cluster.Lab().Link(1)
			lines := t.logged("msg=\"link ")
			kit.Check(do(l))
			t.injected("changes of an interface", 1)
			if down {
				took, ok := t.event(rejoinTime, func() bool { return !t.up(1) })
				t.ms("noticed after", took)
				t.check("noticed within 2 s", ok, "the daemon still shows the link up after %v", took)
			}
			without := t.measure(c, "without", t.span(time.Second, 300*time.Millisecond))
			t.ms("stall", without.Stall)
			if undo != nil {
				kit.Check(undo(l))
			}
			took, ok := t.usedAgain(1)
			t.ms("in use again", took)
			t.check("in use within 2 s", ok, "not after %v", took)
			after := t.measure(c, "after", t.span(time.Second, 300*time.Millisecond))
			t.unfailed(without, after)
			lines = t.logged("msg=\"link ") - lines
			t.counted("log lines about links", uint64(lines))
			t.check("changes are logged", lines > 0, "no line")
		},
	}
}

// up asks host 0's daemon whether a link is in use.
func (t *Trial) up(number int) bool {
	for _, l := range t.links(0) {
		if l.Number == number {
			return l.Up
		}
	}
	kit.Fail("link %d is unknown to the daemon", number)
	return false
}

func nicScenarios() []Scenario {
	return []Scenario{
		nic("NIC renamed", false, func(l *lab.Link) error { return l.Rename(0, "other0") }, nil, false),
		nic("NIC down and up", false, func(l *lab.Link) error { return l.SetDown(0) },
			func(l *lab.Link) error { return l.SetUp(0) }, true),
		nic("NIC deleted and recreated", true, func(l *lab.Link) error { return l.Delete(0) },
			func(l *lab.Link) error { return l.Recreate(0) }, true),
		nic("NIC of the peer down and up", false, func(l *lab.Link) error { return l.SetDown(1) },
			func(l *lab.Link) error { return l.SetUp(1) }, false),
	}
}
