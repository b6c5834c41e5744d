package faults

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"multiedge/internal/ipc"
)

// rawClient speaks the daemon's protocol by hand, so it can do whatever a hostile process can.
type rawClient struct {
	conn  *ipc.Conn
	id    uint64
	fds   []int // rings, submit doorbell, complete doorbell
	rings *ipc.Rings
	mem   []byte // the rings again, as bytes
	sq    *ipc.SubmitProducer
	cq    *ipc.CompleteConsumer
	bell  *ipc.Doorbell
}

const rawDepth = 64

// rawTime bounds the wait for any answer of the daemon.
const rawTime = 5 * time.Second

func newRawClient(ctx context.Context, socket string) (*rawClient, error) {
	conn, err := ipc.Dial(ctx, socket)
	if err != nil {
		return nil, err
	}
	c := &rawClient{conn: conn}
	m, fds, err := c.call(ipc.Hello(rawDepth))
	if err == nil && len(fds) != 3 {
		err = fmt.Errorf("%d descriptors in the answer to hello", len(fds))
	}
	if err == nil {
		c.fds = fds
		c.rings, err = ipc.MapRings(fds[0], m.Rings)
	}
	if err == nil {
		c.mem, err = unix.Mmap(fds[0], 0, m.Rings.Size(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	}
	if err != nil {
		c.close()
		return nil, err
	}
	c.sq, c.cq, c.bell = c.rings.SubmitProducer(), c.rings.CompleteConsumer(), ipc.DoorbellFromFD(fds[1])
	return c, nil
}

func (c *rawClient) close() {
	c.conn.Close()
	if c.mem != nil {
		_ = unix.Munmap(c.mem)
	}
	if c.rings != nil {
		c.rings.Close()
	}
	ipc.CloseFDs(c.fds)
}

// call sends a request and returns its answer. It drops events that come before.
func (c *rawClient) call(m *ipc.Message, fds ...int) (*ipc.Message, []int, error) {
	c.id++
	m.ID = c.id
	if err := c.conn.Send(m, fds...); err != nil {
		return nil, nil, err
	}
	return c.next(func(r *ipc.Message) bool { return r.ID == m.ID })
}

// next returns the next message that fits. If none comes in time, it closes the socket.
func (c *rawClient) next(fits func(*ipc.Message) bool) (*ipc.Message, []int, error) {
	stop := time.AfterFunc(rawTime, func() { c.conn.Close() })
	defer stop.Stop()
	for {
		m, fds, err := c.conn.RecvFDs()
		switch {
		case err != nil:
			return nil, nil, err
		case !fits(m):
			ipc.CloseFDs(fds)
		case m.Error != nil:
			return nil, nil, m.Error
		default:
			return m, fds, nil
		}
	}
}

// gone waits until the daemon ends the session. It returns an error if the daemon does not.
func (c *rawClient) gone() error {
	start := time.Now()
	_, _, err := c.next(func(*ipc.Message) bool { return false })
	if err == nil || time.Since(start) >= rawTime {
		return errors.New("the daemon kept a client that broke the rules")
	}
	return nil
}

// dial connects to a server of a scenario and returns the connection's number and the key of what it exports.
func (c *rawClient) dial(job *Job, n int) (conn uint32, key uint64, size uint64, err error) {
	hello, err := json.Marshal(greeting{ID: fmt.Sprintf("%s-%d", job.Name, n), Size: 64 << 10, Seed: job.Seed})
	if err != nil {
		return 0, 0, 0, err
	}
	c.id++
	if err := c.conn.Send(&ipc.Message{ID: c.id, Kind: ipc.KindDial, Peer: job.Peer, Service: job.Service,
		Data: hello}); err != nil {
		return 0, 0, 0, err
	}
	for conn == 0 || key == 0 { // the advert may overtake the answer
		m, _, err := c.next(func(m *ipc.Message) bool { return m.ID == c.id || m.Kind == ipc.KindAdvert })
		if err != nil {
			return 0, 0, 0, err
		}
		if m.Kind == ipc.KindAdvert {
			key, size = m.Key, m.Size
		} else {
			conn = m.Conn
		}
	}
	return conn, key, size, nil
}

// post publishes submissions, waits for as many completions and returns them by token.
func (c *rawClient) post(es []ipc.SQE) (map[uint64]ipc.Status, error) {
	out := map[uint64]ipc.Status{}
	for i := range es {
		c.sq.Put(&es[i])
	}
	if c.sq.Publish() {
		c.bell.Ring()
	}
	var buf [rawDepth]ipc.CQE
	for start := time.Now(); len(out) < len(es); {
		n, err := c.cq.Drain(buf[:])
		if err != nil {
			return out, err
		}
		for _, e := range buf[:n] {
			if _, twice := out[e.Token]; twice {
				return out, fmt.Errorf("operation %d completed twice", e.Token)
			}
			out[e.Token] = e.Status
		}
		if n == 0 {
			if time.Since(start) > rawTime {
				return out, fmt.Errorf("%d of %d operations completed", len(out), len(es))
			}
			time.Sleep(20 * time.Microsecond)
		}
	}
	return out, nil
}
