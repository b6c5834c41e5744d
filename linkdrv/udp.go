package linkdrv

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"sync/atomic"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// Sending and receiving many frames as one (KindUDP), because what a kernel does costs by the frame and hardly by the
// byte:
//
//  1. superQueue.gather puts successive joined frames of one flow and one length behind common outer headers, as UDP
//     over IPv6; no byte is copied, the kernel gathers the pieces of them all. Other frames go alone, as they are;
//  2. the kernel passes the super-frame on as one. Where the wire begins, the interface or the kernel cuts it into
//     frames (UDP segmentation offload); a virtual link hands it over whole;
//  3. the peer's kernel copies it, as one, to a slot of a ring; frames that arrived one by one may have been merged
//     before (receive offload);
//  4. Recv hands out the frames in it one after the other, where they lie.
//
// Nobody's IP stack is needed: the addresses are made from hardware addresses and are no host's, so nothing is
// configured, and a host that is no router drops what its stack sees of them.

// superReserve is ringReserve for the first frame of a datagram: 10 bytes for the virtio_net_hdr and 62 of outer
// headers lie before it.
const superReserve = ringReserve - (vnetLen+OuterLen)%cacheLine

// A slot of the ring of short datagrams holds fewFrames of the interface's longest frames, and no less than fewBytes.
// If it held more, this ring would be larger, and a long datagram would have more frames for certain, which is what a
// slot of the other ring counts as.
const (
	fewFrames = 3
	fewBytes  = 9 << 10
	mostSuper = 4096 // slots anybody may ask for
)

// udp receives through two rings, so that both stay in a core's cache however many frames datagrams hold: its own, for
// frames alone and datagrams of a few, and supers for longer ones. The filters of their sockets part datagrams by
// length; Recv takes them in the order of the kernel's time stamps.
type udp struct {
	*ring        // its socket sends, and tells the link's fate
	supers *ring // its socket only receives
	poll   int   // an epoll descriptor: readable when either is

	from   *ring  // has the slot at its head handed out, as far as rest
	rest   []byte // frames of that slot not handed out yet
	step   int    // their length, but for the last
	passed int    // datagrams in a row taken from one ring while the other had one

	received atomic.Uint64 // frames handed out
}

// The sockets take all protocols: the first for both forms, and the other so that it stands where the first does,
// before everything that filters or forwards packets on their way to the host (tc, netfilter, bridges), so that a
// socket that receives short datagrams receives long ones.
func init() {
	registerPackets(packetKind{kind: KindUDP, all: true, make: makeUDP})
}

func makeUDP(s *socket, ifi *net.Interface, o Options) (packetDriver, error) {
	supers, err := newSocket(ifi, EtherTypeAll, o)
	if err != nil {
		return nil, err
	}
	d, err := newUDP(s, supers, o)
	if err != nil {
		supers.Close()
		return nil, err
	}
	return d, nil
}

func (d *udp) sockets() []*socket { return []*socket{d.socket, d.supers.socket} }

func (d *udp) filter(k int, o Options) []bpf.RawInstruction {
	return superFilter(uint16(o.EtherType), o.Promiscuous, shortDatagram(d.info.MTU), k > 0)
}

// newUDP makes a driver of two sockets, which are the caller's to close after an error.
func newUDP(s, supers *socket, o Options) (_ *udp, err error) {
	if err := superKernel(); err != nil {
		return nil, err
	}
	least := shortDatagram(s.info.MTU)/maxFrame(s.info.MTU) + 1 // frames in a longer one
	slots := o.RingSlots
	switch {
	case slots == 0:
		slots = least * defaultSlots(longestMTU)
	case slots > mostSuper:
		return nil, fmt.Errorf("%d slots: want at most %d, or 0 for %d", slots, mostSuper,
			least*defaultSlots(longestMTU))
	}
	d := &udp{poll: -1}
	if d.ring, err = newDatagramRing(s, shortDatagram(s.info.MTU), slots); err != nil {
		return nil, err
	}
	if d.supers, err = newDatagramRing(supers, longestMTU, (slots+least-1)/least); err != nil {
		return nil, errors.Join(err, d.ring.Close())
	}
	if d.poll, err = pollBoth(s.fd, supers.fd); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	s.info.Overhead, s.info.Super = udpOverhead, superBytes
	s.info.RxSlots = slots
	s.tx = newSuperQueue(s.info.MAC, uint16(o.EtherType), s.info.MTU+HeaderLen-udpOverhead)
	return d, nil
}

