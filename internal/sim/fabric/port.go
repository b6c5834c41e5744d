package fabric

import (
	"math"
	"time"
)

// The way of a packet: the NIC of its host, the leaf switch; if the other host has another leaf, a spine switch, which
// the hash of the flow chooses, and that leaf; the other host. Every port sends one packet after the other, each whole
// before the next switch looks at it.

// port is one direction of a link, with the queue before it.
type port struct {
	queue, cable fifo
	held         int      // bytes of the queue; the packet that is being sent counts until it has left
	of           *buffers // nil: of a host, whose transport bounds the queue
	perByte      float64  // ns
	delay        time.Duration
	far          int32 // what is at the far end: a host, else a switch by its number after all hosts
	down         bool
}

// fifo is a queue of packets.
type fifo struct{ head, tail *packet }

func (f *fifo) push(p *packet) {
	p.next = nil
	if f.head == nil {
		f.head = p
	} else {
		f.tail.next = p
	}
	f.tail = p
}

func (f *fifo) pop() *packet {
	p := f.head
	f.head = p.next
	return p
}

func (f *fifo) len() (n uint64) {
	for p := f.head; p != nil; p = p.next {
		n++
	}
	return n
}

// buffers is the memory of a switch.
type buffers struct {
	shared    bool
	size      int // of each port; of the whole switch, if it is shared
	held      int // by all ports
	watermark int // the most that was held
}

// takes reports whether a queue that holds so much takes n bytes more. Where memory is shared a queue may grow as long
// as it is not longer than what is free (dynamic thresholds of Choudhury and Hahne, 1998, with a factor of 1).
func (b *buffers) takes(held, n int) bool {
	if b.shared {
		return held+n <= b.size-b.held
	}
	return held+n <= b.size
}

// serial is how long a port sends so many bytes.
func (q *port) serial(bytes int) time.Duration {
	return time.Duration(math.Round(float64(bytes) * q.perByte))
}

// wire makes the ports and switches. Ports are numbered: NICs of hosts; ports of leaves to hosts; ports of leaves to
// spines, by leaf; ports of spines to leaves, by spine.
func (n *Net) wire() {
	o := &n.opt
	leaves := o.leaves()
	n.switches = make([]buffers, leaves+o.Spines)
	ports := make([]int, len(n.switches))
	slow, fast := 8e9/o.Rate, 8e9/o.Rate*float64(o.Spines)/float64(o.PerLeaf)
	add := func(owner int, perByte float64, delay time.Duration, far int) {
		q := port{perByte: perByte, delay: delay, far: int32(far)}
		if owner >= 0 {
			q.of = &n.switches[owner]
			ports[owner]++
		}
		n.ports = append(n.ports, q)
	}
	for h := range o.Hosts {
		add(-1, slow, o.HostDelay, o.Hosts+h/o.PerLeaf)
	}
	for h := range o.Hosts {
		add(h/o.PerLeaf, slow, o.HostDelay, h)
	}
	for l := range leaves {
		for s := range o.Spines {
			add(l, fast, o.SwitchDelay, o.Hosts+leaves+s)
		}
	}
	for s := range o.Spines {
		for l := range leaves {
			add(leaves+s, fast, o.SwitchDelay, o.Hosts+l)
		}
	}
	for i := range n.switches {
		n.switches[i] = buffers{shared: o.Shared, size: o.Buffer}
		if o.Shared {
			n.switches[i].size *= ports[i]
		}
	}
}

// uplink is the port of a leaf to a spine, downlink that of a spine to a leaf.
func (n *Net) uplink(leaf, spine int) int32 { return int32(2*n.opt.Hosts + leaf*n.opt.Spines + spine) }

func (n *Net) downlink(spine, leaf int) int32 {
	leaves := n.opt.leaves()
	return int32(2*n.opt.Hosts + leaves*n.opt.Spines + spine*leaves + leaf)
}

// send gives a packet of a host to its NIC.
func (n *Net) send(p *packet) {
	n.tally.Sent++
	n.put(p.from, p)
}

// put appends a packet to the queue of a port.
func (n *Net) put(at int32, p *packet) {
	q := &n.ports[at]
	if b := q.of; b != nil {
		if !b.takes(q.held, p.size) {
			n.tally.Dropped++
			n.release(p)
			return
		}
		b.held += p.size
		b.watermark = max(b.watermark, b.held)
		if n.opt.Mark > 0 && q.held >= n.opt.Mark && p.capable && !p.marked {
			p.marked = true
			n.tally.Marked++
		}
	}
	if n.watch != nil {
		n.watch(at, p)
	}
	q.held += p.size
	idle := q.queue.head == nil
	if q.queue.push(p); idle {
		n.agenda.add(n.Now.Add(q.serial(p.size)), departs, at)
	}
}

// nicFull is how many bytes that wait make a NIC take no more: its queue is short, and what is sent next is chosen
// late, as fq and TCP small queues have it. Hosts are the same in this, whatever they run.
func (n *Net) nicFull() int { return 2 * n.opt.MTU }

// departed puts the packet that a port has sent on the cable, and begins with the next.
func (n *Net) departed(at int32) {
	q := &n.ports[at]
	p := q.queue.pop()
	q.held -= p.size
	if q.of != nil {
		q.of.held -= p.size
	}
	if next := q.queue.head; next != nil {
		n.agenda.add(n.Now.Add(q.serial(next.size)), departs, at)
	}
	if q.down {
		n.tally.Cut++
		n.release(p)
	} else {
		p.arrives = n.Now.Add(q.delay)
		idle := q.cable.head == nil
		if q.cable.push(p); idle {
			n.agenda.add(p.arrives, arrives, at)
		}
	}
	if q.of == nil && q.held < n.nicFull() {
		n.hosts[at].room()
	}
}

// arrived takes the first packet from a cable.
func (n *Net) arrived(at int32) {
	q := &n.ports[at]
	p := q.cable.pop()
	if next := q.cable.head; next != nil {
		n.agenda.add(next.arrives, arrives, at)
	}
	hosts, leaves := int32(n.opt.Hosts), int32(n.opt.leaves())
	leaf := p.to / int32(n.opt.PerLeaf)
	switch far := q.far - hosts; {
	case far < 0:
		n.tally.Received++
		n.hosts[q.far].receive(p)
		n.release(p)
	case far == leaf:
		n.put(hosts+p.to, p)
	case far < leaves:
		n.put(n.uplink(int(far), int(p.hash%uint64(n.opt.Spines))), p)
	default:
		n.put(n.downlink(int(far-leaves), int(leaf)), p)
	}
}

// fail makes links fail and come back, from now on.
func (n *Net) fail() {
	for _, f := range n.opt.Fails {
		set := func(down bool) func() {
			return func() {
				n.ports[n.uplink(f.Leaf, f.Spine)].down = down
				n.ports[n.downlink(f.Spine, f.Leaf)].down = down
			}
		}
		n.After(f.From, set(true))
		n.After(f.Until, set(false))
	}
}
