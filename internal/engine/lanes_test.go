package engine_test

import (
	"bytes"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"multiedge/flowctl"
	"multiedge/internal/engine"
	"multiedge/internal/frame"
)

// laneNet is what lies between two nodes with lanes: ways that routers choose by the ports of a flow.
type laneNet struct {
	*rig
	lanes [2]int
	ports [2]map[laneSocket]uint16
	next  uint16
	draws [2]int
	lose  func(from int, ports [2]uint16) bool
	marks bool           // routers mark everything
	sent  [2]map[int]int // data frames of each lane
	// link 0 is an IP link of its own, beside the lanes
	beside bool
	// takes what comes to a lane of node to in place of the node; nil: the node does, at once
	held func(to, link int, give func())
}

// laneSocket is one of the sockets from which a lane asks.
type laneSocket struct {
	lane   int
	socket uint8
}

const (
	frontPort  = 9470
	besidePort = 9480
)

// newLaneNet joins two nodes by lanes. Node 0 knows where node 1 is; with both, node 1 knows it of node 0, too.
func newLaneNet(t *testing.T, lanes [2]int, both bool) *laneNet {
	t.Helper()
	r := &laneNet{rig: newRig(t, rigOptions{sealed: true}), lanes: lanes, next: 40000}
	for i := range r.n {
		r.n[i].e.RemoveLink(r.now, 0)
		r.ports[i], r.sent[i] = map[laneSocket]uint16{}, map[int]int{}
		for k := range lanes[i] {
			for _, socket := range []uint8{frame.SocketAsk, frame.SocketOther} {
				r.draw(i, laneSocket{k, socket})
			}
			if err := r.n[i].e.SetLink(r.now, k, engine.LinkConfig{Name: fmt.Sprint("lane", k), Addr: r.front(i),
				MTU: ipLinkMTU, RxSlots: 256, Super: 65507, Below: ipBelow, Ports: lanes[i] > 1}); err != nil {
				t.Fatal(err)
			}
		}
	}
	r.rig.route = r.deliver
	r.n[0].e.SetEndpoints(r.now, identity(1).Public().Node(), []frame.Addr{r.front(1)})
	if both {
		r.n[1].e.SetEndpoints(r.now, identity(0).Public().Node(), []frame.Addr{r.front(0)})
	}
	return r
}

func (r *laneNet) front(i int) frame.Addr { return r.at(i, frontPort) }

func (r *laneNet) at(i int, port uint16) frame.Addr {
	return frame.IP(netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(i), 0, 2}), port))
}

func (r *laneNet) draw(i int, s laneSocket) {
	r.next++
	r.ports[i][s] = r.next
}

// deliver takes a frame of node from, as its driver, the routers and the driver of the other node do.
func (r *laneNet) deliver(from int, f *flight) {
	for {
		link, socket, ok := r.n[from].e.Drawn()
		if !ok {
			break
		}
		r.draws[from]++
		r.draw(from, laneSocket{link, socket})
	}
	if len(f.b) > 640 {
		r.sent[from][f.link]++
	}
	source := uint16(frontPort)
	switch {
	case r.beside && f.link == 0:
		source = besidePort
	case r.lanes[from] > 1 && f.to.Socket() != frame.SocketFront:
		source = r.ports[from][laneSocket{f.link, f.to.Socket()}]
	}
	to := f.to.AddrPort().Port()
	if r.lose != nil && r.lose(from, [2]uint16{source, to}) {
		return
	}
	origin, other := r.at(from, source), 1-from
	if to == frontPort {
		if r.lanes[other] > 1 {
			origin = origin.By(frame.SocketFront)
		}
		r.give(other, int(f.b[frame.HeaderLen+2])%r.lanes[other], origin, f.b)
		return
	}
	if to == besidePort {
		r.give(other, 0, origin, f.b)
		return
	}
	for s, port := range r.ports[other] {
		if port == to {
			r.give(other, s.lane, origin, f.b)
		}
	}
}

