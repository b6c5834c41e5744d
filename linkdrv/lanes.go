package linkdrv

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync/atomic"

	"multiedge/internal/frame"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// Lanes of an IP link: several flows, which routers with equal paths carry by different ones (PROTOCOL clause 21.9).
// Each lane is a link to the engine and has a driver of its own:
//
//   - The front is the link's port, at which peers ask. Each lane has a socket there (SO_REUSEPORT), and a classic BPF
//     program gives a datagram to that of the lane whose number is the path in the frame's header modulo the lanes.
//   - To ask, a lane has two sockets with ports that the kernel draws. The engine uses one for a path until the path is
//     found dead, then the other; the one that no path uses may get another port (Redraw).
//   - One epoll has all of these sockets: a turn of the shard costs one look instead of three calls for each lane.

// MaxLanes is the most lanes of an IP link.
const MaxLanes = 16

// Redrawer is a Driver with Info().Ports.
type Redrawer interface {
	Driver
	// Redraw gives one of the sockets from which the lane asks, of that number in addresses, another port. What was on
	// its way to the old port is lost. It is for the goroutine that calls Send.
	Redraw(which uint8) error
}

// laneSet is what the lanes of a link share. But for left, the goroutine that receives owns it: one serves all lanes.
type laneSet struct {
	epoll  int
	left   atomic.Int32 // lanes that are not closed
	laps   uint64       // looks
	lap    []uint64     // of each lane, the latest look that it saw
	ready  []uint8      // of each lane, sockets where something may wait
	events []unix.EpollEvent
}

// newLaneSet is refused a port that anybody has: sockets of this user that share ports would join the lanes'.
func newLaneSet(at netip.AddrPort, lanes int) (*laneSet, error) {
	alone := &ipDriver{at: at, room: leastLaneBuffer}
	fd, err := alone.newSocket(at.Port(), false)
	if err != nil {
		return nil, err
	}
	unix.Close(fd)
	ep, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("epoll: %w", err)
	}
	return &laneSet{epoll: ep, lap: make([]uint64, lanes), ready: make([]uint8, lanes),
		events: make([]unix.EpollEvent, lanes*ipSockets)}, nil
}

// add makes the sockets of a lane.
func (g *laneSet) add(d *ipDriver) error {
	g.left.Add(1)
	d.info.Ports = true
	err := d.bind(frame.SocketFront, d.at.Port(), true)
	for _, which := range []int{frame.SocketAsk, frame.SocketOther} {
		if err == nil {
			d.socks[which], err = d.draw()
		}
	}
	for which, fd := range d.socks {
		if err == nil {
			err = g.watch(d.lane, which, fd)
		}
	}
	return err
}

func (g *laneSet) watch(lane, which, fd int) error {
	ev := unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(lane*ipSockets + which)}
	if err := unix.EpollCtl(g.epoll, unix.EPOLL_CTL_ADD, fd, &ev); err != nil {
		return fmt.Errorf("epoll: %w", err)
	}
	return nil
}

// leave is called when a lane has closed its sockets.
func (g *laneSet) leave() error {
	if g.left.Add(-1) > 0 {
		return nil
	}
	return unix.Close(g.epoll)
}

// waiting returns the sockets of a lane where something may wait, which the caller takes away. It looks when a lane
// comes round for the second time.
func (g *laneSet) waiting(lane int) *uint8 {
	if g.lap[lane] == g.laps {
		n := epollLook(g.epoll, g.events)
		for i := range g.events[:n] {
			at := int(g.events[i].Fd)
			g.ready[at/ipSockets] |= 1 << (at % ipSockets)
		}
		g.laps++
	}
	g.lap[lane] = g.laps
	return &g.ready[lane]
}

// pathOffset is where the path stands in a datagram.
const pathOffset = HeaderLen + 2

// steer has the kernel choose the lane of a datagram at the front, of which fd is one socket. One that is too short has
// none, and lane 0 counts it.
func (g *laneSet) steer(fd int) error {
	prog := assemble(bpf.LoadAbsolute{Off: pathOffset, Size: 1},
		bpf.ALUOpConstant{Op: bpf.ALUOpMod, Val: uint32(len(g.lap))}, bpf.RetA{})
	code := make([]unix.SockFilter, len(prog))
	for i, in := range prog {
		code[i] = unix.SockFilter{Code: in.Op, Jt: in.Jt, Jf: in.Jf, K: in.K}
	}
	if err := unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_REUSEPORT_CBPF,
		&unix.SockFprog{Len: uint16(len(code)), Filter: &code[0]}); err != nil {
		return fmt.Errorf("program that chooses the lane: %w", err)
	}
	return nil
}

// reservedPorts are neither drawn nor listened at: RoCE's, which NICs and switches treat apart, Azure's own, and that
// of frames in datagrams (clause 12.3).
var reservedPorts = [...]int{4791, 65330, int(EtherType)}

// mostDraws bounds how often the kernel is asked for another port.
const mostDraws = 8

// draw makes a socket at a port that the kernel draws.
func (d *ipDriver) draw() (fd int, err error) {
	for range mostDraws {
		if fd, err = d.newSocket(0, false); err != nil {
			return -1, err
		}
		if at, err := unix.Getsockname(fd); err == nil && !reserved(at) {
			return fd, nil
		}
		unix.Close(fd)
	}
	return -1, errors.New("the kernel draws reserved ports alone: widen net.ipv4.ip_local_port_range")
}

func reserved(at unix.Sockaddr) bool {
	switch at := at.(type) {
	case *unix.SockaddrInet4:
		return slices.Contains(reservedPorts[:], at.Port)
	case *unix.SockaddrInet6:
		return slices.Contains(reservedPorts[:], at.Port)
	}
	return false
}

// Redraw implements Redrawer. The new socket takes the number of the old one, so that whoever receives meanwhile sees
// one or the other.
func (d *ipDriver) Redraw(which uint8) error {
	old := d.socks[which]
	if d.lanes == nil || old < 0 || which == frame.SocketFront {
		return d.errs.closed
	}
	fd, err := d.draw()
	if err != nil {
		return fmt.Errorf("linkdrv: %s: %w", d.info.Name, err)
	}
	defer unix.Close(fd)
	dropped, errno := socketDrops(old)
	// Watched before it takes the old one's place: a lane that can have no other port keeps the one that it has. The
	// kernel goes on watching a socket that has another number now.
	if err = d.lanes.watch(d.lane, int(which), fd); err == nil {
		err = unix.Dup3(fd, old, unix.O_CLOEXEC)
	}
	if err != nil {
		return fmt.Errorf("linkdrv: %s: another port: %w", d.info.Name, err)
	}
	if errno == 0 {
		d.gone += uint64(dropped)
	}
	return nil
}
