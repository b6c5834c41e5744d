package engine_test

import (
	"testing"

	"multiedge/internal/engine"
	"multiedge/internal/wire"
	"multiedge/regmem"
)

// Frames that share datagrams leave several in a row on a link, once as many are in flight as one holds; the first of
// them, all that go alone, and those of the paper's schedulers are spread.
func TestDatagramsStayOnTheirLink(t *testing.T) {
	inBothForms(t, func(t *testing.T, sealed bool) {
		for _, v := range []struct {
			scheduler string
			super     int
			runs      bool
		}{{"adaptive", 0, false}, {"adaptive", superBytes, true}, {"srr", superBytes, false},
			{"wsrr", superBytes, false}} {
			r := newRig(t, rigOptions{sealed: sealed, links: 2, mtu: 9000, super: v.super, scheduler: v.scheduler})
			c := r.connect(engine.DialOptions{})
			_, key := r.export(1, c[1], 1<<20, regmem.RemoteWrite)
			r.settle()
			r.submit(0, c[0], engine.Op{Kind: engine.OpWrite, Token: 1, Key: key, Local: pattern(1, 1<<20)})
			var links []int
			for _, f := range r.take(0) {
				if len(f.b) > wire.EthLen+wire.MinFrame {
					links = append(links, f.link)
				}
			}
			const per = superBytes / (8938 + wire.EthLen) // frames of a datagram
			if len(links) < 4*per {
				t.Fatalf("%d frames left", len(links))
			}
			turns := func(links []int) (n int) {
				for i := range links[1:] {
					if links[i] != links[i+1] {
						n++
					}
				}
				return n
			}
			first, rest := turns(links[:per]), turns(links[per:])
			if first != per-1 || !v.runs && rest != len(links)-per-1 || v.runs && rest > (len(links)-per)/4 {
				t.Errorf("%s, datagrams of %d bytes: %d turns from link to link among the first %d frames, %d among "+
					"the other %d", v.scheduler, v.super, first, per, rest, len(links)-per)
			}
		}
	})
}
