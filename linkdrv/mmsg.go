package linkdrv

import (
	"math"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// Receiving with recvmmsg:
//
//  1. the message headers point at the driver's buffers, one each, so a call needs no preparation (RecvScatter makes
//     detours);
//  2. one recvmmsg copies up to 32 queued frames into them;
//  3. dst receives slices of the buffers: valid until the next call overwrites them.
//
// Buffers are placed so that byte 78 of a frame, where a bulk payload starts, is 64-byte aligned. With Options.Pages
// they are a pool of pages instead, and each frame starts where a page does (paper 2.3.2, figure 2.4).

const (
	mmsgSlots = 1024    // default number of frames the socket queue holds, unless
	mmsgBytes = 8 << 20 // that is more than so many bytes
	maxSlots  = 1 << 16
	vectors   = 3 // of a message: RecvScatter uses all, Recv the first
	// skbOverhead is what the kernel charges per frame beside its bytes rounded up to pages. Short frames cost less.
	skbOverhead = 1280
)

// mmsg receives through the socket's ordinary queue.
type mmsg struct {
	*socket
	bufs [][]byte // one per header
	hdrs []unix.Mmsghdr
	iovs []unix.Iovec
	late error // met by Recv, to be reported once the frames behind it are delivered
}

func init() {
	registerPackets(packetKind{kind: KindMmsg, pages: true,
		make: func(s *socket, _ *net.Interface, o Options) (packetDriver, error) { return newMmsg(s, o.RingSlots) }})
}

func newMmsg(s *socket, slots int) (*mmsg, error) {
	frame := maxFrame(s.info.MTU)
	// The kernel doubles the value to account for overhead; ours is accounted for already. More than it can double is
	// no number to it.
	charge := alignUp(frame, os.Getpagesize()) + skbOverhead
	if slots == 0 {
		slots = max(ringSlots, min(mmsgSlots, mmsgBytes/charge))
	}
	if err := s.setBuffer(unix.SO_RCVBUFFORCE, unix.SO_RCVBUF, min(slots*charge/2, math.MaxInt32/2)); err != nil {
		return nil, err
	}
	granted, err := unix.GetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_RCVBUF)
	if err != nil {
		return nil, err
	}
	s.info.RxSlots = max(1, granted/charge)
	d := &mmsg{socket: s, bufs: make([][]byte, RecvBatch), hdrs: make([]unix.Mmsghdr, RecvBatch),
		iovs: make([]unix.Iovec, vectors*RecvBatch)}
	headroom, stride := mmsgHeadroom, alignUp(mmsgHeadroom+frame, cacheLine)
	if s.info.Pages {
		headroom, stride = 0, alignUp(frame, os.Getpagesize())
	}
	mem := make([]byte, RecvBatch*stride) // a large object: page aligned
	for i := range d.bufs {
		d.bufs[i] = mem[i*stride+headroom:][:frame:frame]
		d.hdrs[i].Hdr.Iov = &d.iovs[vectors*i]
		d.home(i)
	}
	return d, nil
}

// home points message i at its own buffer alone.
func (d *mmsg) home(i int) {
	v := d.iovs[vectors*i:]
	v[0].Base = &d.bufs[i][0]
	v[0].SetLen(len(d.bufs[i]))
	v[1].Base = nil
	d.hdrs[i].Hdr.SetIovlen(1)
}

// Recv implements Driver.
func (d *mmsg) Recv(dst [][]byte) (n int, err error) {
	if len(dst) == 0 {
		return 0, nil
	}
	k, err := d.recv(min(len(dst), RecvBatch))
	for i := range k {
		if size := d.hdrs[i].Len; d.whole(i) {
			dst[n] = d.bufs[i][:size:size]
			n++
		}
	}
	return n, err
}

// recv fills up to want messages and returns how many.
func (d *mmsg) recv(want int) (n int, err error) {
	d.taken.calls.Add(1)
	k, errno := recvmmsg(d.fd, d.hdrs[:want])
	if errno != 0 && errno != unix.EAGAIN {
		d.late = d.judge(errno)
		d.taken.calls.Add(1)
		k, errno = recvmmsg(d.fd, d.hdrs[:want]) // frames may wait behind the error, which is cleared now
	}
	if errno != 0 {
		return 0, d.nothing()
	}
	return k, nil
}

// whole reports whether message i holds all of its frame, and counts it if not.
func (d *mmsg) whole(i int) bool {
	h := &d.hdrs[i]
	if h.Hdr.Flags&unix.MSG_TRUNC == 0 && int(h.Len) <= len(d.bufs[i]) {
		return true
	}
	d.taken.truncated.Add(1)
	return false
}

// nothing is what Recv reports when the queue is empty: an error once, or that the interface is gone.
func (d *mmsg) nothing() error {
	err := d.late
	d.late = nil
	if err == nil && d.fd >= 0 {
		err = d.owed()
	}
	if d.gone.Load() {
		err = d.errs.gone
	}
	return err
}
