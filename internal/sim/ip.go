package sim

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"time"

	"multiedge/flowctl"
	"multiedge/internal/engine"
	"multiedge/internal/fault"
	"multiedge/internal/frame"
	"multiedge/internal/mono"
)

// IP is the IP link that each node has besides its Ethernet links, behind them by number (PROTOCOL clause 21). Between
// two nodes there are several equal ways, each a segment behind those of the Ethernet links. Routers choose one by
// addresses and ports.
type IP struct {
	Lanes      int // 0: there is no IP link
	Ways       int
	Congestion string
	// nodes behind a translator of addresses: it passes what comes to the front, gives ports to what leaves from
	// others, and forgets these at times
	NAT  uint64
	Only bool // there are no Ethernet links
}

// ipHost is a node's IP link, as the network sees it.
type ipHost struct {
	place  byte              // the last byte of its address
	moved  mono.Time         // when that became another; 0: never
	ports  [][2]uint16       // of each lane, from which it asks
	mapped map[uint16]uint16 // ports outside by those inside, where there is a translator
}

const (
	ipFront   = 9470
	ipHeaders = 42 // of a datagram around a frame: those of IPv4, UDP, and 14 bytes (clause 21.2)
	ipWhole   = 65507
)

// ipMTU is the longest frame of the IP links.
func (o *Options) ipMTU() int { return max(o.MTU, 1500) - ipHeaders }

// ipNetwork makes the IP links' side of the network.
func (w *World) ipNetwork() {
	w.ipDice = stream(w.opt.Seed, ipStream+1000)
	for range w.opt.Nodes {
		w.ip = append(w.ip, ipHost{place: 2, ports: make([][2]uint16, w.opt.IP.Lanes), mapped: map[uint16]uint16{}})
	}
}

// fresh is a port that nobody has.
func (w *World) fresh() uint16 {
	w.lastPort++
	return 10000 + w.lastPort
}

// endpoint is where others reach a node.
func (w *World) endpoint(node int, port uint16) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(node), w.ip[node].place}), port)
}

// setLane brings a lane up, with ports of its own.
func (n *Node) setLane(i int) {
	o := &n.w.opt
	n.up |= 1 << i
	n.w.ip[n.Index].ports[i-o.Links] = [2]uint16{n.w.fresh(), n.w.fresh()}
	_ = n.E.SetLink(n.w.Now, i, engine.LinkConfig{Name: fmt.Sprintf("lane%d", i-o.Links), Addr: frame.EveryIP(ipFront),
		MTU: o.ipMTU(), RxSlots: o.Slots, Super: ipWhole, Below: ipHeaders, Ports: o.IP.Lanes > 1, ECN: true,
		Congestion: flowctl.IPCongestion(o.IP.Congestion), Group: "ip"})
}

// tell has a node know where all others are.
func (n *Node) tell() {
	for _, o := range n.w.Nodes {
		if o != n && o.id != nil {
			n.E.SetEndpoints(n.w.Now, o.ID(), []frame.Addr{frame.IP(n.w.endpoint(o.Index, ipFront))})
		}
	}
}

// redraw gives lanes the other ports that the engine asks for.
func (n *Node) redraw() {
	for link, socket, ok := n.E.Drawn(); ok; link, socket, ok = n.E.Drawn() {
		n.w.ip[n.Index].ports[link-n.w.opt.Links][socket/frame.SocketOther] = n.w.fresh()
	}
}

// sendIP sends a frame to where its link's engine directs it.
func (w *World) sendIP(from *Node, link int, f *frame.Tx, b []byte) {
	h, port := &w.ip[from.Index], uint16(ipFront)
	if w.opt.IP.Lanes > 1 && f.To.Socket() != frame.SocketFront {
		port = h.ports[link-w.opt.Links][f.To.Socket()/frame.SocketOther]
	}
	if w.translates(from.Index) && port != ipFront {
		if h.mapped[port] == 0 {
			h.mapped[port] = w.fresh()
		}
		port = h.mapped[port]
	}
	source, to := w.endpoint(from.Index, port), f.To.AddrPort()
	seg := w.opt.Links + way(port, to.Port())%w.opt.IP.Ways
	seen := fault.Frame{Len: len(b), Outer: ipHeaders - ethLen, Data: frameType(b) == typeData}
	v := w.streams[seg][from.Index].Next(&w.Net[seg][from.Index], w.Now, seen)
	w.Tally.count(&v, &seen)
	for _, c := range v.Copies[:v.N] {
		d := delivery{at: w.Now.Add(c.Wait), from: from.Index, frame: b, copied: v.N > 1, flipped: c.Bit / 8}
		if d.frame = append([]byte(nil), b...); c.Bit > 0 {
			d.frame[d.flipped] ^= 1 << (c.Bit % 8)
		}
		if f.Capable {
			if d.ecn = frame.ECT0; w.ipDice.Float64() < w.Marks {
				d.ecn = frame.CE
				w.Tally.Marked++
			}
		}
		if w.arrives(&d, source, to) {
			w.seq++
			d.seq = w.seq
			heap.Push(&w.queue, d)
		}
	}
}