// shortDatagram is the length of the longest datagram, headers and all, that the ring of short ones takes on an
// interface of that MTU.
func shortDatagram(mtu int) int {
	return min(max(fewFrames*maxFrame(mtu), fewBytes), maxFrame(longestMTU))
}

func newDatagramRing(s *socket, mtu, slots int) (*ring, error) {
	if err := s.setInt(unix.SOL_PACKET, unix.PACKET_VNET_HDR, 1, "PACKET_VNET_HDR"); err != nil {
		return nil, err
	}
	return newRing(s, mtu+vnetLen, slots, superReserve)
}

// pollBoth returns an epoll descriptor that is readable when a or b is.
func pollBoth(a, b int) (int, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return -1, fmt.Errorf("epoll_create1: %w", err)
	}
	for _, of := range []int{a, b} {
		if err := unix.EpollCtl(fd, unix.EPOLL_CTL_ADD, of, &unix.EpollEvent{Events: unix.EPOLLIN}); err != nil {
			unix.Close(fd)
			return -1, fmt.Errorf("epoll_ctl: %w", err)
		}
	}
	return fd, nil
}

// FD implements Driver.
func (d *udp) FD() int { return d.poll }

// Recv implements Driver.
func (d *udp) Recv(dst [][]byte) (n int, err error) {
	d.release()
	d.supers.release()
	for n < len(dst) && (len(d.rest) > 0 || d.open()) {
		k := min(d.step, len(d.rest))
		dst[n] = d.rest[:k:k]
		n++
		if d.rest = d.rest[k:]; len(d.rest) == 0 {
			d.from.advance()
		}
	}
	if n > 0 {
		d.received.Add(uint64(n))
	}
	err = d.judgeEmpty(n > 0 || len(dst) == 0)
	if n == 0 && len(dst) > 0 && d.empty == 0 { // the socket was asked
		d.supers.taken.calls.Add(1)
		socketError(d.supers.fd) // says the same, and would keep FD readable
	}
	return n, err
}

// open finds the next frame or datagram.
func (d *udp) open() bool {
	for {
		r := d.oldest()
		if r == nil {
			return false
		}
		slot, h := r.slots[r.next], r.heads[r.next]
		if arrived := contents(slot, h); len(arrived) >= HeaderLen && int(h.Mac) >= vnetLen {
			d.rest, d.step = arrived, len(arrived)
			if binary.BigEndian.Uint16(arrived[12:]) == etherIPv6 {
				d.rest, d.step = openSuper(slot[int(h.Mac)-vnetLen:h.Mac], arrived)
			}
			if len(d.rest) > 0 {
				d.from = r
				return true
			}
		}
		d.taken.truncated.Add(1)
		r.advance()
	}
}

// oldest returns the ring with the datagram that came first, nil if none has one.
func (d *udp) oldest() *ring {
	short, long := d.ring.filled(), d.supers.filled()
	if long && !short {
		// what came before may have been stored since the first look; the other way round it was seen by the second
		short = d.ring.filled()
	}
	switch {
	case short && long:
		return d.older()
	case short:
		d.passed = 0
		return d.ring
	case long:
		d.passed = 0
		return d.supers
	}
	return nil
}

// older chooses between two rings that both have a datagram. The stamps are of a clock that may be set back: what is
// passed over has no more before it than the other ring has slots.
func (d *udp) older() *ring {
	first, other := d.ring, d.supers
	if other.stamp() < first.stamp() {
		first, other = other, first
	}
	if first != d.from {
		d.passed = 0
	}
	if d.passed++; d.passed > len(first.slots) {
		d.passed = 0
		return other
	}
	return first
}

// Stats implements Driver. The kernel counts datagrams; what Recv hands out is counted here.
func (d *udp) Stats() (Stats, error) {
	supers, err := d.supers.Stats()
	s, err2 := d.socket.Stats()
	s.Received = d.received.Load()
	s.Dropped += supers.Dropped
	s.RecvCalls += supers.RecvCalls
	return s, errors.Join(err, err2)
}

