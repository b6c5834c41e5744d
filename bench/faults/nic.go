package faults

import (
	"context"
	"fmt"
	"time"

	"multiedge/internal/lab"
)

// nic changes the second of two interfaces of host 0, and undoes the change.
func nic(name string, short bool, do, undo func(l *lab.Link) error, down bool) Scenario {
	return Scenario{
		Name: name, Group: Host, Criteria: "the daemon follows the change within 2 s; connections stay up",
		Short: short, Set: twoLinks,
		Run: func(ctx context.Context, t *Trial) error {
			c, err := t.atWork(ctx, MixBulk, 2)
			if err != nil {
				return err
			}
			l := t.cluster.Lab().Link(1)
			lines := t.logged("msg=\"link ")
			if err := do(l); err != nil {
				return err
			}
			t.injected("changes of an interface", 1)
			if down {
				took, ok := t.event(ctx, rejoinTime, func() bool { up, err := t.up(ctx, 1); return err == nil && !up })
				t.ms("noticed after", took)
				t.check("noticed within 2 s", ok, "the daemon still shows the link up after %v", took)
			}
			without, err := t.measure(ctx, c, "without", t.span(time.Second, 300*time.Millisecond))
			if err != nil {
				return err
			}
			t.ms("stall", without.Stall)
			if undo != nil {
				if err := undo(l); err != nil {
					return err
				}
			}
			took, ok := t.usedAgain(ctx, 1)
			t.ms("in use again", took)
			t.check("in use within 2 s", ok, "not after %v", took)
			after, err := t.measure(ctx, c, "after", t.span(time.Second, 300*time.Millisecond))
			if err != nil {
				return err
			}
			t.unfailed(without, after)
			lines = t.logged("msg=\"link ") - lines
			t.counted("log lines about links", uint64(lines))
			t.check("changes are logged", lines > 0, "no line")
			return nil
		},
	}
}

// up asks host 0's daemon whether a link is in use.
func (t *Trial) up(ctx context.Context, number int) (bool, error) {
	links, err := t.links(ctx, 0)
	if err != nil {
		return false, err
	}
	for i := range links {
		if links[i].Number == number {
			return links[i].Up, nil
		}
	}
	return false, fmt.Errorf("link %d is unknown to the daemon", number)
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
