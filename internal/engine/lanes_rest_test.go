package engine_test

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"multiedge/flowctl"
	"multiedge/internal/engine"
	"multiedge/sched"
)

// fabricLanes joins two nodes by lanes whose windows are those of a building, and which may rest.
func fabricLanes(t *testing.T, lanes int) *laneNet {
	t.Helper()
	r := newLaneNet(t, [2]int{lanes, lanes}, true)
	for i := range r.n {
		for k := range lanes {
			if err := r.n[i].e.SetLink(r.now, k, engine.LinkConfig{Name: fmt.Sprint("lane", k), Addr: r.front(i),
				MTU: ipLinkMTU, RxSlots: 256, Super: 65507, Below: ipBelow, Ports: true, ECN: true,
				Congestion: flowctl.IPCongestion("fabric"), Group: "front"}); err != nil {
				t.Fatal(err)
			}
		}
	}
	return r
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
