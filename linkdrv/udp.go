package linkdrv

import (
	"fmt"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// Sending and receiving many frames as one (KindUDP), because what a kernel does costs by the frame and hardly by the byte:
//
//  1. superQueue.gather puts successive frames of one flow and one length behind common outer headers, as UDP over IPv6; no byte is copied, the
//     kernel gathers the pieces of them all;
//  2. the kernel passes the super-frame on as one. Where the wire begins, the interface or the kernel cuts it into frames (UDP segmentation offload);
//     a virtual link hands it over whole;
//  3. the peer's kernel copies it, as one, to a slot of the ring; frames that arrived one by one may have been merged before (receive offload);
//  4. Recv hands out the frames in it one after the other, where they lie.
//
// Nobody's IP stack is needed: the addresses are made from hardware addresses and are no host's, so nothing is configured, and a host that is no router drops what its stack
// sees of them.

const (
	// superSlots is the default number of super-frames the ring holds. Where nothing merges frames that arrived one by one, each takes a slot.
	superSlots    = 256
	maxSuperSlots = 4096
	// superReserve is ringReserve for the first frame of a super-frame: 10 bytes for the virtio_net_hdr and 62 of outer headers lie before it.
	superReserve = ringReserve - (vnetLen+OuterLen)%cacheLine
)

// udp receives super-frames; its socket sends them.
type udp struct {
	*ring
	rest []byte // of the super-frame in the slot at head: frames not handed out yet
	step int    // their length, but for the last
}

func newUDP(s *socket, o Options) (*udp, error) {
	if err := superKernel(); err != nil {
		return nil, err
	}
	if err := s.setInt(unix.SOL_PACKET, unix.PACKET_VNET_HDR, 1, "PACKET_VNET_HDR"); err != nil {
		return nil, err
	}
	slots := o.RingSlots
	if slots == 0 {
		slots = superSlots
	}
	if slots > maxSuperSlots {
		return nil, fmt.Errorf("%d slots of 64 KiB: want at most %d, or 0 for %d", slots, maxSuperSlots, superSlots)
	}
	r, err := newRing(s, layout(65535, slots), superReserve)
	if err != nil {
		return nil, err
	}
	s.info.MTU -= udpOverhead
	s.info.Overhead, s.info.Super = udpOverhead, superBytes
	s.errs = newLinkErrors(s.info)
	s.tx = newSuperQueue(s.info.MAC, uint16(o.EtherType), s.info.MTU+HeaderLen)
	return &udp{ring: r}, nil
}

// Recv implements Driver.
func (d *udp) Recv(dst [][]byte) (n int, err error) {
	d.release()
	for n < len(dst) && (len(d.rest) > 0 || d.open()) {
		k := min(d.step, len(d.rest))
		dst[n] = d.rest[:k:k]
		n++
		if d.rest = d.rest[k:]; len(d.rest) == 0 {
			d.advance()
		}
	}
	d.stats.Received += uint64(n)
	return n, d.judgeEmpty(n > 0 || len(dst) == 0)
}

// Close implements Driver.
func (d *udp) Close() error {
	d.rest = nil
	return d.ring.Close()
}

// open finds the next super-frame.
func (d *udp) open() bool {
	for d.filled() {
		slot, h := d.slots[d.next], d.heads[d.next]
		if super := contents(slot, h); super != nil && int(h.Mac) >= vnetLen {
			if d.rest, d.step = openSuper(slot[int(h.Mac)-vnetLen:h.Mac], super); len(d.rest) > 0 {
				return true
			}
		}
		d.stats.Truncated++
		d.advance()
	}
	return false
}

// Stats implements Driver. The kernel counts super-frames; what Recv hands out is counted here.
func (d *udp) Stats() (Stats, error) {
	received := d.stats.Received
	s, err := d.socket.Stats()
	d.stats.Received = received
	s.Received = received
	return s, err
}

// superQueue is the argument of sendmmsg: each message is a super-frame.
type superQueue struct {
	hdrs   []unix.Mmsghdr
	iovs   []unix.Iovec
	outers []outer
	upto   []int // frames up to and with message i
	most   int   // bytes of a frame
}

func newSuperQueue(mac []byte, port uint16, most int) *superQueue {
	q := &superQueue{
		hdrs: make([]unix.Mmsghdr, SendBatch), iovs: make([]unix.Iovec, SendBatch*(1+pieces)),
		outers: make([]outer, SendBatch), upto: make([]int, SendBatch), most: most,
	}
	for i := range q.outers {
		q.outers[i].init(mac, port)
	}
	return q
}

// gather implements queue.
func (q *superQueue) gather(frames []TxFrame) (hdrs []unix.Mmsghdr, fault unix.Errno) {
	bytes, iovs := 0, q.iovs
	i := 0
	for m := 0; ; m++ {
		if i == min(len(frames), SendBatch) || bytes > maxCallBytes {
			return q.hdrs[:m], 0
		}
		if fault := q.check(&frames[i]); fault != 0 {
			return q.hdrs[:m], fault
		}
		f := flowOf(frames[i].Head)
		step, size := frames[i].Len(), 0
		o := &q.outers[m]
		iovs[0].Base = &o[0]
		iovs[0].SetLen(len(o))
		v := 1
		for i < min(len(frames), SendBatch) {
			next := &frames[i]
			n := next.Len()
			if size > 0 && (n > step || size+n > superBytes || q.check(next) != 0 || flowOf(next.Head) != f) {
				break
			}
			v += next.scatter(iovs[v:])
			size += n
			i++
			if n < step {
				break
			}
		}
		o.fill(&f, step, size)
		q.hdrs[m].Hdr.Iov = &iovs[0]
		q.hdrs[m].Hdr.SetIovlen(v)
		q.upto[m] = i
		iovs = iovs[v:]
		bytes += size
	}
}

// check finds what the kernel does not see in a super-frame.
func (q *superQueue) check(f *TxFrame) unix.Errno {
	switch {
	case len(f.Head) < HeaderLen:
		return unix.EINVAL
	case f.Len() > q.most:
		return unix.EMSGSIZE
	}
	return 0
}

// frames implements queue.
func (q *superQueue) frames(messages int) int {
	if messages == 0 {
		return 0
	}
	return q.upto[messages-1]
}

// superFilter passes the transport's datagrams that are for this host, or all of them, and came over no router.
func superFilter(port uint16, promiscuous bool) []bpf.RawInstruction {
	prefix := uint32(nodePrefix[8])<<8 | uint32(nodePrefix[9])
	conditions := []struct {
		load bpf.Instruction
		is   uint32
	}{
		{bpf.LoadAbsolute{Off: atNext, Size: 1}, nextUDP},
		{bpf.LoadAbsolute{Off: atHops, Size: 1}, hopLimit},
		{bpf.LoadAbsolute{Off: atPort, Size: 2}, uint32(port)},
		{bpf.LoadAbsolute{Off: atDestination, Size: 2}, uint32(nodePrefix[0])<<8 | uint32(nodePrefix[1])},
		{bpf.LoadAbsolute{Off: atDestination + 8, Size: 2}, prefix},
	}
	var prog []bpf.Instruction
	for _, c := range conditions {
		prog = append(prog, c.load, bpf.JumpIf{Cond: bpf.JumpEqual, Val: c.is, SkipTrue: 1}, bpf.RetConstant{Val: 0})
	}
	return append(assemble(prog...), acceptFilter(promiscuous)...)
}

// superKernel refuses kernels that take PACKET_VNET_HDR but refuse each super-frame.
func superKernel() error {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return fmt.Errorf("uname: %w", err)
	}
	return superRelease(unix.ByteSliceToString(u.Release[:]))
}

// superRelease judges a kernel by its release, such as "6.18.44-generic". One that cannot be read is given a chance.
func superRelease(release string) error {
	var major, minor int
	if n, _ := fmt.Sscanf(release, "%d.%d", &major, &minor); n == 2 && (major < 6 || major == 6 && minor < 2) {
		return fmt.Errorf("the driver %q needs Linux 6.2 or newer, this is %s: leave the driver out at every node of the wire", KindUDP, release)
	}
	return nil
}
