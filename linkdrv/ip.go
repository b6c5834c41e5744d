package linkdrv

import (
	"errors"
	"fmt"
	"net/netip"
	"sync/atomic"

	"multiedge/internal/frame"

	"golang.org/x/sys/unix"
)

// Frames as datagrams of ordinary UDP sockets (KindIP), which need no privilege and cross routers (PROTOCOL clause
// 21):
//
//  1. gather makes a message of each frame, or of successive joined frames of one length and destination: the kernel
//     sends the latter as one and cuts them up where the wire begins (UDP_SEGMENT). No byte is copied here;
//  2. one sendmmsg copies all of them into kernel buffers. What a destination refuses is lost, as a router might lose
//     it: other destinations of the link are well;
//  3. one recvmmsg fills buffers of 64 KiB, each with a datagram or with those of one source that the kernel has merged
//     (UDP_GRO);
//  4. Recv hands out the frames in them one after the other, where they lie, Sources where each came from, and Marks
//     what routers said of it: kernels merge no datagram that was marked with one that was not.
//
// ICMP changes nothing: anybody can forge it. The socket neither obeys nor reports it (IP_PMTUDISC_PROBE, no
// IP_RECVERR), and the engine's probes find out what passes.

// Sourcer is a Driver whose frames do not say themselves where they came from.
type Sourcer interface {
	Driver
	// Sources are the origins of the frames of the latest Recv, in their order, until the next one. It is for the
	// goroutine that calls Recv.
	Sources() []Addr
	// Marks are what the IP headers of these frames said of congestion; also without Options.ECN.
	Marks() []frame.ECN
}

// ipSegments is the most datagrams of one message: older kernels take no more.
const ipSegments = 64

// ipAloneCalls is after how many calls the kernel is asked again to cut messages up, once it would not: routes and
// interfaces change. The question costs one call that fails.
const ipAloneCalls = 1 << 14

// ipBuffers is how many messages one recvmmsg takes. Merged ones fill their buffers; more buffers would leave a core's
// cache. Lanes share them, but each has leastBuffers.
const (
	ipBuffers    = 8
	leastBuffers = 2
)

// ipSockets is the most sockets of a driver.
const ipSockets = 3

// ipDriver is the driver of an IP link, or of one of its lanes (lanes.go).
type ipDriver struct {
	socks [ipSockets]int // by the number in the addresses that they reach; -1: none
	at    netip.AddrPort // of the front
	info  Info
	errs  linkErrors
	wide  bool // the sockets' addresses are IPv6's
	room  int  // what is asked for as a receive buffer
	tos   int  // what the sockets' datagrams have as traffic class
	lanes *laneSet
	lane  int // which of them
	in    ipIn
	taken recvCounts

	received atomic.Uint64

	// For Send and Stats only.
	alone int // calls for which joined frames are sent one by one: the kernel does not cut them up
	out   ipOut
	stats Stats  // what Send counts
	gone  uint64 // datagrams for which sockets had no room that were replaced
}

// ipIn is the receive side.
type ipIn struct {
	bufs  [][]byte
	hdrs  []unix.Mmsghdr
	iovs  []unix.Iovec
	names []unix.RawSockaddrInet6
	ctls  [][ipControl]byte
	have  int    // messages received
	next  int    // of them, not opened yet
	rest  []byte // of the open one
	which int    // socket that it came by
	step  int    // length of its frames, but for the last
	from  Addr   // its source
	ecn   frame.ECN
	of    [SendBatch]Addr // as many as one message has frames
	marks [SendBatch]frame.ECN
	n     int // frames of the latest Recv
}

// ipOut is the argument of sendmmsg.
type ipOut struct {
	hdrs  []unix.Mmsghdr
	iovs  []unix.Iovec
	names []unix.RawSockaddrInet6
	ctls  [][ipSendControl]byte
	upto  []int // frames up to and with message i
}