// arrives finds the node and the lane that a frame is for, as routers, a translator and the kernel there do.
func (w *World) arrives(d *delivery, source, to netip.AddrPort) bool {
	ip := to.Addr().As4()
	if d.node = int(ip[2]); d.node == d.from || d.node >= len(w.Nodes) || w.endpoint(d.node, to.Port()) != to ||
		w.Apart[d.from][d.node] {
		return false
	}
	h, port := &w.ip[d.node], to.Port()
	d.origin = frame.IP(source)
	if port == ipFront {
		if d.link = w.opt.Links; w.opt.IP.Lanes > 1 {
			d.origin = d.origin.By(frame.SocketFront)
			d.link += int(d.frame[ethLen+2]) % w.opt.IP.Lanes
		}
		return true
	}
	for lane, ports := range h.ports {
		for _, p := range ports {
			if p == port && !w.translates(d.node) || h.mapped[p] == port && port != 0 {
				d.link = w.opt.Links + lane
				return true
			}
		}
	}
	return false
}

func (w *World) translates(node int) bool { return w.opt.IP.NAT>>node&1 != 0 }

// way is what routers make of the ports of a flow.
func way(from, to uint16) int { return int((uint32(from)*2654435761 + uint32(to)*2246822519) >> 20) }

// rebind has a translator forget which ports it gave.
func (w *World) rebind(node int) { clear(w.ip[node].mapped) }

// move gives a node another address, of which nobody is told.
func (w *World) move(node int) {
	w.ip[node].place++
	w.ip[node].moved = w.Now
}

// mixedFor is for how long a handshake may go on that a move disturbs, and its last frames be under way.
const mixedFor = 4 * time.Second

// mixed counts the frames of handshakes with an end that has moved meanwhile. If it has answered from both addresses
// the asking end takes it for two, and says another hello to each (clause 10.2). Pieces of both come from one address,
// make one hello that neither end has said, and keys that open nothing. The handshake is begun anew after its time.
func (w *World) mixed(frames []delivery) (n uint64) {
	for i := range frames {
		d := &frames[i]
		if !d.origin.Known() || frameType(d.frame) != typeCrypto {
			continue
		}
		if at := w.ip[d.from].moved; at != 0 && w.Now.Sub(at) < mixedFor {
			n++
		}
	}
	return n
}

// ipMix is what happens to IP links while there are faults.
type ipMix struct {
	rebinds int // of translators
	moves   int // of hosts, to other addresses
	blacks  int // ways that swallow everything for a while
	marks   int // times that routers mark frames, for a while
	opens   int // lanes that are closed and opened anew
}

// drawIP draws the IP links of a world, in half of those that are sealed.
func drawIP(o *Options) (m ipMix) {
	rng := stream(o.Seed, ipStream)
	if !o.Secure || rng.IntN(2) == 0 {
		return m
	}
	ways := flowctl.IPCongestions()
	o.IP = IP{Lanes: []int{1, 2, 4}[rng.IntN(3)], Ways: 1 + rng.IntN(4), Congestion: ways[rng.IntN(len(ways))],
		Only: rng.IntN(4) == 0}
	if rng.IntN(2) == 0 {
		o.IP.NAT = rng.Uint64() & (1<<o.Nodes - 1)
	}
	m = ipMix{rebinds: rng.IntN(4), moves: rng.IntN(3), blacks: rng.IntN(5), marks: rng.IntN(4), opens: rng.IntN(4)}
	if o.IP.NAT == 0 {
		m.rebinds = 0
	}
	return m
}

// troubleIP schedules what happens to IP links.
func (w *swarm) troubleIP(dice *rand.Rand) {
	do := func(n int, f func()) {
		for range n {
			w.world.After(w.some(dice, 1), func() {
				if !w.healed {
					f()
				}
			})
		}
	}
	m := &w.mix.ip
	do(m.rebinds, func() {
		w.report.Moved.Rebinds++
		w.world.rebind(dice.IntN(len(w.world.Nodes)))
	})
	do(m.moves, func() {
		w.report.Moved.Moves++
		w.world.move(dice.IntN(len(w.world.Nodes)))
		w.world.After(w.some(dice, 1), w.tellAll) // as names are looked up again
	})
	do(m.blacks, func() { w.blacken(dice) })
	do(m.marks, func() {
		w.world.Marks = []float64{0.02, 0.3, 1}[dice.IntN(3)]
		w.world.After(w.some(dice, 2), func() { w.world.Marks = 0 })
	})
	do(m.opens, func() {
		n, i := w.world.Nodes[dice.IntN(len(w.world.Nodes))], w.world.opt.Links+dice.IntN(w.world.opt.IP.Lanes)
		if n.Down || n.up&(1<<i) == 0 {
			return
		}
		w.report.Moved.Reopened++
		n.RemoveLink(i)
		w.world.After(w.some(dice, 8), func() {
			if !n.Down && n.up&(1<<i) == 0 {
				n.setLane(i)
			}
		})
	})
}

// some is a time that is at most a part of that of the faults.
func (w *swarm) some(dice *rand.Rand, part int64) (d time.Duration) {
	return time.Duration(dice.Int64N(int64(w.mix.duration)/part + 1))
}

// blacken has a way swallow everything for a while, in one direction or both.
func (w *swarm) blacken(dice *rand.Rand) {
	w.report.Moved.Blacks++
	seg, both := w.world.opt.Links+dice.IntN(w.world.opt.IP.Ways), dice.IntN(2) == 0
	set := func(cut bool) {
		for i := range w.world.Net[seg] {
			if both || i == 0 {
				w.world.Net[seg][i].Cut = cut
			}
		}
	}
	set(true)
	w.world.After(w.some(dice, 2), func() { set(false) })
}

func (w *swarm) tellAll() {
	for _, n := range w.world.Nodes {
		if !n.Down {
			n.tell()
		}
	}
}
