package edge

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"

	"multiedge/internal/ipc"
)

// callTable holds the requests that wait for an answer.
type callTable struct {
	mu      sync.Mutex
	next    uint64
	pending map[uint64]*call
	dead    bool
}

// call is one request. apply runs on the reading goroutine when a successful answer arrives in time, before any later
// message is looked at; late runs instead when the caller has gone.
type call struct {
	done  chan error
	reply *ipc.Message
	fds   []int
	gone  bool
	apply func(*ipc.Message)
	late  func(*ipc.Message)

	wantFDs bool  // descriptors belong to the answer
	sends   []int // descriptors that go with the request
}

func (t *callTable) add(c *call) (id uint64, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.dead {
		return 0, false
	}
	id = t.next
	t.next++
	t.pending[id] = c
	return id, true
}

func (t *callTable) take(id uint64) (c *call, gone bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c = t.pending[id]
	delete(t.pending, id)
	return c, c != nil && c.gone
}

// abandon reports whether the answer had not arrived.
func (t *callTable) abandon(id uint64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.pending[id]
	if c != nil {
		c.gone = true
	}
	return c != nil
}

func (t *callTable) failAll() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.dead = true
	for _, c := range t.pending {
		if !c.gone {
			c.done <- nil
		}
	}
	clear(t.pending)
}

// call sends m and waits for the answer. The descriptors of the answer are in c.fds and the caller's.
func (d *attachment) call(ctx context.Context, m *ipc.Message, c *call) (*ipc.Message, error) {
	if ctx.Err() != nil {
		return nil, d.ended(ctx)
	}
	c.done = make(chan error, 1)
	id, ok := d.calls.add(c)
	if !ok {
		return nil, d.deadErr()
	}
	m.ID = id
	if err := d.ctl.SendContext(ctx, m, c.sends...); err != nil {
		d.calls.take(id)
		if err == ctx.Err() {
			return nil, d.ended(ctx)
		}
		return nil, d.unsent(err)
	}
	select {
	case err := <-c.done:
		if err == nil && c.reply == nil {
			err = d.deadErr()
		}
		return c.reply, err
	case <-ctx.Done():
		if d.calls.abandon(id) {
			return nil, d.ended(ctx)
		}
		err := <-c.done // the answer is being delivered
		if err == nil && c.reply == nil {
			err = d.deadErr()
		}
		return c.reply, err
	}
}

// unsent says why a request could not be sent: the daemon has ended or does not run, or the request itself is at fault.
func (d *attachment) unsent(err error) error {
	socket, ok := errors.AsType[*net.OpError](err)
	switch {
	case d.Err() != nil:
		return d.Err()
	case !ok:
		return fmt.Errorf("edge: request to the daemon: %w", err)
	case socket.Timeout():
		return fmt.Errorf("%w: it takes no requests: %w", ErrDaemonSilent, err)
	}
	return ErrDaemonDown // the reading side is about to notice
}

// deadErr is Err for paths that know the attachment ends, perhaps before dead is set.
func (d *attachment) deadErr() error {
	if err := d.Err(); err != nil {
		return err
	}
	return ErrDaemonDown
}

// tell sends a request whose answer nobody awaits.
func (d *attachment) tell(m *ipc.Message) {
	if id, ok := d.calls.add(&call{gone: true}); ok {
		m.ID = id
		d.ctl.Send(m) // failure shows at the reading side
	}
}

// readLoop serves the control socket until it ends.
func (d *attachment) readLoop() {
	defer close(d.life.readDone)
	for {
		m, fds, err := d.ctl.RecvFDs()
		if err != nil {
			d.fail(ErrDaemonDown)
			return
		}
		if m.ID != 0 {
			d.deliver(m, fds)
			continue
		}
		ipc.CloseFDs(fds)
		d.event(m)
	}
}

func (d *attachment) deliver(m *ipc.Message, fds []int) {
	c, gone := d.calls.take(m.ID)
	if c == nil || gone || m.Error != nil {
		ipc.CloseFDs(fds)
	}
	switch {
	case c == nil:
	case gone:
		if m.Error == nil && c.late != nil {
			c.late(m)
		}
	case m.Error != nil:
		c.done <- errorFor(m.Error.Code, m.Error.Text)
	default:
		if !c.wantFDs {
			ipc.CloseFDs(fds)
			fds = nil
		}
		c.reply, c.fds = m, fds
		if c.apply != nil {
			c.apply(m)
		}
		c.done <- nil
	}
}

// event handles what the daemon says unasked. Unknown kinds are those of features that are not in force, and ignored
// (A3.8).
func (d *attachment) event(m *ipc.Message) {
	if m.Kind == ipc.KindIncoming {
		d.incoming(m)
		return
	}
	c := d.conn(m.Conn)
	if c == nil {
		return
	}
	switch m.Kind {
	case ipc.KindAdvert:
		c.advertised(m)
	case ipc.KindWithdrawn:
		c.withdrawn(m.Key)
	case ipc.KindEnded:
		d.sync() // so do completions
		c.end(c.closedError(m.Code, m.Text))
	case ipc.KindClosed:
		d.sync() // notifications published before this message come first
		c.fail(c.closedError(m.Code, m.Text))
		d.forget(c) // the daemon has no more to say of it, whether its owner closes it or not
	}
}

func (d *attachment) forget(c *Conn) {
	d.conns.mu.Lock()
	defer d.conns.mu.Unlock()
	if d.conns.byNumber[c.id] == c {
		delete(d.conns.byNumber, c.id)
	}
}

func (d *attachment) conn(id uint32) *Conn {
	d.conns.mu.Lock()
	defer d.conns.mu.Unlock()
	return d.conns.byNumber[id]
}
