package linkdrv

import (
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Whatever number of frames datagrams hold, as many frames as are announced fit, a few of them being held by the caller
// meanwhile.
func TestSuperRingsHoldWhatIsAnnounced(t *testing.T) {
	for _, mtu := range []int{1500, 4096, 9000, 16110, 32000, 65535} {
		namespace(t)
		veth(t, mtu)
		tx, rx := open(t, "a0", Options{Kind: KindUDP}), open(t, "b0", Options{Kind: KindUDP})
		long, slots := longest(tx), rx.Info().RxSlots
		for per := 1; per <= max(1, superBytes/long); per++ {
			before, err := rx.Stats()
			must(t, err)
			for range slots / per {
				frames, _ := stream(tx, rx, per, long, long-1)
				sendFrames(t, tx, frames)
			}
			after, err := rx.Stats()
			if err != nil || after.Dropped != before.Dropped {
				t.Errorf("MTU %d: %d of %d datagrams of %d frames dropped (%v)", mtu, after.Dropped-before.Dropped,
					slots/per, per, err)
			}
			for buf := make([][]byte, 32); ; {
				n, err := rx.Recv(buf)
				must(t, err)
				if n == 0 {
					break
				}
			}
		}
		must(t, deleteLink(t, "a0"))
	}
}

// A clock that is set back does not keep a datagram from being taken while later ones go on coming through the other
// ring.
func TestSuperClockStep(t *testing.T) {
	const slots, early = 8, 777
	made := func() *ring {
		r := &ring{socket: &socket{fd: -1}, mem: make([]byte, slots*4096)}
		for i := range slots {
			s := r.mem[i*4096:][:4096:4096]
			r.slots, r.heads = append(r.slots, s), append(r.heads, slotHeader(s))
		}
		return r
	}
	put := func(r *ring, at int, sec uint32, mark uint32) {
		const start = 200
		slot, h := r.slots[at%slots], r.heads[at%slots]
		h.Mac, h.Sec, h.Len, h.Snaplen = start, sec, OuterLen+50, OuterLen+50
		var o outer
		o.init(make([]byte, 6), 1)
		o.fill(&flow{}, 50, 50)
		copy(slot[start-vnetLen:], o[:])
		binary.BigEndian.PutUint32(slot[start+OuterLen+20:], mark)
		h.Status = unix.TP_STATUS_USER
	}
	for _, way := range []string{"short one waits", "long one waits"} {
		d := &udp{ring: made(), supers: made(), poll: -1}
		waits, busy := d.ring, d.supers
		if way == "long one waits" {
			waits, busy = busy, waits
		}
		put(waits, 0, 10_000, early)
		buf, next, taken := make([][]byte, 3), 0, false
		for ; next < slots/2; next++ {
			put(busy, next, 6_400, 0) // an hour earlier, by the clock
		}
		for range 2 * slots {
			n, err := d.Recv(buf)
			must(t, err)
			for _, f := range buf[:n] {
				taken = taken || binary.BigEndian.Uint32(f[20:]) == early
			}
			for range n {
				put(busy, next, 6_400, 0)
				next++
			}
		}
		if !taken {
			t.Errorf("%s: not taken before %d later ones", way, next)
		}
	}
}

// An interface that goes down leaves an error in both sockets. Neither keeps the descriptor readable once it was
// reported, whoever met the first one.
func TestSuperDownThenQuiet(t *testing.T) {
	namespace(t)
	veth(t, 9000)
	for _, up := range []bool{false, true} { // before the driver is used again
		tx, rx := open(t, "a0", Options{Kind: KindUDP}), open(t, "b0", Options{Kind: KindUDP})
		must(t, netlink.LinkSetDown(link(t, "a0")))
		if up {
			setUp(t, "a0")
		}
		if _, err := tx.Send([]TxFrame{{Head: header(tx, rx, 50)}}); (err == nil) != up {
			t.Errorf("%v: %v", up, err)
		}
		buf, last := make([][]byte, 4), error(nil)
		for range 3 * errorEvery {
			if _, err := tx.Recv(buf); err != nil {
				last = err
			}
		}
		fds := []unix.PollFd{{Fd: int32(tx.FD()), Events: unix.POLLIN}}
		if n, err := unix.Poll(fds, 0); n != 0 || err != nil {
			t.Errorf("up again %v: readable for ever, events %#x (%v), Recv said %v", up, fds[0].Revents, err, last)
		}
		setUp(t, "a0")
		for _, d := range []Driver{tx, rx} {
			if err := d.Close(); err != nil {
				t.Error(fmt.Errorf("close: %w", err))
			}
		}
	}
}

// A link without carrier has no room for super-frames, and goes on bypassing the queueing discipline: it was not the
// want of somebody to cut them up.
func TestSuperNoCarrier(t *testing.T) {
	namespace(t)
	veth(t, 9000)
	a0 := link(t, "a0").Attrs().Index
	// With a queueing discipline, what it is given while there is no carrier is lost without a word.
	must(t, netlink.QdiscAdd(&netlink.PfifoFast{QdiscAttrs: netlink.QdiscAttrs{LinkIndex: a0,
		Handle: netlink.MakeHandle(1, 0), Parent: netlink.HANDLE_ROOT}}))
	tx, rx := open(t, "a0", Options{Kind: KindUDP}), open(t, "b0", Options{Kind: KindUDP})
	frames, want := stream(tx, rx, 20, 1000, 1000)
	must(t, netlink.LinkSetDown(link(t, "b0")))
	for range 2 {
		if n, err := tx.Send(frames); n != 0 || err != nil {
			t.Errorf("Send without carrier = %d, %v; want 0, nil", n, err)
		}
	}
	if s, err := tx.Stats(); err != nil || s.Sent != 0 || s.NoRoom != 2 {
		t.Errorf("%+v, %v", s, err)
	}
	setUp(t, "b0")
	recvError(rx)
	sendFrames(t, tx, frames)
	checkFrames(t, receive(t, rx, len(want)), want)
	if n := datagrams(rx); n != 1 || !tx.(*udp).bypass {
		t.Errorf("%d datagrams, bypass %v", n, tx.(*udp).bypass)
	}
}
