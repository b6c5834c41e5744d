package faults

import (
	"time"

	"multiedge/bench/kit"
	"multiedge/bench/report"
	"multiedge/internal/ethtool"
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

// shrunkMTU is what the receiver's interface carries once it has shrunk.
const shrunkMTU = 1400

// shrinks makes the MTU of the receiving end of a veth pair smaller under load. The sender's own MTU stays: its kernel
// refuses long frames by ENOBUFS, as if the device were full. What remains of the rate is compared with that after the
// sender's MTU was made smaller too, since shorter frames cost more.
func shrinks(driver string, short bool) Scenario {
	return Scenario{
		Name:  "receiver's MTU shrinks under load, driver " + driver,
		Group: Network, Short: short,
		Criteria: "data goes on moving within 2 s, at no less than half of the rate of a link whose two ends have " +
			"that MTU; no operation fails",
		Set: func(s *kit.ClusterSpec) {
			s.Lab.Medium = lab.Cable
			s.Config += "driver = \"" + driver + "\"\n"
		},
		Run: shrink,
	}
}

// lengths are the steps of a turn: which end of the link gets which MTU.
var lengths = []struct {
	name string
	host int
	mtu  int
}{{"long", 0, 9000}, {"shrunk", 1, shrunkMTU}, {"both", 0, shrunkMTU}}

func shrink(t *Trial) {
	l := t.cluster.Lab()
	off := map[string]bool{"tx-udp-segmentation": false, "tx-generic-segmentation": false}
	for h := range 2 {
		name := l.Link(0).Name(h)
		kit.Check(l.Host(h).Do(func() error { return ethtool.Change(name, off) }))
	}
	c := t.pair(MixBulk, 2, 8)
	var after []*Window
	rates := map[string][]float64{}
	span := t.span(time.Second, 400*time.Millisecond)
	for range t.many(3, 1) {
		kit.Check(l.Link(0).SetMTU(1, 9000))
		for _, step := range lengths {
			kit.Check(l.Link(0).SetMTU(step.host, step.mtu))
			t.movesOn(c, "the step %s", step.name)
			t.pause(time.Second) // the search for the frame size ends
			w := t.measure(c, step.name, span)
			after = append(after, w)
			rates[step.name] = append(rates[step.name], w.rate())
		}
		t.injected("MTUs made smaller", 1)
	}
	t.unfailed(after...)
	for name, r := range rates {
		t.row.Measured[name+", MB/s"] = report.Median(r) / 1e6
	}
	ratio := report.Median(rates["shrunk"]) / max(report.Median(rates["both"]), 1)
	t.check("data moves", report.Median(rates["shrunk"]) > 0, "no operation completes")
	t.share("rate, of that with both ends alike", "at least half of the rate of ends that are alike", ratio, 0.5)
}

func shrinkScenarios() []Scenario { return []Scenario{shrinks("alone", true), shrinks("udp", false)} }

// mtu lowers the frame size that a path carries below what its links claim, or the MTU of one link.
func mtu(name string, short bool, medium lab.Medium, inject func(t *Trial)) Scenario {
	return Scenario{
		Name: name, Group: Network, Short: short,
		Criteria: "probing finds the smaller MTU and lowers the frame size within 2 s; data goes on moving",
		Set:      func(s *kit.ClusterSpec) { s.Lab.Medium = medium },
		Run: func(t *Trial) {
			c := t.pair(MixBulk, 2, 8)
			p := func() int {
				p := t.path(0, "edge0", "host1")
				if p == nil || p.State != "good" {
					return 0
				}
				return p.MTU
			}
			t.event(2*time.Second, func() bool { return p() >= 8192 })
			large := p()
			t.mark(c, "before")
			inject(t)
			t.injected("paths made narrower", 1)
			took, ok := t.event(rejoinTime, func() bool { now := p(); return now > 0 && now <= 1500 })
			t.row.Measured["frame before"], t.row.Measured["frame after"] = float64(large), float64(p())
			t.ms("lowered after", took)
			t.check("lowered within 2 s", ok, "frames of %d bytes after %v", p(), took)
			t.counted("paths lowered", truth(ok))
			w := t.measure(c, "narrow", t.span(2*time.Second, 500*time.Millisecond))
			t.check("data moves", w.Ops > 0, "no operation completes")
			t.unfailed(w)
		},
	}
}

func truth(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}

func mtuScenarios() []Scenario {
	return []Scenario{
		mtu("MTU mismatch, silent: a device between drops long frames", true, lab.Wire,
			func(t *Trial) { t.setFaults(lab.Faults{Longest: 1500}) }),
		mtu("MTU mismatch, silent: the receiver's link", false, lab.Switch,
			func(t *Trial) { kit.Check(t.cluster.Lab().Link(0).SetMTU(1, 1500)) }),
		mtu("MTU mismatch with EMSGSIZE: the sender's link", false, lab.Switch,
			func(t *Trial) { kit.Check(t.cluster.Lab().Link(0).SetMTU(0, 1500)) }),
	}
}
