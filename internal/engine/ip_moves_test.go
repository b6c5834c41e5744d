package engine_test

import (
	"testing"
	"time"

	"multiedge/internal/engine"
	"multiedge/internal/frame"
)

// Clause 21.5: both ends are at another address at once, and one of them learns where the other is. Their paths lead to
// where nobody is any more, and so would their Echoes.
func TestIPBothMove(t *testing.T) {
	for asks := range 2 {
		for writer := range 2 {
			r := newIPNet(t, 1, rigOptions{})
			c := r.connect(engine.DialOptions{})
			r.settle()
			r.write(writer, c, 100000, 1, time.Second)
			now := [2]frame.Addr{ipAt("10.0.0.3:9470"), ipAt("10.1.0.3:9470")}
			for i, at := range now {
				r.seen[r.at[i][0]] = at
			}
			r.n[asks].e.SetEndpoints(r.now, r.id(1-asks), []frame.Addr{now[1-asks]})
			r.write(writer, c, 100000, 2, 5*time.Second)
			for i := range r.n {
				p := r.n[i].e.Snapshot(r.now).Peers[0]
				if p.Sessions != 1 || len(p.Paths) != 1 || p.Paths[0].PeerAddr != now[1-i] {
					t.Errorf("node %d asks, node %d writes: at node %d %d sessions, paths %+v", asks, writer, i,
						p.Sessions, p.Paths)
				}
			}
		}
	}
}

// Clauses 21.5 and 21.9: a lane asks from another port, since nothing that leaves from the first one passes, and what
// comes there does. The other end's path stays there; it asks whether that is so no more than once a second, on a path
// so long that each acknowledgement would bring the next question.
func TestLaneKeepsItsOldPort(t *testing.T) {
	r := newLaneNet(t, [2]int{2, 2}, false)
	r.hop = 15 * time.Millisecond
	c := r.connect(engine.DialOptions{})
	r.must("paths", 10*time.Second, func() bool { return r.good(0)+r.good(1) == 4 })
	r.rest(3 * time.Second)
	old, stays := r.ports[0][laneSocket{1, frame.SocketAsk}], 0
	r.lose = func(from int, ports [2]uint16) bool {
		if from == 1 && ports[1] == old {
			stays++
		}
		return from == 0 && ports[0] == old
	}
	r.write(0, c, 1<<20, 1, 10*time.Second)
	if r.n[0].e.Count.Life.LaneDraws == 0 {
		t.Fatal("the lane has no other port")
	}
	r.must("all lanes", 10*time.Second, func() bool { return r.good(0)+r.good(1) == 4 })
	r.rest(3 * time.Second)
	stays = 0
	r.rest(10 * time.Second)
	if stays == 0 {
		t.Error("the path has left the port where it is answered")
	}
	t.Logf("in 10 s at rest %d frames were sent to that port", stays)
	if stays > 30 {
		t.Errorf("in 10 s at rest %d frames were sent to that port", stays)
	}
}
