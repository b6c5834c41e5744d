package linkdrv

import (
	"bytes"
	"errors"
	"net/netip"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"multiedge/internal/frame"
)

// lanePair opens two IP links of so many lanes on the loopback interface of a fresh namespace.
func lanePair(t *testing.T, a, b int) (from, to []Driver) {
	t.Helper()
	namespace(t)
	must(t, netlink.LinkSetUp(link(t, "lo")))
	openLanes := func(at string, n int) []Driver {
		drivers, err := OpenShards(at, 1, Options{Listen: at, Lanes: n})
		must(t, err)
		t.Cleanup(func() {
			for _, d := range drivers {
				d.Close()
			}
		})
		return drivers
	}
	return openLanes("127.0.0.1:9470", a), openLanes("127.0.0.1:9471", b)
}

// laneFrame is a frame of a path, to an address.
func laneFrame(path, n int, to Addr) TxFrame {
	head := make([]byte, HeaderLen+n)
	DefaultIPHeader(head)
	head[pathOffset] = byte(path)
	return TxFrame{Head: head, To: to}
}

// arrived takes all frames that wait at drivers: how many at which, and where the latest came from.
func arrived(t *testing.T, drivers []Driver) (at []int, from Addr) {
	t.Helper()
	at = make([]int, len(drivers))
	buf := make([][]byte, RecvBatch)
	for range 2 {
		for k, d := range drivers {
			n, err := d.Recv(buf)
			must(t, err)
			if at[k] += n; n > 0 {
				from = d.(Sourcer).Sources()[n-1]
			}
		}
	}
	return at, from
}

// Clause 21.9: a lane asks from a port of its own and gets the answers to it; what is asked arrives at the lane that
// the frame's path says, whoever asks.
func TestLanes(t *testing.T) {
	from, to := lanePair(t, 4, 3)
	front := frame.IP(netip.MustParseAddrPort("127.0.0.1:9471"))
	ports := map[uint16]bool{}
	for path := range 8 {
		lane := from[path%4]
		frames := []TxFrame{laneFrame(path, 100, front), laneFrame(path, 100, front.By(frame.SocketOther)),
			laneFrame(path, 100, front)}
		if n, err := lane.Send(frames); n != 3 || err != nil {
			t.Fatal(n, err)
		}
		at, origin := arrived(t, to)
		if at[path%3] != 3 || at[0]+at[1]+at[2] != 3 {
			t.Fatalf("path %d: frames arrive at lanes %v", path, at)
		}
		if origin.Socket() != frame.SocketFront {
			t.Fatalf("path %d: the frame comes by socket %d", path, origin.Socket())
		}
		ports[origin.AddrPort().Port()] = true
		if n, err := to[path%3].Send([]TxFrame{laneFrame(path, 60, origin)}); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		if at, back := arrived(t, from); at[path%4] != 1 || back != front {
			t.Fatalf("path %d: the answer arrives at lanes %v, from %v by %d", path, at, back, back.Socket())
		}
	}
	if len(ports) != 4 {
		t.Errorf("4 lanes ask from the ports %v", ports)
	}
}

// Redraw changes the port of one socket and of no other, and what is sent to the new port arrives.
func TestLaneRedraw(t *testing.T) {
	from, to := lanePair(t, 2, 2)
	front := frame.IP(netip.MustParseAddrPort("127.0.0.1:9471"))
	port := func(which uint8) Addr {
		t.Helper()
		if n, err := from[1].Send([]TxFrame{laneFrame(1, 60, front.By(which))}); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		_, origin := arrived(t, to)
		if n, err := to[1].Send([]TxFrame{laneFrame(1, 60, origin)}); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		if at, _ := arrived(t, from); at[1] != 1 {
			t.Fatalf("socket %d: the answer arrives at lanes %v", which, at)
		}
		return origin
	}
	lane := from[1].(Redrawer)
	ask, other := port(frame.SocketAsk), port(frame.SocketOther)
	if ask == other {
		t.Fatalf("both ask from %v", ask)
	}
	for range 5 {
		must(t, lane.Redraw(frame.SocketOther))
		next := port(frame.SocketOther)
		if next == other || port(frame.SocketAsk) != ask {
			t.Fatalf("after a redraw: %v, before %v", next, other)
		}
		other = next
	}
	if lane.Redraw(frame.SocketFront) == nil {
		t.Error("another front was drawn")
	}
}

