package op

import (
	"container/heap"
	"errors"
	"fmt"
	"math"
	"strings"

	"multiedge/internal/abi"
	"multiedge/internal/mono"
	"multiedge/internal/seqnum"
	"multiedge/sched"
)

// Pending dials. A frame, forged or not, costs work only for the dials that it answers. Each dial is in the heap of
// deadlines and in one list: that of all dials for the same peer until the peer is heard, then that of the session that
// carries them.

// ErrDials is wrapped by Dial when as many wait as Config.MaxDials allows.
var ErrDials = errors.New("engine: dials that wait")

// ErrConns is wrapped by Dial when the endpoint has as many connections as Config.MaxConns allows.
var ErrConns = errors.New("engine: connections")

// dialTable is every dial that waits. Each is in byDeadline; before its peer was heard it is in the list of its wish
// too.
type dialTable struct {
	byDeadline deadlines
	wishes     map[Wish]*Wished
	work       work
}

// dialRequest is what a connection needs while it is being asked for or answered.
type dialRequest struct {
	deadline    mono.Time
	peer        string
	service     string
	data        []byte // private data to send
	sched       string
	tried       int // shards of the peer that do not offer the service
	place       dialPlace
	ping        bool // DialOptions.Ping
	unconfirmed bool // in connIncoming or connLast: counted by the session
}

// dialList is a FIFO of connections that are being dialled; one leaves it from anywhere.
type dialList struct {
	head, tail *Conn
	n          int
}

// dialPlace is where a connection stands that is being dialled.
type dialPlace struct {
	list       *dialList // nil: not dialled, or not any more
	prev, next *Conn
	at         int // in the heap of deadlines
}

func (l *dialList) push(c *Conn) {
	c.dial.place.list, c.dial.place.prev, c.dial.place.next = l, l.tail, nil
	if l.tail != nil {
		l.tail.dial.place.next = c
	} else {
		l.head = c
	}
	l.tail = c
	l.n++
}

func (l *dialList) remove(c *Conn) {
	d := &c.dial.place
	if d.prev != nil {
		d.prev.dial.place.next = d.next
	} else {
		l.head = d.next
	}
	if d.next != nil {
		d.next.dial.place.prev = d.prev
	} else {
		l.tail = d.prev
	}
	d.list, d.prev, d.next = nil, nil, nil
	l.n--
}

// Wish is what dials that wait for a peer to be heard ask for: its name or identity, and how many of its shards do not
// offer the service.
type Wish struct {
	Peer  string
	Tried int
}

// Wished are the dials of one wish.
type Wished struct {
	dialList
	Hint string // why a node that was heard is not the one
}

// WishFor is the wish of a dial; identities are in lower case.
func WishFor(peer string, tried int) Wish {
	if _, ok := ParseNodeID(peer); ok {
		peer = strings.ToLower(peer)
	}
	return Wish{peer, tried}
}

// deadlines is the heap of those that are being dialled.
type deadlines []*Conn

func (h deadlines) Len() int { return len(h) }

func (h deadlines) Less(i, j int) bool { return h[i].dial.deadline < h[j].dial.deadline }

func (h deadlines) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].dial.place.at, h[j].dial.place.at = i, j
}

func (h *deadlines) Push(x any) {
	c := x.(*Conn)
	c.dial.place.at = len(*h)
	*h = append(*h, c)
}

func (h *deadlines) Pop() any {
	old := *h
	n := len(old) - 1
	c := old[n]
	old[n] = nil
	*h = old[:n]
	return c
}

// work counts what was looked at for dials, for tests.
type work struct{ wishes, dials uint64 }

// NewDial makes a connection that asks for a service of a peer, named by node name or identity in hexadecimal. Its
// owner has it join the session that carries the request.
func (e *Endpoint) NewDial(now mono.Time, peer, service string, o DialOptions) (*Conn, error) {
	if service == "" || len(service) > MaxServiceName {
		return nil, fmt.Errorf("engine: service name %q: must be 1 to %d bytes", service, MaxServiceName)
	}
	if len(o.Data) > MaxPrivateData {
		return nil, fmt.Errorf("engine: %d bytes of private data; at most %d fit", len(o.Data), MaxPrivateData)
	}
	if peer == "" || len(peer) > MaxNodeName {
		return nil, fmt.Errorf("engine: peer name %q: must be 1 to %d bytes", peer, MaxNodeName)
	}
	if o.Scheduler != "" {
		if _, err := sched.New(o.Scheduler); err != nil {
			return nil, err
		}
	}
	if len(e.dials.byDeadline) >= e.cfg.MaxDials {
		return nil, fmt.Errorf("%w: %d wait for an answer already", ErrDials, e.cfg.MaxDials)
	}
	c := e.newConn()
	if c == nil {
		return nil, fmt.Errorf("%w: all %d are in use", ErrConns, e.cfg.MaxConns)
	}
	wait := o.Timeout
	if wait <= 0 {
		wait = e.cfg.DialTime
	}
	c.state, c.ordered, c.overlap = connDialing, o.Ordered, o.Ordered && o.Overlap
	c.dial.peer, c.dial.service, c.dial.ping, c.dial.sched = peer, service, o.Ping, o.Scheduler
	c.dial.data = append([]byte(nil), o.Data...)
	c.dial.deadline = now.Add(min(wait, math.MaxInt64/2))
	c.recv.window, c.recv.limitSent, c.owner = e.cfg.OpWindow, seqnum.Value(e.cfg.OpWindow), o.Owner
	heap.Push(&e.dials.byDeadline, c)
	e.Await(c)
	return c, nil
}

