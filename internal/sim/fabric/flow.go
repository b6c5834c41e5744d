package fabric

import (
	"time"

	"multiedge/internal/mono"
)

// Flow is bytes that go from one host to another.
type Flow struct {
	Channel    int
	Size       int
	Start, End mono.Time // End: when the last byte had arrived, and all before it; 0: it has not

	number int    // among Net.Flows
	first  int32  // of its packets in the model
	mem    []byte // with Options.Verify: where it arrives
	src    []byte
}

// Took is how long a flow took that has ended.
func (f *Flow) Took() time.Duration { return f.End.Sub(f.Start) }

// MaxFlow bounds the size of a flow.
const MaxFlow = 64 << 20

// Start begins a flow now. Size is at most MaxFlow and at least 1. Flows of one channel that overlap in time arrive in
// their order.
func (n *Net) Start(channel, size int) *Flow {
	if size < 1 || size > MaxFlow {
		panic("BUG: fabric: size of a flow")
	}
	f := &Flow{Channel: channel, Size: size, Start: n.Now, number: len(n.Flows)}
	n.Flows = append(n.Flows, f)
	n.hosts[n.opt.Channels[channel].From].begin(f)
	return f
}

// finish ends a flow.
func (n *Net) finish(f *Flow) {
	if f.End != 0 {
		n.fault("flow %d of %d bytes arrived twice", f.number, f.Size)
		return
	}
	f.End = n.Now
	if f.mem != nil && string(f.mem) != string(f.src) {
		n.fault("flow %d of %d bytes arrived with other bytes", f.number, f.Size)
	}
	f.mem, f.src = nil, nil
	if n.opt.Done != nil {
		n.After(0, func() { n.opt.Done(f) }) // not while the host is at work
	}
}

// Packets says how a transport cuts up what it sends.
type Packets struct {
	Payload int // bytes of a flow in each packet but the last
	Around  int // bytes that a packet takes of a link besides
}

// What a packet takes of a link besides an IP packet: Ethernet header, checksum, preamble and gap.
const ethernet = 14 + 24

// TCPPackets is how TCP over IPv4 without options does, which has the least headers of the transports here.
func TCPPackets(mtu int) Packets { return Packets{Payload: mtu - 40, Around: 40 + ethernet} }

// Ideal is how long a flow takes from its start to its last byte's arrival in an empty network, whose hosts send as
// fast as their links: every packet is sent on each link after it arrived whole, and of the links on the way none is
// slower than the last. So the first packet comes to the last link without waiting, and from then on that is busy.
func (o *Options) Ideal(c Channel, size int, k Packets) time.Duration {
	slow := port{perByte: 8e9 / o.Rate}
	fast := port{perByte: slow.perByte * float64(o.Spines) / float64(o.PerLeaf)}
	first := min(size, k.Payload) + k.Around
	t := 2*o.HostDelay + slow.serial(first)
	if c.From/o.PerLeaf != c.To/o.PerLeaf {
		t += 2 * (o.SwitchDelay + fast.serial(first))
	}
	t += time.Duration(size/k.Payload) * slow.serial(k.Payload+k.Around)
	if rest := size % k.Payload; rest > 0 {
		t += slow.serial(rest + k.Around)
	}
	return t
}
