package faults

import (
	"context"
	"time"

	"multiedge/bench"
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
		Set: func(s *bench.ClusterSpec) {
			s.Lab.Medium = lab.Cable
			s.Config += "driver = \"" + driver + "\"\n"
		},
		Run: func(ctx context.Context, t *Trial) error {
			l := t.cluster.Lab()
			off := map[string]bool{"tx-udp-segmentation": false, "tx-generic-segmentation": false}
			for h := range 2 {
				name := l.Link(0).Name(h)
				if err := l.Host(h).Do(func() error { return ethtool.Change(name, off) }); err != nil {
					return err
				}
			}
			c, err := t.pair(ctx, MixBulk, 2, 8)
			if err != nil {
				return err
			}
			var after []*Window
			rates := map[string][]float64{}
			span := t.span(time.Second, 400*time.Millisecond)
			for range t.many(3, 1) {
				for _, step := range []struct {
					name string
					host int
					mtu  int
				}{{"long", 0, 9000}, {"shrunk", 1, shrunkMTU}, {"both", 0, shrunkMTU}} {
					if err := l.Link(0).SetMTU(step.host, step.mtu); err != nil {
						return err
					}
					if step.name == "long" {
						if err := l.Link(0).SetMTU(1, step.mtu); err != nil {
							return err
						}
					}
					if err := t.flowing(ctx, c, 2*time.Second); err != nil {
						t.check("data goes on moving within 2 s", false, "%s: %v", step.name, err)
						return nil
					}
					if !sleep(ctx, time.Second) { // the search for the frame size ends
						return ctx.Err()
					}
					w, err := t.measure(ctx, c, step.name, span)
					if err != nil {
						return err
					}
					after = append(after, w)
					rates[step.name] = append(rates[step.name], w.rate())
				}
				t.injected("MTUs made smaller", 1)
			}
			t.unfailed(after...)
			for name, r := range rates {
				t.row.Measured[name+", MB/s"] = median(r) / 1e6
			}
			ratio := median(rates["shrunk"]) / max(median(rates["both"]), 1)
			t.row.Measured["rate, of that with both ends alike"] = ratio
			t.check("data moves", median(rates["shrunk"]) > 0, "no operation completes")
			t.speed("at least half of the rate of ends that are alike", ratio >= 0.5, "%.0f %%", 100*ratio)
			return nil
		},
	}
}

func shrinkScenarios() []Scenario { return []Scenario{shrinks("alone", true), shrinks("udp", false)} }
