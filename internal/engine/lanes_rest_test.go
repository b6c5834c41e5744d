package engine_test

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"multiedge/flowctl"
	"multiedge/internal/engine"
	"multiedge/internal/frame"
	"multiedge/sched"
)

// fabricLanes joins two nodes by lanes whose windows are those of a building, and which may rest.
func fabricLanes(t *testing.T, lanes int) *laneNet {
	t.Helper()
	r := newLaneNet(t, [2]int{lanes, lanes}, true)
	r.control("fabric")
	return r
}

// control sets how congestion is controlled on all lanes.
func (r *laneNet) control(way string) {
	r.t.Helper()
	for i := range r.n {
		for k := range r.lanes[i] {
			at, group := r.front(i), "front"
			if r.beside && k == 0 {
				at, group = r.at(i, besidePort), "beside"
			}
			if err := r.n[i].e.SetLink(r.now, k, engine.LinkConfig{Name: fmt.Sprint("lane", k), Addr: at,
				MTU: ipLinkMTU, RxSlots: 256, Super: 65507, Below: ipBelow, Ports: at == r.front(i), ECN: true,
				Congestion: flowctl.IPCongestion(way), Group: group}); err != nil {
				r.t.Fatal(err)
			}
		}
	}
}

// awake are node 0's lanes that do not rest.
func (r *laneNet) awake() (list []int) {
	for _, p := range r.n[0].e.Snapshot(r.now).Peers[0].Paths {
		if p.Window > 0 {
			list = append(list, p.Link)
		}
	}
	return list
}

// Clause 21.8: lanes of small windows rest, and no scheduler waits for one that does. A path that marks everything
// makes all but one rest.
func TestNoSchedulerWaitsForRestingLanes(t *testing.T) {
	for _, name := range sched.Names() {
		for _, lanes := range []int{2, 8} {
			r := fabricLanes(t, lanes)
			c := r.connect(engine.DialOptions{Scheduler: name})
			r.must("all lanes", 10*time.Second, func() bool { return r.good(0) == lanes })
			r.marks = true
			r.write(0, c, 4<<20, 1, 60*time.Second)
			if awake := r.awake(); len(awake) == lanes {
				t.Errorf("%s, %d lanes: none rests", name, lanes)
			}
		}
	}
}

// Clauses 21.7 and 21.8: the only lane that is awake turns black, and of those that rest all but one. Once that one was
// answered it takes over: work that waits leaves by it before the black one is known to be dead, and what is in flight
// there after two probe times, of which the second is no longer than the first.
func TestRestingLaneStandsInForABlackOne(t *testing.T) {
	const lanes, probeTime = 8, flowctl.MinPTO
	for alive := range lanes {
		r := fabricLanes(t, lanes)
		r.hop = 50 * time.Microsecond
		c := r.connect(engine.DialOptions{})
		r.must("all lanes", 10*time.Second, func() bool { return r.good(0)+r.good(1) == 2*lanes })
		r.marks = true
		r.write(0, c, 4<<20, 1, 60*time.Second)
		r.must("one lane is awake", 10*time.Second, func() bool {
			if len(r.awake()) > 1 {
				r.write(0, c, 64<<10, uint64(len(r.n[0].done))+1, time.Second)
			}
			return len(r.awake()) == 1
		})
		if r.awake()[0] == alive {
			continue
		}
		r.rest(20 * time.Millisecond)
		open := map[uint16]bool{frontPort: true}
		for s, port := range r.ports[0] {
			open[port] = s.lane == alive
		}
		r.lose = func(from int, ports [2]uint16) bool { return !open[ports[from]] }
		mem, key := r.export(1, c[1], 2000, both)
		took, start := [2]time.Duration{}, r.now
		for k := range took {
			token := uint64(1000 + k)
			r.submit(0, c[0], engine.Op{Kind: engine.OpWrite, Token: token, Local: pattern(k, 1000), Key: key,
				Off: uint64(1000 * k)})
			r.rest(100 * time.Microsecond) // so that each has a frame of its own
		}
		r.must("writes", time.Second, func() bool {
			for k := range took {
				if _, ok := r.n[0].done[uint64(1000+k)]; ok && took[k] == 0 {
					took[k] = r.now.Sub(start)
				}
			}
			return took[0] > 0 && took[1] > 0
		})
		if !bytes.Equal(mem, append(pattern(0, 1000), pattern(1, 1000)...)) {
			t.Errorf("lane %d alive: the bytes differ", alive)
		}
		if took[0] > 5*probeTime/2 || took[1] > 3*probeTime/2 {
			t.Errorf("lane %d alive: what was in flight took %v, what waited behind it %v, with a probe time of %v",
				alive, took[0], took[1], probeTime)
		}
	}
}

// Clauses 21.7 and 21.8: an IP link of its own beside the lanes is answered first. The doubt about the lane stays until
// a lane of its own cable is answered, which takes over what waits.
func TestLinkBesideLeavesTheDoubtToLanes(t *testing.T) {
	r := newLaneNet(t, [2]int{5, 5}, true)
	r.beside = true
	r.control("fabric")
	for i := range r.n {
		r.n[i].e.SetEndpoints(r.now, identity(1-i).Public().Node(), []frame.Addr{r.front(1 - i), r.at(1-i, besidePort)})
	}
	r.hop = 50 * time.Microsecond
	astray := func(ports [2]uint16) bool { return (ports[0] == besidePort) != (ports[1] == besidePort) }
	r.lose = func(_ int, ports [2]uint16) bool { return astray(ports) }
	c := r.connect(engine.DialOptions{})
	r.must("all lanes", 60*time.Second, func() bool { return r.good(0) == 5 })
	r.marks = true
	token := uint64(0)
	r.must("one lane is awake", 30*time.Second, func() bool {
		token++
		r.write(0, c, 64<<10, token, time.Second)
		return len(r.awake()) == 2 && r.awake()[0] == 0
	})
	black := r.awake()[1]
	r.rest(20 * time.Millisecond)
	own := map[uint16]bool{}
	for s, port := range r.ports[0] {
		own[port] = s.lane == black
	}
	r.lose = func(from int, ports [2]uint16) bool { return own[ports[from]] || astray(ports) }
	_, key := r.export(1, c[1], 1000, both)
	flying := func(link int) int { return r.n[0].e.Snapshot(r.now).Peers[0].Paths[link].InFlight }
	for k := 0; flying(black) == 0; k++ { // some take the link beside
		r.submit(0, c[0], engine.Op{Kind: engine.OpWrite, Token: token + 1 + uint64(k), Local: pattern(k, 1000),
			Key: key})
		r.rest(200 * time.Microsecond)
		if k > 100 {
			t.Fatal("nothing takes the lane")
		}
	}
	start := r.now
	r.must("another lane takes over", time.Second, func() bool {
		awake := r.awake()
		return len(awake) == 2 && awake[0] == 0 && awake[1] != black
	})
	if took := r.now.Sub(start); took > 3*flowctl.MinPTO/2 {
		t.Errorf("it took %v, with a probe time of %v", took, flowctl.MinPTO)
	}
}
