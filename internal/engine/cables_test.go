package engine_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"multiedge/internal/engine"
	"multiedge/internal/frame"
	"multiedge/internal/wire"
)

// healTime is how soon paths that stopped working because cables moved must be replaced (clause 9.4).
const healTime = 2 * time.Second

// cable joins link k of node 0 to link to[k] of node 1; -1: to none.
func (r *rig) cable(to ...int) {
	r.far = func(from, link int) int {
		if from == 1 {
			return slices.Index(to, link)
		}
		if link < len(to) {
			return to[link]
		}
		return -1
	}
}

// led reports whether the good paths of the nodes lead where the cables do, and are as many.
func (r *rig) led(cables int, nodes ...int) bool {
	for _, i := range nodes {
		good := 0
		for _, p := range r.n[i].e.Snapshot(r.now).Peers {
			for _, q := range p.Paths {
				if q.State != "good" {
					continue
				}
				if q.PeerLink != r.far(i, q.Link) {
					return false
				}
				good++
			}
		}
		if good != cables {
			return false
		}
	}
	return true
}

// heals waits, with nothing or with the stream going on, until all is led.
func (r *rig) heals(what string, cables int, s *stream, nodes ...int) {
	r.t.Helper()
	start, is := r.now, func() bool { return r.led(cables, nodes...) }
	if s == nil {
		r.must(what, healTime, is)
	} else {
		s.worst, s.last = 0, s.now
		if n := s.seen; !s.run(healTime, func() bool { return is() && s.seen > n }) || s.worst > healTime {
			r.t.Fatalf("%s: not within %v, nothing completed for %v: %+v", what, healTime, s.worst,
				r.n[0].e.Snapshot(r.now).Peers)
		}
	}
	r.t.Logf("%s: after %v", what, r.now.Sub(start))
}

// forgedHello is a Hello in node from's name, on link of the other one.
func forgedHello(from, link, named int, mac [6]byte) flight {
	h := helloOf(from, named, 1500, 1)
	return flight{link: link, b: raw(mac, [6]byte{255, 255, 255, 255, 255, 255}, wire.Header{Type: wire.TypeHello},
		h.AppendTo(nil))}
}

// Four forged Hellos, one per link and host, say that the cables run straight when they are crossed, and the other way
// round: before a dial, after it, and with addresses that are true or made up.
func TestPoisonedHello(t *testing.T) {
	for _, crossed := range []bool{false, true} {
		for _, evil := range []bool{false, true} {
			for _, before := range []bool{false, true} {
				r := newRig(t, rigOptions{sealed: true, links: 2})
				to := []int{0, 1}
				if crossed {
					to = []int{1, 0}
				}
				r.cable(to...)
				poison := func() {
					for i := range r.n {
						for link := range 2 {
							named := 1 - r.far(i, link)
							mac := macOf(1-i, named)
							if evil {
								mac = [6]byte{2, 6, 6, 6, byte(i), byte(link)}
							}
							r.give(i, forgedHello(1-i, link, named, mac))
						}
					}
				}
				if before {
					r.rest(20 * time.Millisecond)
					poison()
				}
				c := r.connect(engine.DialOptions{})
				if !before {
					poison()
				}
				r.heals(fmt.Sprintf("crossed %v, evil %v, before %v", crossed, evil, before), 2, nil, 0, 1)
				r.echoWorks(c)
			}
		}
	}
}

// Two switch ports are swapped while nobody sends: both paths are replaced in time, and what is sent at once arrives in
// time.
func TestSwapAtRest(t *testing.T) { inBothForms(t, testSwapAtRest) }

func testSwapAtRest(t *testing.T, sealed bool) {
	for _, idle := range []time.Duration{0, 10 * time.Millisecond, 777 * time.Millisecond, time.Second,
		20 * time.Second} {
		r := newRig(t, rigOptions{sealed: sealed, links: 2})
		r.cable(0, 1)
		c := r.connect(engine.DialOptions{})
		r.settle()
		r.echoWorks(c)
		for k, to := range [][]int{{1, 0}, {0, 1}, {1, 0}} {
			r.rest(idle)
			r.cable(to...)
			start := r.now
			if k == 1 {
				r.rest(healTime) // nobody asks
			}
			r.echoWorks(c)
			if took := r.now.Sub(start); k != 1 && took > healTime {
				t.Errorf("idle for %v, swap %d: %v", idle, k, took)
			}
			r.heals(fmt.Sprintf("idle for %v, swap %d", idle, k), 2, nil, 0, 1)
		}
		if len(r.n[0].closed)+len(r.n[1].closed) != 0 {
			t.Error("closed")
		}
	}
}

