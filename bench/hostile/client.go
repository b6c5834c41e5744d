package hostile

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sys/unix"

	"multiedge/bench/raw"
	"multiedge/internal/ipc"
)

// depth is of the queues a hostile client asks for.
const depth = 1024

// regionSize is what it registers, in bytes.
const regionSize = 1 << 20

// client is an attachment with memory, and where the options name a peer a connection.
type client struct {
	*raw.Client
	regionFD int // -1: none
	region   uint32
	link     uint32 // connection; 0: none
	key      uint64
	gone     chan struct{} // closed when the daemon ended the session
	inFlight int
	answers  chan answer // to demand
	hoard    []uint32    // regions held
	spaces   []space
	did      Report   // Refusals, Holes, Completed and Borne
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
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	c = &client{regionFD: -1, gone: make(chan struct{}), answers: make(chan answer, 1)}
	if c.Client, err = raw.Attach(conn, depth, answerTime); err != nil {
		stop()
		return nil, err
	}
	if c.region, c.regionFD, err = c.Register(regionSize); err == nil {
		err = c.Mapped(c.region)
	}
	if err == nil && o.Peer != "" {
		var hello []byte
		if o.Hello != nil {
			hello = o.Hello()
		}
		c.link, c.key, _, err = c.Connect(o.Peer, o.Service, hello)
	}
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

// listen reads what the daemon says until it ends the session.
func (c *client) listen() {
	defer close(c.gone)
	for {
		m, fds, err := c.Conn.RecvFDs()
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
	c.ID++
	m.ID = demands + c.ID
	if err := c.Conn.Send(m); err != nil {
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

// refused is what an error is to be in a mode that asks until it is refused: then it is counted, and release is called
// for half of what was got.
func (c *client) refused(err error, got *[]uint32, release func(n uint32) *ipc.Message) error {
	if _, ok := err.(*ipc.Error); !ok {
		return err
	}
	c.did.Refusals++
	for range (len(*got) + 1) / 2 {
		last := len(*got) - 1
		if _, err := c.demand(release((*got)[last])); err != nil {
			return err
		}
		*got = (*got)[:last]
	}
	return nil
}

// full is refused for regions.
func (c *client) full(err error) error {
	return c.refused(err, &c.hoard, func(n uint32) *ipc.Message {
		return &ipc.Message{Kind: ipc.KindDeregister, Region: n}
	})
}

// post takes what has completed and submits as many entries as there is room for, but not so many that more than most
// are in flight.
func (c *client) post(e *ipc.SQE, most int) (n uint64, err error) {
	var done [64]ipc.CQE
	ended, err := c.CQ.Drain(done[:])
	if err != nil {
		return 0, err
	}
	c.inFlight = max(c.inFlight-ended, 0)
	c.did.Completed += uint64(ended)
	room, err := c.SQ.Room()
	if err != nil {
		return 0, err
	}
	room = max(min(room, most-c.inFlight), 0)
	c.inFlight += room
	for range room {
		e.Token++
		c.SQ.Put(e)
	}
	c.Publish()
	return uint64(room), nil
}

func (c *client) close() {
	c.Close()
	if c.regionFD >= 0 {
		unix.Close(c.regionFD)
	}
}