// allocate makes the memory for messages, so many at a time.
func (d *ipDriver) allocate(buffers int) {
	in, out := &d.in, &d.out
	in.hdrs, in.iovs = make([]unix.Mmsghdr, buffers), make([]unix.Iovec, buffers)
	in.names, in.ctls = make([]unix.RawSockaddrInet6, buffers), make([][ipControl]byte, buffers)
	const stride = (mmsgHeadroom + ipMost + cacheLine - 1) / cacheLine * cacheLine
	mem := make([]byte, buffers*stride)
	clear(mem) // fresh memory has no pages before it is written
	for i := range buffers {
		b := mem[i*stride+mmsgHeadroom:][:ipMost:ipMost]
		in.bufs = append(in.bufs, b)
		in.iovs[i].Base = &b[0]
		in.iovs[i].SetLen(len(b))
		in.hdrs[i].Hdr.Iov = &in.iovs[i]
		in.hdrs[i].Hdr.SetIovlen(1)
		in.hdrs[i].Hdr.Control = &in.ctls[i][0]
		in.hdrs[i].Hdr.Name = nameOf(&in.names[i])
	}
	out.hdrs, out.iovs = make([]unix.Mmsghdr, SendBatch), make([]unix.Iovec, SendBatch*pieces)
	out.names, out.ctls = make([]unix.RawSockaddrInet6, SendBatch), make([][ipSendControl]byte, SendBatch)
	out.upto = make([]int, SendBatch)
	for i := range out.hdrs {
		out.hdrs[i].Hdr.Name = nameOf(&out.names[i])
	}
}

// FD implements Driver.
func (d *ipDriver) FD() int {
	if d.lanes != nil {
		return d.lanes.epoll
	}
	return d.socks[frame.SocketAsk]
}

// Info implements Driver.
func (d *ipDriver) Info() Info { return d.info }

// Sources implements Sourcer.
func (d *ipDriver) Sources() []Addr { return d.in.of[:d.in.n] }

// Marks implements Sourcer.
func (d *ipDriver) Marks() []frame.ECN { return d.in.marks[:d.in.n] }

// Close implements Driver.
func (d *ipDriver) Close() (err error) {
	open := false
	for k, fd := range d.socks {
		if fd >= 0 {
			open = true
			err = errors.Join(err, unix.Close(fd))
		}
		d.socks[k] = -1
	}
	if open && d.lanes != nil {
		err = errors.Join(err, d.lanes.leave())
	}
	if err != nil {
		return fmt.Errorf("linkdrv: %s: close: %w", d.info.Name, err)
	}
	return nil
}

// Stats implements Driver. Dropped are datagrams for which the sockets had no room.
func (d *ipDriver) Stats() (Stats, error) {
	s := d.stats
	s.Received, s.Truncated, s.RecvCalls = d.received.Load(), d.taken.truncated.Load(), d.taken.calls.Load()
	if d.fd() < 0 {
		return s, d.errs.closed
	}
	s.Dropped = d.gone
	for _, fd := range d.socks {
		if fd < 0 {
			continue
		}
		dropped, errno := socketDrops(fd)
		if errno != 0 {
			return s, fmt.Errorf("linkdrv: %s: SO_MEMINFO: %w", d.info.Name, errno)
		}
		s.Dropped += uint64(dropped)
	}
	return s, nil
}

// Recv implements Driver.
func (d *ipDriver) Recv(dst [][]byte) (n int, err error) {
	in := &d.in
	in.n = 0
	dst = dst[:min(len(dst), len(in.of))]
	if len(dst) == 0 {
		return 0, nil
	}
	if len(in.rest) == 0 && in.next >= in.have {
		if err := d.fill(); err != nil {
			return 0, err
		}
	}
	for n < len(dst) && (len(in.rest) > 0 || d.open()) {
		k := min(in.step, len(in.rest))
		if k >= HeaderLen {
			dst[n], in.of[n], in.marks[n] = in.rest[:k:k], in.from, in.ecn
			n++
		} else {
			d.taken.truncated.Add(1)
		}
		in.rest = in.rest[k:]
	}
	in.n = n
	if n > 0 {
		d.received.Add(uint64(n))
	}
	return n, nil
}

// fill takes messages from a socket where some wait. Nothing that the network says is an error of the link.
func (d *ipDriver) fill() error {
	if d.lanes == nil {
		return d.takeFrom(frame.SocketAsk)
	}
	ready := d.lanes.waiting(d.lane)
	for range ipSockets { // in turn: none keeps the others from being served
		which := (d.in.which + 1) % ipSockets
		d.in.which = which
		if *ready&(1<<which) == 0 {
			continue
		}
		if err := d.takeFrom(which); err != nil {
			return err
		}
		if d.in.have < len(d.in.hdrs) {
			*ready &^= 1 << which
		}
		if d.in.have > 0 {
			break
		}
	}
	return nil
}

func (d *ipDriver) takeFrom(which int) error {
	in := &d.in
	for i := range in.hdrs {
		h := &in.hdrs[i].Hdr
		h.SetControllen(ipControl)
		h.Namelen = unix.SizeofSockaddrInet6
	}
	d.taken.calls.Add(1)
	k, errno := recvmmsg(d.socks[which], in.hdrs)
	in.have, in.next = 0, 0
	switch {
	case errno == 0:
		in.have = k
	case errno == unix.EBADF:
		return d.errs.closed
	}
	return nil
}

