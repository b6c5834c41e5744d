// Package raw speaks a daemon's protocol (docs/ABI.md) by hand, so that its users can do whatever a hostile process
// can: the rings are at hand as bytes, and so are the descriptors that a good client closes.
package raw

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"multiedge/internal/ipc"
)

// Client is an attachment to a daemon. It is not safe for concurrent use.
type Client struct {
	Conn     *ipc.Conn
	Rings    *ipc.Rings
	SQ       *ipc.SubmitProducer
	CQ       *ipc.CompleteConsumer
	Mem      []byte // of the rings, once more
	RingsFD  int
	Bell     *ipc.Doorbell // of the daemon
	Complete int           // descriptor of what the daemon rings
	ID       uint64        // of the latest request

	fds  []int
	wait time.Duration // for any answer
}

// Attach greets the daemon at the other end of conn, with queues of that depth. No answer may take longer than wait. It
// consumes conn.
func Attach(conn *ipc.Conn, depth int, wait time.Duration) (*Client, error) {
	c := &Client{Conn: conn, wait: wait}
	m, fds, err := c.Ask(ipc.Hello(depth))
	c.fds = fds
	if err == nil && len(fds) != 3 {
		err = fmt.Errorf("raw: %d descriptors came with the rings", len(fds))
	}
	if err == nil {
		c.RingsFD, c.Bell, c.Complete = fds[0], ipc.DoorbellFromFD(fds[1]), fds[2]
		c.Rings, err = ipc.MapRings(c.RingsFD, m.Rings)
	}
	if err == nil {
		c.Mem, err = unix.Mmap(c.RingsFD, 0, m.Rings.Size(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	c.SQ, c.CQ = c.Rings.SubmitProducer(), c.Rings.CompleteConsumer()
	return c, nil
}

// Close ends the attachment and releases everything but what Register returned.
func (c *Client) Close() {
	c.Conn.Close()
	if c.Mem != nil {
		_ = unix.Munmap(c.Mem)
	}
	if c.Rings != nil {
		c.Rings.Close()
	}
	ipc.CloseFDs(c.fds)
}

// Ask sends a request and returns its answer, which is an error if it is a refusal (*ipc.Error). It drops events that
// come before.
func (c *Client) Ask(m *ipc.Message, fds ...int) (*ipc.Message, []int, error) {
	c.ID++
	m.ID = c.ID
	if err := c.Conn.Send(m, fds...); err != nil {
		return nil, nil, err
	}
	return c.Next(func(r *ipc.Message) bool { return r.ID == m.ID })
}

// Next returns the next message that fits, and drops others. If none comes in time, it closes the socket.
func (c *Client) Next(fits func(*ipc.Message) bool) (*ipc.Message, []int, error) {
	stop := time.AfterFunc(c.wait, func() { c.Conn.Close() })
	defer stop.Stop()
	for {
		m, fds, err := c.Conn.RecvFDs()
		switch {
		case err != nil:
			return nil, nil, fmt.Errorf("raw: %w", err)
		case !fits(m):
			ipc.CloseFDs(fds)
		case m.Error != nil:
			ipc.CloseFDs(fds)
			return nil, nil, m.Error
		default:
			return m, fds, nil
		}
	}
}

// Register asks for memory, and returns its number and its descriptor, which the caller closes. It may be used, and no
// longer be mapped for writing, once Mapped has said so.
func (c *Client) Register(size uint64) (region uint32, fd int, err error) {
	m, fds, err := c.Ask(&ipc.Message{Kind: ipc.KindRegister, Size: size})
	if err != nil {
		return 0, -1, err
	}
	if len(fds) != 1 {
		ipc.CloseFDs(fds)
		return 0, -1, fmt.Errorf("raw: %d descriptors came with the memory", len(fds))
	}
	return m.Region, fds[0], nil
}

// Mapped tells the daemon that memory is mapped.
func (c *Client) Mapped(region uint32) error {
	_, _, err := c.Ask(&ipc.Message{Kind: ipc.KindMapped, Region: region})
	return err
}

// Connect dials a service that exports memory, with data, and returns the connection's number and the memory's key and
// size.
func (c *Client) Connect(peer, service string, data []byte) (conn uint32, key, size uint64, err error) {
	c.ID++
	m := &ipc.Message{ID: c.ID, Kind: ipc.KindDial, Peer: peer, Service: service, Data: data}
	if err := c.Conn.Send(m); err != nil {
		return 0, 0, 0, err
	}
	for conn == 0 || key == 0 { // the advert may overtake the answer
		r, _, err := c.Next(func(r *ipc.Message) bool { return r.ID == m.ID || r.Kind == ipc.KindAdvert })
		if err != nil {
			return 0, 0, 0, fmt.Errorf("raw: connecting to %q of %q: %w", service, peer, err)
		}
		if r.Kind == ipc.KindAdvert {
			key, size = r.Key, r.Size
		} else {
			conn = r.Conn
		}
	}
	return conn, key, size, nil
}

// Publish shows the daemon what was put into the submission ring.
func (c *Client) Publish() {
	if c.SQ.Publish() {
		c.Bell.Ring()
	}
}
