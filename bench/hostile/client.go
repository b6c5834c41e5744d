package hostile

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"multiedge/internal/ipc"
)

// depth is of the queues a hostile client asks for.
const depth = 1024

// regionSize is what it registers, in bytes.
const regionSize = 1 << 20

// client is an attachment with everything in reach: the rings as bytes, and the descriptors that a good client closes.
type client struct {
	conn     *ipc.Conn
	rings    *ipc.Rings
	sq       *ipc.SubmitProducer
	cq       *ipc.CompleteConsumer
	raw      []byte // the memory of the rings once more
	ringsFD  int
	regionFD int // -1: none
	region   uint32
	link     uint32 // connection; 0: none
	key      uint64
	bell     *ipc.Doorbell
	complete int           // what the daemon rings; -1: none
	gone     chan struct{} // closed when the daemon ended the session
	id       uint64
	inFlight int
	answers  chan answer // to demand
	hoard    []uint32    // regions held
	spaces   []space
	refusals uint64   // of further ones
	holes    uint64   // punched into memory that was pinned
	ended    uint64   // operations
	borne    []string // what the daemon should have evicted it for
	turn     uint64   // another for each attachment
	queues   []uint32 // for messages
	clogged  bool     // its rings hold what nobody answers
}

type answer struct {
	m   *ipc.Message
	fds []int
}

// answerTime bounds each answer of the daemon.
const answerTime = 20 * time.Second

var errGone = errors.New("hostile: the daemon ended the session")

// attach greets the daemon, and where the options name a peer connects to it and waits for memory that it exports. It
// consumes conn.
func attach(ctx context.Context, conn *ipc.Conn, o *Options) (c *client, err error) {
	c = &client{conn: conn, ringsFD: -1, regionFD: -1, complete: -1,
		gone: make(chan struct{}), answers: make(chan answer, 1)}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer func() {
		if !stop() && err == nil {
			err = ctx.Err()
		}
		if err != nil {
			c.close()
			c = nil
		}
	}()
	if err = c.hello(); err == nil {
		err = c.register()
	}
	if err == nil && o.Peer != "" {
		err = c.dial(o)
	}
	return c, err
}

// ask sends a request and waits for its answer; events that come first are looked at for exported memory.
func (c *client) ask(m *ipc.Message) (*ipc.Message, []int, error) {
	c.id++
	m.ID = c.id
	if err := c.conn.Send(m); err != nil {
		return nil, nil, err
	}
	timer := time.AfterFunc(answerTime, func() { c.conn.Close() })
	defer timer.Stop()
	for {
		r, fds, err := c.conn.RecvFDs()
		if err != nil {
			return nil, nil, fmt.Errorf("hostile: %s: %w", m.Kind, err)
		}
		if r.ID == m.ID {
			if r.Error != nil {
				ipc.CloseFDs(fds)
				return nil, nil, r.Error
			}
			return r, fds, nil
		}
		ipc.CloseFDs(fds)
		c.note(r)
	}
}

func (c *client) note(m *ipc.Message) {
	if m.Kind == ipc.KindAdvert {
		c.key = m.Key
	}
}

