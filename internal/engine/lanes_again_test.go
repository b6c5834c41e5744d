package engine_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"multiedge/internal/engine"
	"multiedge/internal/frame"
	"multiedge/internal/secure"
)

// unauthorise ends the sessions of both nodes, as if each were authorised no more, and authorises them again.
func (r *laneNet) unauthorise() {
	for i := range r.n {
		again, err := secure.NewPeers(secure.Peer{Name: fmt.Sprint("node", 1-i), Key: identity(1 - i).Public()})
		if err != nil {
			r.t.Fatal(err)
		}
		r.n[i].e.SetPeers(r.now, new(secure.Peers))
		r.n[i].e.SetPeers(r.now, again)
	}
}

// The end of a session is no fault of its ways: no port is drawn for it.
func TestLanesAreNotDrawnAtTheEnd(t *testing.T) {
	r := newLaneNet(t, [2]int{4, 4}, true)
	r.connect(engine.DialOptions{})
	r.must("paths", 5*time.Second, func() bool { return r.good(0)+r.good(1) == 8 })
	r.settle()
	r.unauthorise()
	if _, _, drawn := r.n[0].e.Drawn(); drawn || r.n[0].e.Count.Life.LaneDraws != 0 {
		t.Errorf("%d draws, another port wanted: %v", r.n[0].e.Count.Life.LaneDraws, drawn)
	}
}

// A node that was asked on its lanes, and asks when that session is over, asks the other's front from ports of its own:
// lanes whose ways die can have others only so.
func TestLanesAskTheFront(t *testing.T) {
	r := newLaneNet(t, [2]int{4, 4}, true)
	r.connect(engine.DialOptions{})
	r.must("paths", 5*time.Second, func() bool { return r.good(0)+r.good(1) == 8 })
	r.settle()
	r.unauthorise()
	r.n[0].e.Listen("back")
	if _, err := r.n[1].e.Dial(r.now, "node0", "back", engine.DialOptions{}); err != nil {
		t.Fatal(err)
	}
	r.must("paths back", 5*time.Second, func() bool { return r.good(1) == 4 })
	for _, p := range r.n[1].e.Snapshot(r.now).Peers[0].Paths {
		if p.PeerAddr != r.front(0) {
			t.Errorf("lane %d asks %v, not the front %v", p.Link, p.PeerAddr, r.front(0))
		}
	}
}

// reopen opens all lanes of node i anew, as a reload with another number of lanes does.
func (r *laneNet) reopen(i, lanes int) {
	r.t.Helper()
	for k := range r.lanes[i] {
		r.n[i].e.RemoveLink(r.now, k)
	}
	clear(r.ports[i])
	r.lanes[i] = lanes
	for k := range lanes {
		for _, socket := range []uint8{frame.SocketAsk, frame.SocketOther} {
			r.draw(i, laneSocket{k, socket})
		}
		if err := r.n[i].e.SetLink(r.now, k, engine.LinkConfig{Name: fmt.Sprint("lane", k), Addr: r.front(i),
			MTU: ipLinkMTU, RxSlots: 256, Super: 65507, Below: ipBelow, Ports: true}); err != nil {
			r.t.Fatal(err)
		}
	}
}

// Clause 21.9: one end opens its lanes anew, more of them or fewer. The other goes on within some round trips,
// whichever end asked for the session, although no other path stands in.
func TestLanesOpenedAnew(t *testing.T) {
	for again := range 2 {
		for _, lanes := range []int{4, 8, 2} {
			for writer := range 2 {
				r := newLaneNet(t, [2]int{4, 4}, false)
				r.hop = 50 * time.Microsecond
				c := r.connect(engine.DialOptions{})
				r.must("paths", 5*time.Second, func() bool { return r.good(0)+r.good(1) == 8 })
				r.settle()
				r.reopen(again, lanes)
				start := r.now
				r.write(writer, c, 1000, 1, 5*time.Second)
				if took := r.now.Sub(start); took > 2*time.Millisecond {
					t.Errorf("node %d opens %d lanes anew: a write of node %d takes %v", again, lanes, writer, took)
				}
				want := min(r.lanes[0], 8) + min(r.lanes[1], r.lanes[0])
				r.must("all lanes", 5*time.Second, func() bool { return r.good(0)+r.good(1) >= want })
				r.write(0, c, 1<<20, 2, time.Second)
				r.write(1, c, 1<<20, 3, time.Second)
			}
		}
	}
}

// A peer that opens its lanes anew without end has paths begin anew only so often.
func TestLanesOpenedAnewWithoutEnd(t *testing.T) {
	r := newLaneNet(t, [2]int{4, 4}, false)
	r.connect(engine.DialOptions{})
	r.must("paths", 5*time.Second, func() bool { return r.good(0)+r.good(1) == 8 })
	r.settle()
	r.n[1].events = nil
	for range 50 { // half a second
		r.reopen(0, 4)
		r.rest(10 * time.Millisecond)
	}
	anew := 0
	for _, ev := range r.n[1].events {
		if ev.Kind == engine.EvPath && strings.Contains(ev.Text, "opened anew") {
			anew++
		}
	}
	if anew == 0 || anew > 4*3 {
		t.Errorf("paths began anew %d times", anew)
	}
	r.rest(time.Second)
	if r.good(1) != 4 {
		t.Errorf("%d lanes are good", r.good(1))
	}
}

// Clauses 21.5 and 21.9: somebody on the way copies frames, fresh ones, and sends them on from a port of his, first,
// after the peer told of a change of its link. The path stays where it is: the old port goes on to answer.
func TestCopiedFramesAfterAChange(t *testing.T) {
	r := newLaneNet(t, [2]int{2, 2}, false)
	r.hop = 50 * time.Microsecond
	c := r.connect(engine.DialOptions{})
	r.must("paths", 5*time.Second, func() bool { return r.good(0)+r.good(1) == 4 })
	r.settle()
	r.rest(time.Second)
	thief := r.at(0, 666).By(frame.SocketFront)
	copied, asked := 0, 0
	r.rig.route = func(from int, f *flight) {
		if from == 1 && f.to == thief {
			asked++
		}
		if from == 0 {
			copied++
			r.give(1, int(f.b[frame.HeaderLen+2])%2, thief, f.b)
		}
		r.deliver(from, f)
	}
	for k := range 2 { // the description alone is new: ports are as before
		if err := r.n[0].e.SetLink(r.now, k, engine.LinkConfig{Name: fmt.Sprint("lane", k), Addr: r.front(0),
			MTU: ipLinkMTU, RxSlots: 256, Super: 65507, Below: ipBelow, Ports: true}); err != nil {
			t.Fatal(err)
		}
	}
	r.n[1].events = nil
	for k := range uint64(5) {
		r.write(0, c, 100000, 1+2*k, time.Second)
		r.write(1, c, 100000, 2+2*k, time.Second)
	}
	for _, p := range r.n[1].e.Snapshot(r.now).Peers[0].Paths {
		if p.PeerAddr == thief {
			t.Errorf("lane %d leads to %v", p.Link, p.PeerAddr)
		}
	}
	for _, ev := range r.n[1].events {
		if ev.Kind == engine.EvPath && strings.Contains(ev.Text, "opened anew") {
			t.Error(ev.Text)
		}
	}
	t.Logf("%d copies, %d frames to the thief", copied, asked)
	if copied < 100 {
		t.Errorf("%d frames were copied", copied)
	}
}
