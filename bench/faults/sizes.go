package faults

import (
	"time"

	"multiedge/bench/kit"
	"multiedge/internal/lab"
)

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