func (c *client) hello() error {
	m, fds, err := c.ask(ipc.Hello(depth))
	if err != nil {
		return err
	}
	if len(fds) != 3 {
		ipc.CloseFDs(fds)
		return fmt.Errorf("hostile: %d descriptors came with the rings", len(fds))
	}
	c.ringsFD, c.bell, c.complete = fds[0], ipc.DoorbellFromFD(fds[1]), fds[2]
	if c.rings, err = ipc.MapRings(c.ringsFD, m.Rings); err != nil {
		return err
	}
	c.raw, err = unix.Mmap(c.ringsFD, 0, m.Rings.Size(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	c.sq, c.cq = c.rings.SubmitProducer(), c.rings.CompleteConsumer()
	return err
}

func (c *client) register() error {
	m, fds, err := c.ask(&ipc.Message{Kind: ipc.KindRegister, Size: regionSize})
	if err != nil {
		return err
	}
	if len(fds) != 1 {
		ipc.CloseFDs(fds)
		return fmt.Errorf("hostile: %d descriptors came with the memory", len(fds))
	}
	c.region, c.regionFD = m.Region, fds[0]
	_, _, err = c.ask(&ipc.Message{Kind: ipc.KindMapped, Region: c.region})
	return err
}

func (c *client) dial(o *Options) error {
	var hello []byte
	if o.Hello != nil {
		hello = o.Hello()
	}
	m, _, err := c.ask(&ipc.Message{Kind: ipc.KindDial, Peer: o.Peer, Service: o.Service, Data: hello})
	if err != nil {
		return err
	}
	c.link = m.Conn
	timer := time.AfterFunc(answerTime, func() { c.conn.Close() })
	defer timer.Stop()
	for c.key == 0 {
		m, fds, err := c.conn.RecvFDs()
		if err != nil {
			return fmt.Errorf("hostile: waiting for memory of %q at %q: %w", o.Service, o.Peer, err)
		}
		ipc.CloseFDs(fds)
		c.note(m)
	}
	return nil
}

// listen reads what the daemon says until it ends the session.
func (c *client) listen() {
	defer close(c.gone)
	for {
		m, fds, err := c.conn.RecvFDs()
		if err != nil {
			return
		}
		if m.ID >= demands {
			c.answers <- answer{m, fds}
			continue
		}
		ipc.CloseFDs(fds)
	}
}

// demands is the first number of requests whose answers demand waits for.
const demands = 1 << 32

// demand is ask while listen runs. An error that is an *ipc.Error is a refusal.
func (c *client) demand(m *ipc.Message) (answer, error) {
	c.id++
	m.ID = demands + c.id
	if err := c.conn.Send(m); err != nil {
		return answer{}, err
	}
	select {
	case a := <-c.answers:
		if a.m.Error != nil {
			return a, a.m.Error
		}
		return a, nil
	case <-c.gone:
		return answer{}, errGone
	}
}

// more registers a further region and returns its descriptor, which was punched before it was said to be mapped.
func (c *client) more(size int) (fd int, err error) {
	a, err := c.demand(&ipc.Message{Kind: ipc.KindRegister, Size: uint64(size)})
	if err != nil {
		return -1, err
	}
	if len(a.fds) != 1 {
		ipc.CloseFDs(a.fds)
		return -1, errGone
	}
	_ = unix.Fallocate(a.fds[0], punchHole, 0, int64(size)) // as far as it can
	if _, err = c.demand(&ipc.Message{Kind: ipc.KindMapped, Region: a.m.Region}); err != nil {
		ipc.CloseFDs(a.fds)
		return -1, err
	}
	c.hoard = append(c.hoard, a.m.Region)
	return a.fds[0], nil
}

// refused is a refusal in a mode that asks until there is one: it is counted, and half of what was got is given back.
func (c *client) refused(err error) error {
	if _, ok := err.(*ipc.Error); !ok {
		return err
	}
	c.refusals++
	for range (len(c.hoard) + 1) / 2 {
		last := len(c.hoard) - 1
		if _, err := c.demand(&ipc.Message{Kind: ipc.KindDeregister, Region: c.hoard[last]}); err != nil {
			return err
		}
		c.hoard = c.hoard[:last]
	}
	return nil
}

// post takes what has completed and submits as many entries as there is room for, but not so many that more than most
// are in flight.
func (c *client) post(e *ipc.SQE, most int) (n uint64, err error) {
	var done [64]ipc.CQE
	ended, err := c.cq.Drain(done[:])
	if err != nil {
		return 0, err
	}
	c.inFlight = max(c.inFlight-ended, 0)
	c.ended += uint64(ended)
	room, err := c.sq.Room()
	if err != nil {
		return 0, err
	}
	room = max(min(room, most-c.inFlight), 0)
	c.inFlight += room
	for range room {
		e.Token++
		c.sq.Put(e)
	}
	c.publish()
	return uint64(room), nil
}

// publish shows the daemon what was put.
func (c *client) publish() {
	if c.sq.Publish() {
		c.bell.Ring()
	}
}

func (c *client) close() {
	c.conn.Close()
	if c.rings != nil {
		c.rings.Close()
	}
	if c.raw != nil {
		unix.Munmap(c.raw)
	}
	for _, fd := range []int{c.ringsFD, c.regionFD, c.complete} {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
	if c.bell != nil {
		c.bell.Close()
	}
}
