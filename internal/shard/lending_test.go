package shard

import (
	"bytes"
	"crypto/rand"
	"sync"
	"testing"
	"time"

	"multiedge/internal/engine"
	"multiedge/internal/mono"
	"multiedge/regmem"
)

// Everything that was asked for is in place when it is over, exactly once, whoever copied it; with more copies than the
// queue holds, and with none.
func TestCopies(t *testing.T) {
	for _, helpers := range []int{0, 1, 3} {
		c, quit := &copyQueue{}, make(chan struct{})
		var group sync.WaitGroup
		for range helpers {
			group.Go(func() {
				for {
					select {
					case <-quit:
						return
					default:
						c.step()
					}
				}
			})
		}
		wait := func() {
			for !c.over() {
				c.step()
			}
		}
		src, dst := make([]byte, 1<<20), make([]byte, 1<<20)
		rand.Read(src)
		for round, size := range []int{leastCopy, 3000, 9000, 100, 65536} {
			for range 50 {
				clear(dst)
				for at := 0; at < len(src); at += size {
					end := min(at+size, len(src))
					c.ask(dst[at:end], src[at:end])
				}
				wait()
				if !bytes.Equal(dst, src) {
					t.Fatalf("%d helpers, round %d: something is not in place", helpers, round)
				}
			}
		}
		if n := testing.AllocsPerRun(100, func() { c.ask(dst[:4096], src[:4096]); wait() }); n != 0 {
			t.Errorf("%v allocations for each copy", n)
		}
		close(quit)
		group.Wait()
	}
}

// A receiver that is not seen for long loses its link, unless it is at work on it or has handed something over, and is
// left alone for a while; one that returns it because it found nothing is lent the next one at once, one that shares
// its core is not.
func TestLinksComeBack(t *testing.T) {
	const later = lentSilent + 1
	for _, c := range []struct {
		name         string
		loan         uint32
		beat         time.Duration
		back, rested bool
	}{
		{"not up yet", loanOffer, wakeMost, false, false},
		{"never up", loanOffer, wakeMost + 1, true, false},
		{"up in time", loanReady, wakeMost, false, false},
		{"up too late", loanReady, wakeMost + 1, true, false},
		{"seen lately", loanOut, lentSilent, false, false},
		{"silent", loanOut, later, true, false},
		{"silent at work", loanBusy, later, false, false},
		{"silent after handing over", loanHanded, later, false, false},
		{"returned", loanNone, 0, true, true},
		{"returned, and not noticed for long", loanNone, later, true, true},
		{"returned, the core is shared", loanShared, 0, true, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := &receiver{bell: -1}
			s, l := &Shard{links: linkSet{receivers: &receivers{all: []*receiver{r}}}}, &Link{take: 1}
			eng, err := engine.New(engine.Config{Node: engine.NodeID{1}, Epoch: 1,
				Grants: regmem.NewTable(rand.Reader)})
			if err != nil {
				t.Fatal(err)
			}
			r.reader = eng.NewReader()
			now := mono.Time(time.Hour)
			s.offer(now, l)
			if l.lent != r || r.loan.Load() != loanOffer {
				t.Fatal("the link is not offered")
			}
			other := &Link{take: 1}
			if s.offer(now, other); other.lent != nil {
				t.Fatal("two links are offered to one receiver")
			}
			r.loan.Store(c.loan)
			r.beat.Store(int64(now))
			now = now.Add(c.beat)
			if must := c.loan != loanOut && c.loan != loanBusy &&
				c.loan != loanOffer; s.links.receivers.waiting() != must {
				t.Errorf("the shard may not sleep: %v", !must)
			}
			if serves := s.serves(now, l); serves != (c.back || c.loan == loanOffer) || c.back != (l.lent == nil) {
				t.Fatalf("the shard serves the link: %v, and has it back: %v", serves, l.lent == nil)
			}
			if s.offer(now, other); (other.lent == r) != c.rested {
				t.Errorf("offered another at once: %v", other.lent == r)
			}
			if s.offer(now.Add(time.Minute), other); (other.lent == r) != c.back {
				t.Errorf("offered another a minute later: %v", other.lent == r)
			}
		})
	}
}
