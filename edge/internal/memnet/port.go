package memnet

import (
	"bytes"
	"fmt"
	"net"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"multiedge/linkdrv"
	"multiedge/linkdrv/linktest"
)

// port is a link to a Net: a switch port that knows its neighbours. It is a linkdrv.Driver over one
// linktest.End per neighbour. Neighbours come and go under Net.mu; the owner of the driver sees them by one atomic
// load.
type port struct {
	net   *Net
	name  string
	mac   net.HardwareAddr
	epoll int
	links atomic.Pointer[[]link]
	sent  uint64
}

type link struct {
	to   *port
	end  *linktest.End
	gone *atomic.Bool // the neighbour has left: what it sent is still received, then the link goes
}

func newPort(n *Net, name string, mac net.HardwareAddr) (*port, error) {
	ep, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("memnet: epoll_create1: %w", err)
	}
	p := &port{net: n, name: name, mac: mac, epoll: ep}
	p.links.Store(&[]link{})
	return p, nil
}

// join adds a neighbour. The caller holds Net.mu.
func (p *port) join(q *port, end *linktest.End) error {
	fd := end.FD()
	if err := unix.EpollCtl(p.epoll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN,
		Fd: int32(fd)}); err != nil {
		return fmt.Errorf("memnet: epoll_ctl: %w", err)
	}
	links := append([]link{}, *p.links.Load()...)
	links = append(links, link{q, end, new(atomic.Bool)})
	p.links.Store(&links)
	return nil
}

// noteGone notes that a neighbour has left. The caller holds Net.mu.
func (p *port) noteGone(q *port) {
	for _, l := range *p.links.Load() {
		if l.to == q {
			l.gone.Store(true)
		}
	}
}

// leave removes one link to a neighbour that has left, or all with nil. Frames received from it stay valid: they are
// ordinary memory.
func (p *port) leave(end *linktest.End) {
	p.net.mu.Lock()
	defer p.net.mu.Unlock()
	var kept []link
	for _, l := range *p.links.Load() {
		if l.end == end || end == nil {
			l.end.Close()
		} else {
			kept = append(kept, l)
		}
	}
	p.links.Store(&kept)
}

// Send implements linkdrv.Driver.
func (p *port) Send(frames []linkdrv.TxFrame) (int, error) {
	links := *p.links.Load()
	for i := range frames {
		head := frames[i].Head
		if len(head) < linkdrv.HeaderLen {
			return i + 1, linkdrv.ErrBadFrame
		}
		group := head[0]&1 != 0
		for _, l := range links {
			if !group && !bytes.Equal(head[:6], l.to.mac) {
				continue
			}
			if _, err := l.end.Send(frames[i : i+1]); err == linkdrv.ErrTooLong {
				return i + 1, err
			} // other errors: the neighbour is leaving, and a switch drops what it cannot deliver
		}
		p.sent++
	}
	return len(frames), nil
}

// Recv implements linkdrv.Driver.
func (p *port) Recv(dst [][]byte) (n int, err error) {
	var over *linktest.End
	for _, l := range *p.links.Load() {
		gone := l.gone.Load() // before Recv: it sends nothing after it
		m, err := l.end.Recv(dst[n:])
		if err == nil {
			n += m
		}
		if gone && m == 0 && n < len(dst) { // with room left, nothing received means that nothing is there
			over = l.end
		}
	}
	if over != nil {
		p.leave(over)
	}
	return n, nil
}

// FD implements linkdrv.Driver.
func (p *port) FD() int { return p.epoll }

// Stats implements linkdrv.Driver.
func (p *port) Stats() (s linkdrv.Stats, err error) {
	for _, l := range *p.links.Load() {
		if e, err := l.end.Stats(); err == nil {
			s.Received += e.Received
			s.Dropped += e.Dropped
		}
	}
	s.Sent = p.sent
	return s, nil
}

// Info implements linkdrv.Driver.
func (p *port) Info() linkdrv.Info {
	return linkdrv.Info{Name: p.name, Index: int(p.mac[5]) + 1, MAC: p.mac, MTU: mtu, RxSlots: slots,
		Kind: linktest.Kind}
}

// Close implements linkdrv.Driver.
func (p *port) Close() error {
	p.net.unplug(p)
	p.leave(nil)
	return unix.Close(p.epoll)
}