// Await puts a dial in the list of those whose peer was not heard.
func (e *Endpoint) Await(c *Conn) {
	if c.dial.place.list != nil {
		return
	}
	w := WishFor(c.dial.peer, c.dial.tried)
	l := e.dials.wishes[w]
	if l == nil {
		l = &Wished{}
		e.dials.wishes[w] = l
	}
	l.push(c)
}

// leaveList takes a dial out of the list it is in.
func (e *Endpoint) leaveList(c *Conn) {
	l := c.dial.place.list
	if l == nil {
		return
	}
	l.remove(c)
	if w := WishFor(c.dial.peer, c.dial.tried); c.S == nil && l.n == 0 {
		delete(e.dials.wishes, w)
	}
}

// dropDial notes that a connection is not being dialled any more.
func (e *Endpoint) dropDial(c *Conn) {
	if c.dial.place.list != nil {
		e.leaveList(c)
		heap.Remove(&e.dials.byDeadline, c.dial.place.at)
	}
}

// Join makes a dial one of a session.
func (c *Conn) Join(s *Session) {
	c.e.leaveList(c)
	c.attach(s)
	s.dials.push(c)
}

func (c *Conn) RequestOpen() {
	c.ctl |= ctlOpen
	c.wake()
}

// RequestAll has the requests sent that wait for the session.
func (s *Session) RequestAll() {
	for c := s.dials.head; c != nil; c = c.dial.place.next {
		c.RequestOpen()
	}
}

// ToNextShard takes the request for a connection out of its session: the next shard of the peer is to be asked.
func (c *Conn) ToNextShard() {
	c.e.leaveList(c)
	c.dial.tried++
	c.S.OpAcks.Remove(func(o *Conn) bool { return o == c })
	c.detach()
	c.ctl, c.recv.owesAck = 0, false
}

// Adopt takes over the requests that old was to carry and that nobody has answered: they are made again.
func (s *Session) Adopt(old *Session) {
	for old.dials.n > 0 {
		c := old.dials.head
		c.recv.owesAck = false
		c.e.leaveList(c)
		c.detach()
		c.Join(s)
	}
}

// AnyWished reports whether dials wait for peers that were not heard.
func (e *Endpoint) AnyWished() bool { return len(e.dials.wishes) > 0 }

// Wished returns the dials that wait for a wish; nil: there are none.
func (e *Endpoint) Wished(w Wish) *Wished {
	e.dials.work.wishes++
	return e.dials.wishes[w]
}

// First is the oldest of them; nil: none is left.
func (l *Wished) First() *Conn { return l.head }

// ExpiredDial returns a dial whose time is over; nil: there is none. Its owner ends it.
func (e *Endpoint) ExpiredDial(now mono.Time) *Conn {
	if h := e.dials.byDeadline; len(h) > 0 && now >= h[0].dial.deadline {
		e.dials.work.dials++
		return h[0]
	}
	return nil
}

// Wish is what a dial asks for, its peer as it was named.
func (c *Conn) Wish() Wish { return Wish{c.dial.peer, c.dial.tried} }

// Service is what a connection was asked for.
func (c *Conn) Service() string { return c.dial.service }

// Scheduler is that of the session, if a dial creates it; empty: the default.
func (c *Conn) Scheduler() string { return c.dial.sched }

// AskBy makes a dial one of a session, and has the peer asked as soon as the session is open.
func (c *Conn) AskBy(s *Session) {
	c.e.dials.work.dials++
	c.Join(s)
	if s.Open {
		c.RequestOpen()
	}
}

// FinishDials ends the requests that wait for the session or an answer.
func (s *Session) FinishDials(now mono.Time, st abi.Status, text string) {
	for s.dials.n > 0 {
		s.dials.head.Finish(now, st, text)
	}
}
