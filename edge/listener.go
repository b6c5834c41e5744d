package edge

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"multiedge/internal/ipc"
)

// backlog is how many requests wait for Accept before others are refused.
const backlog = 128

// Listener waits for connections to a service.
type Listener struct {
	d       *Device
	service string
	offered atomic.Bool // the daemon was told; the next one will be
	queue   chan *Request
	once    sync.Once
	ended   chan struct{}
	err     error // set before ended is closed
}

// Request is a peer's wish to connect. Answer it by Accept or Refuse.
type Request struct {
	conn   *Conn
	l      *Listener
	inside uint32 // 1 + the user whose program dials, of this host; 0: a peer does
}

// Listen offers a service on this node under a name.
func (d *Device) Listen(ctx context.Context, service string) (*Listener, error) {
	if err := checkNames("", service, nil); err != nil {
		return nil, err
	}
	l := &Listener{d: d, service: service, queue: make(chan *Request, backlog), ended: make(chan struct{})}
	a, err := d.current(ctx)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	if d.listeners[service] != nil {
		d.mu.Unlock()
		return nil, ErrExists
	}
	d.listeners[service] = l // before the request: its answer may be overtaken by nothing
	d.mu.Unlock()
	select {
	case <-a.life.ready: // neither offered twice nor taken for one that was closed
	case <-a.life.deadCh:
	case <-ctx.Done():
	}
	if err := a.listen(ctx, l); err != nil {
		l.fail(err)
		d.dropListener(l)
		return nil, err
	}
	return l, nil
}

// listen offers the service of l to the daemon.
func (d *attachment) listen(ctx context.Context, l *Listener) error {
	_, err := d.call(ctx, &ipc.Message{Kind: ipc.KindListen, Service: l.service}, &call{
		apply: func(*ipc.Message) { l.offered.Store(true) },
		late:  func(*ipc.Message) { go d.tell(&ipc.Message{Kind: ipc.KindUnlisten, Service: l.service}) },
	})
	return err
}

func (d *Device) listens(l *Listener) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.listeners[l.service] == l
}

func (d *Device) dropListener(l *Listener) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.listeners[l.service] == l {
		delete(d.listeners, l.service)
	}
}

// incoming queues a request, or refuses it when nobody takes them.
func (d *attachment) incoming(m *ipc.Message) {
	d.dev.mu.Lock()
	l := d.dev.listeners[m.Service]
	d.dev.mu.Unlock()
	if l == nil {
		go d.tell(&ipc.Message{Kind: ipc.KindRefuse, Conn: m.Conn, Text: "the service has just closed"})
		return
	}
	r := &Request{l: l, inside: m.Caller, conn: d.newConn(m.Conn, m.Peer, m.Service, m.Data)}
	select {
	case l.queue <- r:
		select {
		case <-l.ended:
			l.refuseAll()
		default:
		}
	default:
		go r.Refuse("too many requests wait; try again later")
	}
}

// Service returns the name of the service.
func (l *Listener) Service() string { return l.service }

// Next waits for a request.
func (l *Listener) Next(ctx context.Context) (*Request, error) {
	for {
		select {
		case r := <-l.queue:
			if r.conn.Err() == nil { // else the peer gave up meanwhile
				return r, nil
			}
			r.conn.finish(net.ErrClosed)
			continue
		default:
		}
		select {
		case r := <-l.queue:
			if r.conn.Err() == nil {
				return r, nil
			}
			r.conn.finish(net.ErrClosed)
		case <-l.ended:
			return nil, l.err
		case <-ctx.Done():
			return nil, l.d.at.Load().ended(ctx)
		}
	}
}

