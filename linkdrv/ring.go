package linkdrv

import (
	"errors"
	"fmt"
	"net"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// Receiving through the ring:
//
//  1. the kernel copies an arriving frame into the slot at its own head, then stores TP_STATUS_USER in the slot's
//     status word (release); it never looks past a slot that is not its own, but drops;
//  2. Recv loads the status word of the slot at head (acquire), checks where the kernel says the frame lies, hands out
//     a slice of the slot, and moves head on: no system call, no copy;
//  3. slots from tail up to head are the caller's until the next Recv, which stores TP_STATUS_KERNEL in each (release).
//
// Head and tail are private to the driver. Only bytes inside the slot are ever handed out, whatever the header says.

// errorEvery is how many Recvs in a row may find nothing before the socket is asked for a waiting error. The ring
// itself cannot tell that its interface is gone, and the question costs a system call.
const errorEvery = 1024

// ring receives through a memory-mapped TPACKET_V2 ring.
type ring struct {
	*socket
	mem   []byte              // the mapping
	slots [][]byte            // the slots in mem
	heads []*unix.Tpacket2Hdr // their headers

	head, tail uint // slots taken and slots given back since Open; head-tail are the caller's
	next, back int  // the same modulo len(slots)
	empty      int  // Recvs in a row that found nothing
}

func init() {
	registerPackets(packetKind{kind: KindRing,
		make: func(s *socket, _ *net.Interface, o Options) (packetDriver, error) {
			return newRing(s, s.info.MTU, o.RingSlots, ringReserve)
		}})
}

// newRing makes a ring of at least so many slots, 0 for the default, for frames of an interface of that MTU.
func newRing(s *socket, mtu, slots, reserve int) (*ring, error) {
	if slots == 0 {
		slots = defaultSlots(mtu)
	}
	g := layout(mtu, slots)
	if err := s.setInt(unix.SOL_PACKET, unix.PACKET_VERSION, unix.TPACKET_V2, "PACKET_VERSION"); err != nil {
		return nil, err
	}
	if err := s.setInt(unix.SOL_PACKET, unix.PACKET_RESERVE, reserve, "PACKET_RESERVE"); err != nil {
		return nil, err
	}
	if err := unix.SetsockoptTpacketReq(s.fd, unix.SOL_PACKET, unix.PACKET_RX_RING, g.request()); err != nil {
		return nil, fmt.Errorf("receive ring of %v: %w", g, err)
	}
	mem, err := unix.Mmap(s.fd, 0, g.bytes(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map receive ring of %v: %w", g, err)
	}
	s.info.RxSlots = g.slots()
	r := &ring{socket: s, mem: mem, slots: make([][]byte, g.slots()), heads: make([]*unix.Tpacket2Hdr, g.slots())}
	for i := range r.slots {
		off := g.offset(i)
		r.slots[i] = mem[off : off+g.slot : off+g.slot]
		r.heads[i] = slotHeader(r.slots[i])
	}
	return r, nil
}

// Recv implements Driver.
func (r *ring) Recv(dst [][]byte) (n int, err error) {
	r.release()
	for n < len(dst) && r.filled() {
		if frame := contents(r.slots[r.next], r.heads[r.next]); frame != nil {
			dst[n] = frame
			n++
		} else {
			r.taken.truncated.Add(1)
		}
		r.advance()
	}
	return n, r.judgeEmpty(n > 0 || len(dst) == 0)
}

// filled reports whether the kernel has filled the slot at head.
func (r *ring) filled() bool {
	return r.head-r.tail < uint(len(r.slots)) && atomic.LoadUint32(&r.heads[r.next].Status)&unix.TP_STATUS_USER != 0
}

// stamp is when the kernel received what the slot at head holds, in nanoseconds. It must be filled.
func (r *ring) stamp() uint64 {
	h := r.heads[r.next]
	return uint64(h.Sec)*1e9 + uint64(h.Nsec)
}

// advance takes the slot at head.
func (r *ring) advance() {
	r.head++
	if r.next++; r.next == len(r.slots) {
		r.next = 0
	}
}

// judgeEmpty ends a Recv: one in a while of those that found nothing asks the socket for a waiting error.
func (r *ring) judgeEmpty(found bool) error {
	if found {
		r.empty = 0
		return nil
	}
	if r.empty++; r.empty < errorEvery && !r.gone.Load() && r.fd >= 0 {
		return nil
	}
	r.empty = 0
	return r.pending()
}

// release gives the slots of the previous Recv back to the kernel, oldest first.
func (r *ring) release() {
	for ; r.tail != r.head; r.tail++ {
		atomic.StoreUint32(&r.heads[r.back].Status, unix.TP_STATUS_KERNEL)
		if r.back++; r.back == len(r.slots) {
			r.back = 0
		}
	}
}

// contents returns the frame in a slot, nil if it was cut short or the header points outside the slot.
func contents(slot []byte, h *unix.Tpacket2Hdr) []byte {
	start, size := int(h.Mac), int(h.Snaplen)
	if h.Snaplen != h.Len || start < unix.TPACKET_HDRLEN || start+size > len(slot) {
		return nil
	}
	return slot[start : start+size : start+size]
}

// Close unmaps the ring and closes the socket.
func (r *ring) Close() error {
	if r.mem == nil {
		return r.socket.Close()
	}
	err := unix.Munmap(r.mem)
	r.mem, r.slots, r.heads = nil, nil, nil
	r.head, r.tail = 0, 0
	return errors.Join(err, r.socket.Close())
}