// A port that somebody of the same user has is refused, although lanes share theirs among themselves; and a link
// without lanes has no other sockets to send from.
func TestLanesAreAlone(t *testing.T) {
	from, to := lanePair(t, 2, 1)
	if drivers, err := OpenShards("again", 1, Options{Listen: "127.0.0.1:9470", Lanes: 2}); !errors.Is(err,
		unix.EADDRINUSE) {
		t.Errorf("%v, %v", drivers, err)
	}
	if _, err := OpenShards("many", 1, Options{Listen: "127.0.0.1:9472", Lanes: MaxLanes + 1}); err == nil {
		t.Error("more lanes than there may be")
	}
	at := from[0].Info().Local
	if n, err := to[0].Send([]TxFrame{laneFrame(0, 60, at.By(frame.SocketFront)), laneFrame(0, 60, at)}); n != 1 ||
		!errors.Is(err, ErrBadFrame) {
		t.Errorf("%d, %v", n, err)
	}
	for _, d := range from {
		must(t, d.Close())
	}
	drivers, err := OpenShards("again", 1, Options{Listen: "127.0.0.1:9470", Lanes: 2})
	must(t, err)
	for _, d := range drivers {
		must(t, d.Close())
	}
}

// A socket that is always full does not keep the others of its lane from being served.
func TestLaneSocketsTakeTurns(t *testing.T) {
	from, to := lanePair(t, 2, 2)
	front := frame.IP(netip.MustParseAddrPort("127.0.0.1:9471"))
	_, err := from[0].Send([]TxFrame{laneFrame(0, 60, front)})
	must(t, err)
	_, asks := arrived(t, to)
	flood := make([]TxFrame, SendBatch)
	for i := range flood {
		flood[i] = laneFrame(0, 60+i, from[0].Info().Local) // of unequal lengths: none are merged
	}
	buf := make([][]byte, RecvBatch)
	for range 3 {
		_, err := to[1].Send(flood)
		must(t, err)
	}
	_, err = to[0].Send([]TxFrame{laneFrame(0, 99, asks)})
	must(t, err)
	for range 3 { // at most one call for each socket
		n, err := from[0].Recv(buf)
		must(t, err)
		for i, b := range buf[:n] {
			if len(b) == HeaderLen+99 && from[0].(Sourcer).Sources()[i].Socket() == frame.SocketAsk {
				if !bytes.Equal(b[:HeaderLen], flood[0].Head[:HeaderLen]) {
					t.Error("another header")
				}
				return
			}
		}
	}
	t.Error("the answer waits behind what others ask")
}

// A lane that cannot have another port keeps the one that it has: frames go on to arrive there.
func TestLaneRedrawFails(t *testing.T) {
	from, to := lanePair(t, 2, 2)
	front := frame.IP(netip.MustParseAddrPort("127.0.0.1:9471"))
	asks := func() (origin Addr, answered int) {
		t.Helper()
		if n, err := from[1].Send([]TxFrame{laneFrame(1, 60, front)}); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		_, origin = arrived(t, to)
		_, err := to[1].Send([]TxFrame{laneFrame(1, 60, origin)})
		must(t, err)
		at, _ := arrived(t, from)
		return origin, at[1]
	}
	before, _ := asks()
	set := from[1].(*ipDriver).lanes
	watched := set.epoll
	set.epoll = -1 // as if the user had no room for it
	if err := from[1].(Redrawer).Redraw(frame.SocketAsk); !errors.Is(err, unix.EBADF) {
		t.Errorf("a socket that is not watched was put in place: %v", err)
	}
	set.epoll = watched
	if after, answered := asks(); after != before || answered != 1 {
		t.Errorf("asks from %v, then from %v; %d answers arrive", before, after, answered)
	}
}