func (r *laneNet) give(i, link int, origin frame.Addr, b []byte) {
	ecn := frame.NotECT
	if r.marks {
		ecn = frame.CE
	}
	give := func() {
		r.n[i].e.Handle(r.now, link, engine.Arrival{Rx: frame.Rx{Head: bytes.Clone(b), Origin: &origin, ECN: ecn}})
		r.poll(i)
	}
	if r.held != nil {
		r.held(i, link, give)
		return
	}
	give()
}

// good counts the good paths of node i.
func (r *laneNet) good(i int) (n int) {
	for _, p := range r.n[i].e.Snapshot(r.now).Peers[0].Paths {
		if p.State == "good" {
			n++
		}
	}
	return n
}

func (r *laneNet) write(i int, c [2]engine.ConnID, n int, token uint64, limit time.Duration) {
	r.t.Helper()
	mem, key := r.export(1-i, c[1-i], n, both)
	data := pattern(int(token), n)
	r.submit(i, c[i], engine.Op{Kind: engine.OpWrite, Token: token, Local: data, Key: key})
	r.must("write", limit, func() bool { _, ok := r.n[i].done[token]; return ok })
	r.wantStatus(i, token, engine.OK)
	if !bytes.Equal(mem, data) {
		r.t.Fatal("the bytes differ")
	}
}

// way is the one that a flow takes of four.
func way(ports [2]uint16) int {
	return int((uint32(ports[0])*2654435761+uint32(ports[1])*40503)>>20) % 4
}

// Clause 21.9: all lanes of both nodes become paths, each with one flow for both directions, whoever knows whose
// address, and also if the nodes have unequal numbers of lanes.
func TestLanesOfBothEnds(t *testing.T) {
	for _, lanes := range [][2]int{{8, 8}, {8, 3}, {3, 8}, {4, 1}, {1, 4}, {2, 16}} {
		for _, mutual := range []bool{false, true} {
			r := newLaneNet(t, lanes, mutual)
			flows := map[[2]uint16]int{}
			r.lose = func(from int, p [2]uint16) bool {
				flows[[2]uint16{p[from], p[1-from]}] |= 1 << from
				return false
			}
			c := r.connect(engine.DialOptions{})
			want := lanes
			if want[1] > want[0] {
				want[1] = want[0] // nobody shows itself on the others
			}
			r.must("paths", 5*time.Second, func() bool {
				return r.good(0) == want[0] && r.good(1) >= min(want[0], want[1])
			})
			r.rest(time.Second)
			clear(flows)
			r.sent = [2]map[int]int{{}, {}}
			for k := range uint64(20) {
				r.write(0, c, 300000, 1+k, time.Second)
				r.write(1, c, 300000, 101+k, time.Second)
			}
			if len(r.sent[0]) != want[0] || len(r.sent[1]) < min(want[0], want[1]) {
				t.Errorf("lanes %v, mutual %v: data leave on lanes %v and %v", lanes, mutual, r.sent[0], r.sent[1])
			}
			if lanes[0] != lanes[1] {
				continue
			}
			for ports, ends := range flows {
				if ends != 3 {
					t.Errorf("lanes %v, mutual %v: the flow %v has one direction", lanes, mutual, ports)
				}
			}
			if r.draws != [2]int{} {
				t.Errorf("lanes %v, mutual %v: %v ports were drawn, and nothing was lost", lanes, mutual, r.draws)
			}
		}
	}
}

