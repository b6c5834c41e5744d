package linkdrv

import (
	"errors"
	"fmt"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// Frames as datagrams of an ordinary UDP socket (KindIP), which needs no privilege and crosses routers (PROTOCOL clause
// 21):
//
//  1. gather makes a message of each frame, or of successive joined frames of one length and destination: the kernel
//     sends the latter as one and cuts them up where the wire begins (UDP_SEGMENT). No byte is copied here;
//  2. one sendmmsg copies all of them into kernel buffers. What a destination refuses is lost, as a router might lose
//     it: other destinations of the link are well;
//  3. one recvmmsg fills buffers of 64 KiB, each with a datagram or with those of one source that the kernel has merged
//     (UDP_GRO);
//  4. Recv hands out the frames in them one after the other, where they lie, and Sources where each came from.
//
// ICMP changes nothing: anybody can forge it. The socket neither obeys nor reports it (IP_PMTUDISC_PROBE, no
// IP_RECVERR), and the engine's probes find out what passes.

// Sourcer is a Driver whose frames do not say themselves where they came from.
type Sourcer interface {
	Driver
	// Sources are the origins of the frames of the latest Recv, in their order, until the next one. It is for the
	// goroutine that calls Recv.
	Sources() []Addr
}

// ipSegments is the most datagrams of one message: older kernels take no more.
const ipSegments = 64

// ipBuffers is how many messages one recvmmsg takes. Merged ones fill their buffers; more buffers would leave a core's
// cache.
const ipBuffers = 8

// ipDriver is the driver of one UDP socket.
type ipDriver struct {
	fd    int
	info  Info
	errs  linkErrors
	wide  bool // the socket's addresses are IPv6's
	in    ipIn
	taken recvCounts

	received atomic.Uint64

	// For Send and Stats only.
	merges bool // the kernel takes joined frames
	out    ipOut
	stats  Stats // what Send counts
}

// ipIn is the receive side.
type ipIn struct {
	bufs  [][]byte
	hdrs  []unix.Mmsghdr
	iovs  []unix.Iovec
	names []unix.RawSockaddrInet6
	ctls  [][ipControl]byte
	have  int             // messages received
	next  int             // of them, not opened yet
	rest  []byte          // of the open one
	step  int             // length of its frames, but for the last
	from  Addr            // its source
	of    [SendBatch]Addr // as many as one message has frames
	n     int             // frames of the latest Recv
}

// ipOut is the argument of sendmmsg.
type ipOut struct {
	hdrs  []unix.Mmsghdr
	iovs  []unix.Iovec
	names []unix.RawSockaddrInet6
	ctls  [][ipSegmentControl]byte
	upto  []int // frames up to and with message i
}

func (d *ipDriver) allocate() {
	in, out := &d.in, &d.out
	in.hdrs, in.iovs = make([]unix.Mmsghdr, ipBuffers), make([]unix.Iovec, ipBuffers)
	in.names, in.ctls = make([]unix.RawSockaddrInet6, ipBuffers), make([][ipControl]byte, ipBuffers)
	const stride = (mmsgHeadroom + ipMost + cacheLine - 1) / cacheLine * cacheLine
	mem := make([]byte, ipBuffers*stride)
	clear(mem) // fresh memory has no pages before it is written
	for i := range ipBuffers {
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
	out.names, out.ctls = make([]unix.RawSockaddrInet6, SendBatch), make([][ipSegmentControl]byte, SendBatch)
	out.upto = make([]int, SendBatch)
	for i := range out.hdrs {
		out.hdrs[i].Hdr.Name = nameOf(&out.names[i])
		initSegments(&out.ctls[i])
	}
}

// FD implements Driver.
func (d *ipDriver) FD() int { return d.fd }

// Info implements Driver.
func (d *ipDriver) Info() Info { return d.info }

// Sources implements Sourcer.
func (d *ipDriver) Sources() []Addr { return d.in.of[:d.in.n] }

// Close implements Driver.
func (d *ipDriver) Close() error {
	if d.fd < 0 {
		return nil
	}
	fd := d.fd
	d.fd = -1
	if err := unix.Close(fd); err != nil {
		return fmt.Errorf("linkdrv: %s: close: %w", d.info.Name, err)
	}
	return nil
}

// Stats implements Driver. Dropped are datagrams for which the socket had no room.
func (d *ipDriver) Stats() (Stats, error) {
	s := d.stats
	s.Received, s.Truncated, s.RecvCalls = d.received.Load(), d.taken.truncated.Load(), d.taken.calls.Load()
	if d.fd < 0 {
		return s, d.errs.closed
	}
	dropped, errno := socketDrops(d.fd)
	if errno != 0 {
		return s, fmt.Errorf("linkdrv: %s: SO_MEMINFO: %w", d.info.Name, errno)
	}
	s.Dropped = uint64(dropped)
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
			dst[n], in.of[n] = in.rest[:k:k], in.from
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

// fill takes messages from the socket. Nothing that the network says is an error of the link.
func (d *ipDriver) fill() error {
	in := &d.in
	for i := range in.hdrs {
		h := &in.hdrs[i].Hdr
		h.SetControllen(ipControl)
		h.Namelen = unix.SizeofSockaddrInet6
	}
	d.taken.calls.Add(1)
	k, errno := recvmmsg(d.fd, in.hdrs)
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
		in.rest, in.step, in.from = in.bufs[i][:n:n], n, from
		if step := mergedStep(&in.hdrs[i].Hdr, &in.ctls[i]); step > 0 {
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
		if len(hdrs) == 0 {
			d.stats.Refused++
			if fault == unix.EMSGSIZE {
				return n + 1, d.errs.tooLong
			}
			return n + 1, d.errs.bad
		}
		sent, errno := sendmmsg(d.fd, hdrs)
		d.stats.SendCalls++
		switch {
		case errno == 0:
			took := d.out.upto[sent-1]
			n += took
			d.stats.Sent += uint64(took)
		case errno == unix.EINTR:
		case errno == unix.EAGAIN || errno == unix.ENOBUFS || errno == unix.ENOMEM:
			d.stats.NoRoom++
			return n, nil
		case errno == unix.EBADF:
			return n, d.errs.closed
		case errno == unix.EIO && d.out.upto[0] > 1: // the interface sums no checksums, so the kernel does not cut up
			d.merges = false
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

// gather fills headers from the front of frames; fault is what the frame behind them would be refused for.
func (d *ipDriver) gather(frames []TxFrame) (hdrs []unix.Mmsghdr, fault unix.Errno) {
	out := &d.out
	bytes, iovs, i := 0, out.iovs, 0
	most := min(len(frames), SendBatch)
	for m := 0; ; m++ {
		if i == most || bytes > maxCallBytes {
			return out.hdrs[:m], 0
		}
		first := &frames[i]
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
			if count > 0 && (!next.Joined || n > step || size+n > ipMost || d.check(next) != 0 || next.To != first.To) {
				break
			}
			v += point(iovs[v:], next)
			size += n
			count++
			i++
			if n < step || !first.Joined || !d.merges {
				break
			}
		}
		h.SetIovlen(v)
		putSegments(h, &out.ctls[m], step, count)
		out.upto[m] = i
		iovs = iovs[v:]
		bytes += size
	}
}

// check finds what the kernel would not say of a frame alone.
func (d *ipDriver) check(f *TxFrame) unix.Errno {
	switch {
	case len(f.Head) < HeaderLen || !f.To.IsIP() || !d.info.Local.Reaches(&f.To):
		return unix.EINVAL
	case f.Len() > d.info.MTU+HeaderLen:
		return unix.EMSGSIZE
	}
	return 0
}

// ErrListen: the address of an IP link cannot be used.
var ErrListen = errors.New("not an address to listen at")