// Close implements Driver.
func (d *udp) Close() error {
	d.rest = nil
	err := errors.Join(d.ring.Close(), d.supers.Close())
	if d.poll >= 0 {
		unix.Close(d.poll)
		d.poll = -1
	}
	return err
}

// superQueue is the argument of sendmmsg: each message is a super-frame, or a frame alone.
type superQueue struct {
	hdrs   []unix.Mmsghdr
	iovs   []unix.Iovec
	outers []outer
	upto   []int // frames up to and with message i
	most   int   // bytes of a frame in a datagram
}

// noOuter is the virtio_net_hdr of a frame alone.
var noOuter [vnetLen]byte

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
		v, size := 1, 0
		if first := &frames[i]; first.Joined {
			f := flowOf(first.Head)
			step := first.Len()
			o := &q.outers[m]
			iovs[0].Base = &o[0]
			iovs[0].SetLen(len(o))
			for i < min(len(frames), SendBatch) {
				next := &frames[i]
				n := next.Len()
				if size > 0 && (!next.Joined || n > step || size+n > superBytes || q.check(next) != 0 ||
					!sameFlow(next.Head, first.Head)) {
					break
				}
				v += point(iovs[v:], next)
				size += n
				i++
				if n < step {
					break
				}
			}
			o.fill(&f, step, size)
		} else {
			iovs[0].Base = &noOuter[0]
			iovs[0].SetLen(vnetLen)
			v += point(iovs[v:], first)
			size = first.Len()
			i++
		}
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
	case f.Joined && f.Len() > q.most:
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

// superFilter passes the transport's datagrams that are for this host, or all of them, and came over no router: those
// of at most so many bytes, headers and all, and its frames alone, or only the longer ones.
func superFilter(port uint16, promiscuous bool, upto int, longer bool) []bpf.RawInstruction {
	prefix := uint32(nodePrefix[8])<<8 | uint32(nodePrefix[9])
	equal := func(load bpf.Instruction, is uint32) condition {
		return condition{load, bpf.JumpIf{Cond: bpf.JumpEqual, Val: is, SkipTrue: 1}}
	}
	length := condition{bpf.LoadExtension{Num: bpf.ExtLen}, bpf.JumpIf{Cond: bpf.JumpLessOrEqual, Val: uint32(upto),
		SkipTrue: 1}}
	if longer {
		length.jump.Cond = bpf.JumpGreaterThan
	}
	var prog []bpf.Instruction
	for _, c := range []condition{
		length,
		equal(bpf.LoadAbsolute{Off: 12, Size: 2}, etherIPv6),
		equal(bpf.LoadAbsolute{Off: atNext, Size: 1}, nextUDP),
		equal(bpf.LoadAbsolute{Off: atHops, Size: 1}, hopLimit),
		equal(bpf.LoadAbsolute{Off: atPort, Size: 2}, uint32(port)),
		equal(bpf.LoadAbsolute{Off: atDestination, Size: 2}, uint32(nodePrefix[0])<<8|uint32(nodePrefix[1])),
		equal(bpf.LoadAbsolute{Off: atDestination + 8, Size: 2}, prefix),
	} {
		prog = append(prog, c.load, c.jump, bpf.RetConstant{Val: 0})
	}
	if !longer {
		alone := []bpf.Instruction{bpf.LoadAbsolute{Off: 12, Size: 2}, bpf.JumpIf{Cond: bpf.JumpEqual,
			Val: uint32(port), SkipTrue: uint8(len(prog))}}
		prog = append(alone, prog...)
	}
	// A socket of all protocols sees frames before the kernel gives those of a VLAN to its interface. VLAN 0 is none:
	// such a tag says a priority.
	untagged := []bpf.Instruction{bpf.LoadExtension{Num: bpf.ExtVLANTag}, bpf.JumpIf{Cond: bpf.JumpBitsNotSet,
		Val: 0x0fff, SkipTrue: 1}, bpf.RetConstant{Val: 0}}
	return append(assemble(append(untagged, prog...)...), acceptFilter(promiscuous)...)
}

// condition jumps over the next instruction if what it loads is right.
type condition struct {
	load bpf.Instruction
	jump bpf.JumpIf
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
		return fmt.Errorf("the driver %q needs Linux 6.2 or newer, this is %s: leave the driver out", KindUDP, release)
	}
	return nil
}