// The same under load, through every order of three links, back and forth.
func TestPermutedUnderLoad(t *testing.T) { inBothForms(t, testPermutedUnderLoad) }

func testPermutedUnderLoad(t *testing.T, sealed bool) {
	orders := permutations(3)
	for _, from := range orders {
		r := newRig(t, rigOptions{sealed: sealed, links: 3, mtu: 9000})
		r.cable(from...)
		s := newStream(r, r.connect(engine.DialOptions{}))
		s.forTime(300*time.Millisecond, 300*time.Millisecond)
		for _, to := range orders {
			r.cable(to...)
			r.heals(fmt.Sprint("from ", from, " to ", to), 3, s, 0)
			r.cable(from...)
			r.heals(fmt.Sprint("from ", to, " to ", from), 3, s, 0)
		}
		s.finish()
		r.rest(healTime)
		if !r.led(3, 1) {
			t.Errorf("the other end: %+v", r.n[1].e.Snapshot(r.now).Peers)
		}
	}
}

// One cable moves to another link, or all but one are pulled: whatever pair still connects carries on, with unequal
// numbers of links too.
func TestLastCable(t *testing.T) { inBothForms(t, testLastCable) }

func testLastCable(t *testing.T, sealed bool) {
	for _, links := range [][2]int{{3, 1}, {1, 3}, {4, 2}, {2, 4}, {9, 9}} {
		r := newRig(t, rigOptions{sealed: sealed, links: 1})
		for i := range r.n {
			r.boot(i, 1, rigOptions{sealed: sealed, links: links[i]})
		}
		var all []int
		for k := range links[0] {
			if all = append(all, k); k >= links[1] {
				all[k] = -1
			}
		}
		r.cable(all...)
		s := newStream(r, r.connect(engine.DialOptions{}))
		s.depth, s.size = 1, 2000
		s.forTime(300*time.Millisecond, 300*time.Millisecond)
		for a := range links[0] {
			b := (2*a + 1) % links[1]
			to := slices.Repeat([]int{-1}, links[0])
			to[a] = b
			r.cable(to...)
			r.heals(fmt.Sprintf("%v links, %d to %d", links, a, b), 1, s, 0)
		}
		r.cable(all...)
		r.heals(fmt.Sprintf("%v links, as at first", links), min(links[0], links[1]), s, 0)
		s.finish()
	}
}

// A dial that finds the cables moved, or that they move under, connects in time: with what an earlier session knew, and
// with what Hello said.
func TestDialAfterMoves(t *testing.T) { inBothForms(t, testDialAfterMoves) }

func testDialAfterMoves(t *testing.T, sealed bool) {
	for k, to := range permutations(4) {
		o := rigOptions{sealed: sealed, links: 4}
		r := newRig(t, o)
		r.cable(0, 1, 2, 3)
		if sealed && k%2 == 0 {
			r.echoWorks(r.connect(engine.DialOptions{}))
		}
		r.rest(time.Duration(k) * 100 * time.Millisecond)
		for i := range r.n {
			if !sealed {
				break
			}
			r.n[i].e.SetPeers(r.now, peersOf(t)) // what sessions there are end
			r.n[i].e.SetPeers(r.now, peersOf(t, 1-i))
		}
		moves := r.now.Add(time.Duration(k%6) * 5 * time.Microsecond)
		r.pass = func(int, *flight) bool {
			if r.now >= moves {
				r.cable(to...)
			}
			return true
		}
		start := r.now
		c := r.connect(engine.DialOptions{})
		if took := r.now.Sub(start); took > 5*time.Second {
			t.Errorf("%v: connected after %v", to, took)
		} else if k%8 == 0 {
			t.Logf("%v: connected after %v", to, took)
		}
		r.heals(fmt.Sprint("paths ", to), 4, nil, 0, 1)
		r.echoWorks(c)
	}
}