// Accept waits for a connection. Requests that fail while they are being accepted are passed over.
func (l *Listener) Accept(ctx context.Context) (*Conn, error) {
	for {
		r, err := l.Next(ctx)
		if err != nil {
			return nil, err
		}
		c, err := r.Accept(ctx, nil)
		if err == nil {
			return c, nil
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
}

// Close withdraws the service and refuses the requests that wait. Accepted connections live on.
func (l *Listener) Close() error {
	if !l.fail(net.ErrClosed) {
		return net.ErrClosed
	}
	l.d.dropListener(l) // before the request: a daemon to come is not told of it
	a := l.d.at.Load()
	_, err := a.call(context.Background(), &ipc.Message{Kind: ipc.KindUnlisten, Service: l.service}, &call{})
	l.refuseAll()
	if a.Err() != nil {
		return nil
	}
	return err
}

func (l *Listener) fail(err error) (first bool) {
	l.once.Do(func() {
		l.err = err
		close(l.ended)
		first = true
	})
	return first
}

func (l *Listener) refuseAll() {
	for {
		select {
		case r := <-l.queue:
			go r.Refuse("the service has just closed")
		default:
			return
		}
	}
}

// Peer returns the name of the peer's node.
func (r *Request) Peer() string { return r.conn.peer }

// Data returns the private data of the peer's Dial.
func (r *Request) Data() []byte { return r.conn.Data() }

// Accept establishes the connection, sending up to 512 bytes of private data to the peer's Conn.Data. If the peer has
// given up meanwhile, it fails with the reason, such as ErrPeerClosed or ErrPeerDown; the Listener goes on.
func (r *Request) Accept(ctx context.Context, data []byte) (*Conn, error) {
	c := r.conn
	if err := checkNames("", c.service, data); err != nil {
		return nil, err
	}
	if _, err := c.d.call(ctx, &ipc.Message{Kind: ipc.KindAccept, Conn: c.id, Data: data}, &call{}); err != nil {
		if ctx.Err() != nil {
			go c.d.tell(&ipc.Message{Kind: ipc.KindAbort, Conn: c.id}) // it may be that the daemon takes nothing
		}
		if errors.Is(err, errNoConn) && c.Err() != nil {
			err = c.Err() // it was told before the refusal
		}
		c.closing.Store(true)
		c.finish(err)
		return nil, err
	}
	return c, nil
}

// Post posts buffers, each a Work of Kind Receive, as Conn.Post does, before the connection is accepted: its first
// messages find them. They come back with an error if it is refused, or its peer gives up.
func (r *Request) Post(ctx context.Context, works ...*Work) (Op, error) {
	if err := r.early(); err != nil {
		return Op{}, err
	}
	for _, w := range works {
		if w.Kind != Receive {
			return Op{}, errEarly
		}
	}
	return r.conn.d.postAll(ctx, poster{r.conn, nil, noBounce}, works)
}

// Serve makes the connection, once it is accepted, take buffers from a queue, as ReceiveQueue.Serve does later.
func (r *Request) Serve(ctx context.Context, q *ReceiveQueue) error {
	if err := r.early(); err != nil {
		return err
	}
	return q.Serve(ctx, r.conn)
}

// early says whether the connection may be given buffers.
func (r *Request) early() error {
	if r.conn.d.features&ipc.FeatureEarly == 0 {
		return errNotEarly
	}
	return r.conn.usable()
}

var (
	errEarly    = invalid("Request.Post takes buffers, which have Kind Receive; post other work on the Conn")
	errNotEarly = failure("the daemon is older and takes no buffers before accept; upgrade it", ErrVersion)
)

// User returns the user of the program that dials if it runs on this host, as the daemon sees it. ok is false for
// programs of other nodes, whose users are unknown here. Programs of one host reach each other through their daemon, by
// the name of their own node (PROTOCOL clause 19).
func (r *Request) User() (uid uint32, ok bool) { return r.inside - 1, r.inside != 0 }

// Refuse turns the peer down; its Dial fails with ErrRefused and the reason.
func (r *Request) Refuse(reason string) error {
	c := r.conn
	c.d.tell(&ipc.Message{Kind: ipc.KindRefuse, Conn: c.id, Text: reason[:min(len(reason), ipc.MaxText)]})
	c.closing.Store(true)
	c.finish(net.ErrClosed)
	return c.d.Err()
}

// checkNames checks what goes into set-up messages.
func checkNames(peer, service string, data []byte) error {
	switch {
	case service == "" || len(service) > ipc.MaxName:
		return invalid("a service's name has 1 to %d bytes, %q has %d", ipc.MaxName, service, len(service))
	case len(peer) > ipc.MaxName:
		return invalid("a peer's name has at most %d bytes, %q has %d", ipc.MaxName, peer, len(peer))
	case !utf8.ValidString(service):
		return invalid("a service's name is UTF-8, %q is not", service)
	case !utf8.ValidString(peer):
		return invalid("a peer's name is UTF-8, %q is not; a node without one is reached by its identity", peer)
	case len(data) > ipc.MaxData:
		return invalid("%d bytes of private data; at most %d can be sent", len(data), ipc.MaxData)
	}
	return nil
}

func orElse(s, other string) string {
	if s == "" {
		return other
	}
	return s
}

// timeLeft is what remains until ctx's deadline, less a moment for the daemon's answer, which says why nothing came of
// a dial; zero without a deadline.
func timeLeft(ctx context.Context) time.Duration {
	at, ok := ctx.Deadline()
	if !ok {
		return 0
	}
	left := time.Until(at)
	return max(left-min(left/8, 250*time.Millisecond), time.Millisecond)
}