// Clauses 21.7 and 21.9: one of four ways turns black, in one direction or both. No write takes longer than some probe
// times, and after some time all lanes are good again, over the others.
func TestLanesDrawOtherPorts(t *testing.T) {
	for name, black := range map[string]func(from int) bool{
		"there": func(from int) bool { return from == 0 }, "back": func(from int) bool { return from == 1 },
		"both": func(int) bool { return true },
	} {
		for _, dialler := range []bool{true, false} {
			r := newLaneNet(t, [2]int{8, 8}, true)
			r.hop = 50 * time.Microsecond
			c := r.connect(engine.DialOptions{})
			r.must("paths", 5*time.Second, func() bool { return r.good(0)+r.good(1) == 16 })
			r.settle()
			writer := 1
			if dialler {
				writer = 0
			}
			token, worst, alive := uint64(1), time.Duration(0), 1
			write := func() {
				start := r.now
				r.write(writer, c, 64<<10, token, 2*time.Second)
				token, worst = token+1, max(worst, r.now.Sub(start))
			}
			for range 20 {
				write()
			}
			clean := worst
			lost := 0
			for k := range 4 { // one that carries data
				r.lose = func(from int, ports [2]uint16) bool {
					if way(ports) == k && from == writer {
						alive = k
					}
					return false
				}
				write()
			}
			r.lose = func(from int, ports [2]uint16) bool {
				if way(ports) != alive || !black(from) {
					return false
				}
				lost++
				return true
			}
			for range 100 {
				write()
			}
			if lost == 0 {
				t.Fatalf("%s: no flow takes that way", name)
			}
			if worst > clean+50*time.Millisecond {
				t.Errorf("%s, dialler %v: a write took %v, and %v before", name, dialler, worst, clean)
			}
			for end := r.now.Add(8 * time.Second); r.now < end && r.good(0)+r.good(1) < 16; {
				write()
				r.rest(10 * time.Millisecond)
			}
			if r.good(0)+r.good(1) < 16 {
				t.Errorf("%s, dialler %v: %d and %d lanes are good", name, dialler, r.good(0), r.good(1))
			}
			if r.draws[1] > 0 || r.n[0].e.Count.Life.LaneDraws == 0 {
				t.Errorf("%s, dialler %v: %v ports drawn", name, dialler, r.draws)
			}
		}
	}
}

// Clause 21.8: on a long path the window follows TCP's rule, and grows beyond what a session has in a building; lanes
// share it. Within a building it stays what it was.
func TestLongIPPaths(t *testing.T) {
	for name, c := range map[string]struct {
		hop   time.Duration
		lanes int
		way   string
		long  bool
	}{"far": {20 * time.Millisecond, 1, "auto", true}, "far lanes": {20 * time.Millisecond, 8, "auto", true},
		"near": {200 * time.Microsecond, 8, "auto", false}, "by choice": {20 * time.Millisecond, 1, "fabric", false},
		"lossy": {20 * time.Millisecond, 2, "lossy", true}} {
		r := newLaneNet(t, [2]int{c.lanes, c.lanes}, true)
		r.hop = c.hop
		for i := range r.n {
			for k := range c.lanes {
				if err := r.n[i].e.SetLink(r.now, k, engine.LinkConfig{Name: fmt.Sprint("lane", k), Addr: r.front(i),
					MTU: ipLinkMTU, RxSlots: 16384, Super: 65507, Below: ipBelow, Ports: c.lanes > 1,
					Congestion: flowctl.IPCongestion(c.way), Group: "front"}); err != nil {
					t.Fatal(err)
				}
			}
		}
		conn := r.connect(engine.DialOptions{})
		r.must("paths", 5*time.Second, func() bool { return r.good(0)+r.good(1) == 2*c.lanes })
		most, seen := 0, 0
		r.lose = func(int, [2]uint16) bool {
			if seen++; seen%64 == 0 {
				sum := 0
				for _, p := range r.n[0].e.Snapshot(r.now).Peers[0].Paths {
					sum += p.InFlight
				}
				most = max(most, sum)
			}
			return false
		}
		for k := range uint64(6) {
			r.write(0, conn, 4<<20, 1+k, 10*time.Second)
		}
		if long := most > 700; long != c.long {
			t.Errorf("%s: up to %d frames in flight", name, most)
		}
	}
}