// open finds the next message.
func (d *ipDriver) open() bool {
	in := &d.in
	for in.next < in.have {
		i := in.next
		in.next++
		n := int(in.hdrs[i].Len)
		from, ok := sourceOf(&in.hdrs[i].Hdr, &in.names[i])
		if n < HeaderLen || in.hdrs[i].Hdr.Flags&unix.MSG_TRUNC != 0 || !ok {
			d.taken.truncated.Add(1)
			continue
		}
		if in.which == frame.SocketFront && d.lanes != nil {
			from = from.By(frame.SocketFront)
		}
		in.rest, in.step, in.from = in.bufs[i][:n:n], n, from
		step, ecn := readControl(&in.hdrs[i].Hdr, &in.ctls[i])
		if in.ecn = ecn; step > 0 {
			in.step = step
		}
		return true
	}
	return false
}

// Send implements Driver.
func (d *ipDriver) Send(frames []TxFrame) (n int, err error) {
	for n < len(frames) {
		hdrs, fault := d.gather(frames[n:])
		if len(hdrs) == 0 && d.fd() < 0 {
			return n, d.errs.closed
		}
		if len(hdrs) == 0 {
			d.stats.Refused++
			if fault == unix.EMSGSIZE {
				return n + 1, d.errs.tooLong
			}
			return n + 1, d.errs.bad
		}
		sent, errno := sendmmsg(d.socks[frames[n].To.Socket()], hdrs)
		d.stats.SendCalls++
		switch {
		case errno == 0:
			took := d.out.upto[sent-1]
			n += took
			d.stats.Sent += uint64(took)
			d.alone = max(0, d.alone-1)
		case errno == unix.EINTR:
		case errno == unix.EAGAIN || errno == unix.ENOBUFS || errno == unix.ENOMEM:
			d.stats.NoRoom++
			return n, nil
		case errno == unix.EBADF:
			return n, d.errs.closed
		case errno == unix.EIO && d.out.upto[0] > 1: // the interface sums no checksums, so the kernel does not cut up
			d.alone = ipAloneCalls
			d.stats.Uncut++
		case errno == unix.EMSGSIZE || errno == unix.EINVAL && d.out.upto[0] > 1:
			took := d.out.upto[0]
			d.stats.Refused += uint64(took)
			return n + took, d.errs.tooLong
		default: // no route, a firewall, an address that is gone: of this destination
			took := d.out.upto[0]
			d.stats.Refused += uint64(took)
			n += took
		}
	}
	return n, nil
}

// gather fills headers from the front of frames, for one socket; fault is what the frame behind them would be refused
// for.
func (d *ipDriver) gather(frames []TxFrame) (hdrs []unix.Mmsghdr, fault unix.Errno) {
	out := &d.out
	bytes, iovs, i := 0, out.iovs, 0
	most := min(len(frames), SendBatch)
	for m := 0; ; m++ {
		if i == most || bytes > maxCallBytes {
			return out.hdrs[:m], 0
		}
		first := &frames[i]
		if m > 0 && first.To.Socket() != frames[0].To.Socket() {
			return out.hdrs[:m], 0
		}
		if fault := d.check(first); fault != 0 {
			return out.hdrs[:m], fault
		}
		h := &out.hdrs[m].Hdr
		h.Iov = &iovs[0]
		h.Namelen = putName(&out.names[m], &first.To, d.wide)
		step, size, v, count := first.Len(), 0, 0, 0
		for i < most && count < ipSegments {
			next := &frames[i]
			n := next.Len()
			if count > 0 && (!next.Joined || n > step || size+n > ipMost || d.check(next) != 0 || next.To != first.To ||
				next.Capable != first.Capable) {
				break
			}
			v += point(iovs[v:], next)
			size += n
			count++
			i++
			if n < step || !first.Joined || d.alone > 0 {
				break
			}
		}
		h.SetIovlen(v)
		d.putControl(h, &out.ctls[m], first, step, count)
		out.upto[m] = i
		iovs = iovs[v:]
		bytes += size
	}
}

// check finds what the kernel would not say of a frame alone.
func (d *ipDriver) check(f *TxFrame) unix.Errno {
	switch {
	case len(f.Head) < HeaderLen || !f.To.IsIP() || !d.info.Local.Reaches(&f.To) || d.socks[f.To.Socket()] < 0:
		return unix.EINVAL
	case f.Len() > d.info.MTU+HeaderLen:
		return unix.EMSGSIZE
	}
	return 0
}

// ErrListen: the address of an IP link cannot be used.
var ErrListen = errors.New("not an address to listen at")
