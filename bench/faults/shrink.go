package faults

import (
	"time"

	"multiedge/bench/kit"
	"multiedge/bench/report"
	"multiedge/internal/ethtool"
	"multiedge/internal/lab"
)

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
			if err := kit.Try(func() { t.flowing(c, 2*time.Second) }); err != nil {
				t.check("data goes on moving within 2 s", false, "%s: %v", step.name, err)
				return
			}
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
	t.row.Measured["rate, of that with both ends alike"] = ratio
	t.check("data moves", report.Median(rates["shrunk"]) > 0, "no operation completes")
	t.speed("at least half of the rate of ends that are alike", ratio >= 0.5, "%.0f %%", 100*ratio)
}

func shrinkScenarios() []Scenario { return []Scenario{shrinks("alone", true), shrinks("udp", false)} }