// What was only heard ages: a link on which somebody spoke in the peer's name for a while has a path no more some time
// later.
func TestHeardAges(t *testing.T) {
	r := newRig(t, rigOptions{sealed: true, links: 2})
	r.cable(0, -1)
	c := r.connect(engine.DialOptions{})
	r.rest(time.Second)
	if p := r.path(0, 1); p.State != "" {
		t.Fatalf("a path that nobody was heard on: %+v", p)
	}
	for range 3 {
		r.give(0, forgedHello(1, 1, 1, macOf(1, 1)))
		r.rest(time.Second)
		if p := r.path(0, 1); p.State != "probing" {
			t.Fatalf("somebody was heard, the path is %+v", p)
		}
	}
	r.rest(12 * time.Second)
	if p := r.path(0, 1); p.State != "" {
		t.Errorf("nobody was heard for 12 s, the path is %+v", p)
	}
	r.echoWorks(c)
}

// A stranger names every link there can be on every link there is, with his own addresses, a thousand times a second
// and more: a swap is healed in time, and what is remembered and sent for him does not grow.
func TestFloodOfCandidates(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{sealed: true, links: 2, mtu: 9000})
	r.cable(0, 1)
	s := newStream(r, r.connect(engine.DialOptions{}))
	s.depth, s.size = 1, 2000
	s.forTime(300*time.Millisecond, 100*time.Millisecond)
	sizes, sent := r.n[0].e.TableSizes(), r.n[0].e.Count.Traffic.DataFramesSent
	k, next := 0, r.now
	r.pass = func(int, *flight) bool {
		for ; next <= r.now; next = next.Add(200 * time.Microsecond) {
			k++
			for i := range r.n {
				f := forgedHello(1-i, k/engine.MaxLinks%2, k%engine.MaxLinks, [6]byte{2, 6, 6, byte(k >> 16),
					byte(k >> 8), byte(k)})
				r.n[i].handle(r.now, f.link, f.b)
			}
		}
		return true
	}
	for _, to := range [][]int{{1, 0}, {0, 1}, {1, -1}, {0, 1}} {
		r.cable(to...)
		r.heals(fmt.Sprint(to), 2-max(0, -slices.Min(to)), s, 0)
		s.forTime(time.Second, healTime)
	}
	s.finish()
	before := r.n[0].e.Count.Traffic.DataFramesSent
	r.rest(10 * time.Second)
	if n := r.n[0].e.Count.Traffic.DataFramesSent - before; n > 200 {
		t.Errorf("%d frames in 10 s of rest", n)
	}
	if now := r.n[0].e.TableSizes(); now.Sessions != sizes.Sessions || len(r.n[0].e.Snapshot(r.now).Peers) != 1 ||
		k < 20_000 || before == sent {
		t.Errorf("%d forged, %+v, at first %+v", k, now, sizes)
	}
}

// Each end was told that the link is gone which now alone is joined: it came back when nobody could tell.
func TestGoneLinksReturn(t *testing.T) {
	r := newRig(t, rigOptions{sealed: true, links: 2})
	r.cable(0, 1)
	c := r.connect(engine.DialOptions{})
	r.settle()
	r.n[0].e.RemoveLink(r.now, 0)
	r.rest(healTime)
	r.cable(-1, 0)
	r.rest(healTime)
	r.n[1].e.RemoveLink(r.now, 1)
	r.rest(healTime)
	r.cable(-1, -1)
	for i, link := range []int{0, 1} {
		if err := r.n[i].e.SetLink(r.now, link, engine.LinkConfig{Name: fmt.Sprint("edge", link),
			Addr: frame.Ether(macOf(i, link)),
			MTU:  1500, RxSlots: 256}); err != nil {
			t.Fatal(err)
		}
	}
	r.rest(time.Second)
	r.cable(1, -1)
	r.heals("one cable, between links that were gone", 1, nil, 0, 1)
	r.echoWorks(c)
}
