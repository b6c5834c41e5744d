package edge

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"

	"multiedge/internal/ipc"
)

// Conn is a connection to an application at a peer, over as many links as the two nodes share. Operations of a
// connection may take effect in any order unless fences or Ordered say otherwise. Any number of goroutines may use it.
type Conn struct {
	d       *attachment
	id      uint32
	peer    string
	service string

	inflight atomic.Int32 // operations; raised under attachment.out.post, lowered by the leader
	buffers  atomic.Int32 // posted for messages; likewise
	notes    notes
	grants   grants
	waiters  *waiter // guarded by leadership.mu
	closing  atomic.Bool
	owes     bool                     // it is on attachment.owing; guarded by attachment.out.post
	ended    atomic.Pointer[endState] // why it ended; notifications may still come
	drained  atomic.Bool              // after ended: none comes any more
	late     late
	lent     bool // it is for memory that was exported by name: when the peer closes it, the memory was revoked

	mu      sync.Mutex
	data    []byte
	adverts map[string]*RemoteRegion // the newest of each name; made by the first
	changed chan struct{}            // closed and replaced when adverts or ended change; made when somebody waits
}

type endState struct{ err error }

// Dial connects to a service at a peer, which is a node's name or its identity in hexadecimal. It returns when the peer
// has accepted.
func (d *Device) Dial(ctx context.Context, peer, service string, opts ...DialOption) (*Conn, error) {
	var o dialOptions
	for _, opt := range opts {
		opt(&o)
	}
	if err := checkNames(peer, service, o.data); err != nil {
		return nil, err
	}
	a, err := d.current(ctx)
	if err != nil {
		return nil, err
	}
	return a.dial(ctx, peer, service, &o)
}

func (d *attachment) dial(ctx context.Context, peer, service string, o *dialOptions) (*Conn, error) {
	m := &ipc.Message{Kind: ipc.KindDial, Peer: peer, Service: service, Data: o.data,
		Asked: ipc.Asked{Ordered: o.ordered, Scheduler: o.scheduler}}
	m.Overlap = o.overlap && d.features&ipc.FeatureOverlap != 0 // else in order, one after the other
	m.Timeout = timeLeft(ctx)
	var c *Conn
	d.dialBegins()
	defer d.dialEnds()
	_, err := d.call(ctx, m, &call{
		apply: func(m *ipc.Message) {
			c = d.newConn(m.Conn, orElse(m.Peer, peer), service, m.Data)
			c.lent = o.lent
		},
		late: func(m *ipc.Message) { go d.tell(&ipc.Message{Kind: ipc.KindAbort, Conn: m.Conn}) },
	})
	if err != nil {
		if c != nil {
			c.Abort()
		}
		return nil, err
	}
	return c, nil
}

func (d *attachment) dialBegins() {
	d.conns.mu.Lock()
	defer d.conns.mu.Unlock()
	d.conns.dialing++
}

func (d *attachment) dialEnds() {
	d.conns.mu.Lock()
	defer d.conns.mu.Unlock()
	if d.conns.dialing--; d.conns.dialing == 0 {
		d.conns.orphans = nil
	}
}

// newConn enters a connection the daemon told of, with the notifications that were faster.
func (d *attachment) newConn(id uint32, peer, service string, data []byte) *Conn {
	c := &Conn{d: d, id: id, peer: peer, service: service, data: data}
	d.conns.mu.Lock()
	defer d.conns.mu.Unlock()
	d.conns.byNumber[id] = c
	for i := range d.conns.orphans[id] {
		c.notes.push(c, &d.conns.orphans[id][i])
	}
	delete(d.conns.orphans, id)
	return c
}

// Peer returns the name of the peer's node.
func (c *Conn) Peer() string { return c.peer }

// Service returns the name that was dialled.
func (c *Conn) Service() string { return c.service }

// Device returns the Device the connection belongs to.
func (c *Conn) Device() *Device { return c.d.dev }

// Data returns the private data of the other side: what it gave to Dial, or to Request.Accept. It must not be modified.
func (c *Conn) Data() []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.data
}

// Err returns nil while the connection lives or its notifications are still on their way, and then why it ended. Other
// calls may return that reason earlier, since 256 unread notifications hold up later ones.
func (c *Conn) Err() error {
	if c.drained.Load() {
		return c.ended.Load().err
	}
	return c.d.Err()
}

