package fabric

import (
	"net/netip"

	"multiedge/internal/frame"
)

// Ports of hosts that run engines, as the driver of IP links has them (PROTOCOL clause 21.9). All lanes of a host share
// its front. Each has two ports besides, from which it asks, and of which another may be drawn. A host with one lane
// has its front alone.

const (
	frontPort = 9470
	firstPort = 32768 // that is drawn
)

// front is where a host is asked.
func front(host int32) frame.Addr { return at(host, frontPort) }

func at(host int32, port uint16) frame.Addr {
	return frame.IP(netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(host >> 8), byte(host), 1}), port))
}

// hostOf is the other way round.
func hostOf(a *frame.Addr) (host int32, port uint16) {
	there := a.AddrPort()
	ip := there.Addr().As4()
	return int32(ip[1])<<8 | int32(ip[2]), there.Port()
}

// laneSocket is a socket from which a lane asks.
type laneSocket struct {
	lane   int
	socket uint8 // frame.SocketAsk or SocketOther
}

// ports are those of a host.
type ports struct {
	lanes   int
	drawn   uint16 // how many were
	of      map[laneSocket]uint16
	sockets map[uint16]laneSocket
}

func (t *ports) open(lanes int) {
	*t = ports{lanes: lanes, of: map[laneSocket]uint16{}, sockets: map[uint16]laneSocket{}}
	for l := range lanes {
		t.draw(l, frame.SocketAsk)
		t.draw(l, frame.SocketOther)
	}
}

// draw gives a socket of a lane another port.
func (t *ports) draw(lane int, socket uint8) {
	s := laneSocket{lane, socket}
	delete(t.sockets, t.of[s])
	port := firstPort + t.drawn%(1<<16-firstPort)
	t.drawn++
	t.of[s], t.sockets[port] = port, s
}

// sender is the port from which a lane sends to an address.
func (t *ports) sender(lane int, to *frame.Addr) uint16 {
	if t.lanes == 1 || to.Socket() == frame.SocketFront {
		return frontPort
	}
	return t.of[laneSocket{lane, to.Socket()}]
}

// receiver is the lane that a packet has arrived for, and where it came from; false: the port is no more.
func (t *ports) receiver(p *packet) (lane int, from frame.Addr, ok bool) {
	from = at(p.from, p.fromPort)
	if p.toPort != frontPort {
		s, ok := t.sockets[p.toPort]
		return s.lane, from, ok
	}
	if t.lanes > 1 {
		from = from.By(frame.SocketFront)
	}
	return int(p.frame[pathAt]) % t.lanes, from, true
}

// pathAt is where a frame has the number of the path (PROTOCOL clause 2.2).
const pathAt = frame.HeaderLen + 2