// usable returns why nothing can be posted, if so.
func (c *Conn) usable() error {
	if s := c.ended.Load(); s != nil {
		return s.err
	}
	if c.closing.Load() {
		return net.ErrClosed
	}
	return c.d.Err()
}

// closedError is why the daemon ended the connection, in terms of what it is for.
func (c *Conn) closedError(code ipc.Code, text string) error {
	err := closedError(code, text)
	if c.lent && errors.Is(err, ErrPeerClosed) {
		return ErrRevoked
	}
	return err
}

// Close ends the connection in good order: it takes no new operations, completes those in flight, and tells the peer. A
// send in flight may wait for the peer to post a buffer, and Close waits with it: if both ends close while their sends
// wait for each other, neither returns. CloseContext bounds the wait, Abort ends it. When Close returns, nothing that
// was posted on the connection uses memory any more.
func (c *Conn) Close() error { return c.CloseContext(context.Background()) }

// CloseContext is like Close, but aborts the connection when ctx ends first, and then returns the error of ctx.
func (c *Conn) CloseContext(ctx context.Context) error {
	if !c.beginClose() {
		return net.ErrClosed
	}
	if c.Err() == nil {
		err := c.d.wait(ctx, waiter{kind: waitIdle, conn: c})
		if err == nil {
			_, err = c.d.call(ctx, &ipc.Message{Kind: ipc.KindClose, Conn: c.id}, &call{})
		}
		if err != nil && ctx.Err() != nil {
			go c.d.tell(&ipc.Message{Kind: ipc.KindAbort, Conn: c.id}) // it may be that the daemon takes nothing
			c.finish(ErrAborted)
			return c.d.ended(ctx)
		}
	}
	c.finish(net.ErrClosed)
	// The submission ring may still hold what the program posted while the peer closed.
	if over := (waiter{kind: waitOver, conn: c}); !c.d.satisfied(&over) {
		return c.d.wait(ctx, over)
	}
	return nil
}

// Abort ends the connection at once, also while Close waits. Operations in flight fail with ErrAborted or have been
// done.
func (c *Conn) Abort() error {
	if !c.beginClose() && c.Err() != nil {
		return net.ErrClosed
	}
	if c.Err() == nil {
		c.d.call(context.Background(), &ipc.Message{Kind: ipc.KindAbort, Conn: c.id}, &call{})
	}
	c.finish(ErrAborted)
	return nil
}

// beginClose reports whether the caller is the one that closes. After it nothing is posted, and nobody waits to post.
func (c *Conn) beginClose() bool {
	c.d.out.post.Lock() // from here on every Post has seen closing, or has posted
	first := c.closing.CompareAndSwap(false, true)
	c.d.out.post.Unlock()
	if first {
		c.d.lead.wakeAll(false)
		c.d.kick()
	}
	return first
}

// finish removes a connection that the daemon has no more to say about.
func (c *Conn) finish(err error) {
	c.d.sync() // its last completions are in the ring
	c.fail(err)
	c.d.forget(c)
}

// end says why the connection ended, unless that is known. Notifications may still come.
func (c *Conn) end(err error) {
	if c.ended.CompareAndSwap(nil, &endState{err}) {
		c.wakeEnded()
	}
}

// fail is end when no notification comes any more. Those that came stay readable.
func (c *Conn) fail(err error) {
	c.ended.CompareAndSwap(nil, &endState{err})
	if !c.drained.Swap(true) {
		c.notes.endQueue()
		c.notes.endSinks(c.ended.Load().err)
		c.wakeEnded()
	}
}

// wakeEnded wakes everybody whom the end may concern.
func (c *Conn) wakeEnded() {
	c.announce()
	c.d.lead.wake(&c.waiters)
	c.d.lead.wakeAll(false)
	c.d.kick() // the leader may be waiting for this connection
	c.d.news.Add(1)
	c.d.dev.progress()
}

// announce wakes those who wait for a change of adverts or the end.
func (c *Conn) announce() {
	c.mu.Lock()
	if c.changed != nil {
		close(c.changed)
		c.changed = nil
	}
	c.mu.Unlock()
	if t := c.notes.tapped(); t != nil {
		t.Changed()
	}
}
