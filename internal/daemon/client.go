package daemon

import (
	"multiedge/internal/engine"
	"multiedge/internal/ipc"
	"multiedge/regmem"
)

// sqBudget is the number of submissions taken from one client per iteration.
const sqBudget = 64

// client is the shard's view of an attached process. Only the shard touches it, except gone.
//
// States: attached (rings are served), then dying (no ring is touched, connections are aborted, memory may still be in use), then gone (the
// session may unmap everything).
type client struct {
	slot    int
	session *session
	account *account   // the user's
	rings   *ipc.Rings // nil once dying
	sq      *ipc.SubmitConsumer
	cq      *ipc.CompleteProducer
	submit  *ipc.Doorbell // rung by the client; watched, never read
	ring    *ipc.Doorbell // rung by us

	held        [sqBudget]ipc.SQE // private copies, validated by ipc, not yet all submitted
	next, count int               // held[next:count] wait

	ops      []opSlot // operations in flight, by the low half of the engine's token
	free     []uint32 // unused slots
	inflight int
	useless  int // submissions in a row that could not be served

	regions regionSet
	conns   map[engine.ConnID]*conn
	last    *conn // the connection of the latest submission
	ends    ends
	names   []string
	backlog int // requests of peers the client has not answered
	exports int

	notify []*conn // connections with credit whose notifications the engine or left still holds
	full   bool    // they wait for room in the completion ring

	msgs    []*ipc.Message // said in this iteration, sent after the completion ring is published
	touched bool
	gone    chan struct{} // closed when nothing of the client is in use any more
}

// opSlot remembers whose operation the engine's token means.
type opSlot struct {
	conn  *conn
	token uint64 // the client's own
}

// connState is how far a connection is from the client's point of view.
type connState uint8

const (
	connDialing   connState = iota // dial asked; its reply is due
	connIncoming                   // the client has been told of a peer's request
	connAccepting                  // accept asked; its reply is due
	connOpen
	connClosing // close asked; its reply is due
	connAborted // abort asked and answered; the engine's last event is due
	connOver    // the engine has forgotten it; notifications are still to be delivered before the client is told
)

// conn is one connection of a client.
type conn struct {
	id         engine.ConnID
	client     *client
	state      connState
	request    uint64 // request to answer: dial, accept or close
	peer       string
	inflight   int
	unreturned int                   // notifications delivered beyond those the client gave credit back for
	queued     bool                  // on client.notify, or parked
	parked     bool                  // has notifications and no credit: looked at again when credit comes
	exports    map[regmem.Key][]byte // what each key reaches
	left       []engine.Notification // taken from the engine when the connection ended
	farewell   *ipc.Message          // to send when left is delivered
	why        ipc.Status            // of operations that come too late, once it is over
}

// ends remembers why the latest connections of a client ended, for operations that were posted before the client had heard of it.
type ends struct {
	ring [256]struct {
		id  uint32
		why ipc.Status
	}
	n int // entered so far
}

func (e *ends) add(id uint32, why ipc.Status) {
	at := &e.ring[e.n%len(e.ring)]
	at.id, at.why = id, why
	e.n++
}

// why returns StatusNoConn for connections that it knows nothing of.
func (e *ends) why(id uint32) ipc.Status {
	for i := e.n - 1; i >= max(0, e.n-len(e.ring)); i-- {
		if at := &e.ring[i%len(e.ring)]; at.id == id {
			return at.why
		}
	}
	return ipc.StatusNoConn
}

func newClient(s *session, rings *ipc.Rings, submit, ring *ipc.Doorbell) *client {
	depth := rings.Layout().Depth()
	c := &client{
		session: s, account: s.account, rings: rings, sq: rings.SubmitConsumer(), cq: rings.CompleteProducer(), submit: submit, ring: ring,
		ops: make([]opSlot, depth), free: make([]uint32, depth), conns: map[engine.ConnID]*conn{}, gone: make(chan struct{}),
	}
	for i := range c.free {
		c.free[i] = uint32(depth - 1 - i)
	}
	return c
}

// lookup finds a connection by the number the client uses, which is the engine's.
func (c *client) lookup(id uint32) *conn {
	if cn := c.last; cn != nil && uint32(cn.id) == id {
		return cn
	}
	cn := c.conns[engine.ConnID(id)]
	if cn != nil {
		c.last = cn
	}
	return cn
}

// roomForOp reports whether a completion can be promised: every operation in flight has its place in the completion ring.
func (c *client) roomForOp() (bool, error) {
	if c.cq.Room() > c.inflight {
		return true, nil
	}
	room, err := c.cq.Refresh()
	return room > c.inflight, err
}

// roomForNotify reports whether a notification may be delivered: half of the ring stays for completions.
func (c *client) roomForNotify() (bool, error) {
	need := c.inflight + c.cqSize()/2
	if c.cq.Room() > need {
		return true, nil
	}
	room, err := c.cq.Refresh()
	return room > need, err
}

func (c *client) cqSize() int { return int(c.rings.Layout().CQ) }

// stalled reports whether copied submissions wait for room somewhere.
func (c *client) stalled() bool { return c.next < c.count }

// put stores an entry in the completion ring. Room was reserved.
func (s *shard) put(c *client, e *ipc.CQE) {
	if !c.cq.Put(e) {
		panic("BUG: daemon: completion without a reserved place")
	}
	s.touch(c)
}

// say queues a message for the client. It is sent after what this iteration put in the completion ring became visible.
func (s *shard) say(c *client, m *ipc.Message) {
	if c.rings == nil {
		return
	}
	c.msgs = append(c.msgs, m)
	s.touch(c)
}

func (s *shard) touch(c *client) {
	if !c.touched {
		c.touched = true
		s.touched = append(s.touched, c)
	}
}

// flushClients publishes completions, wakes sleeping clients and hands messages to the writers.
func (s *shard) flushClients() {
	s.gaveClients = s.gaveClients || len(s.touched) > 0
	for i, c := range s.touched {
		s.touched[i] = nil
		c.touched = false
		if c.rings != nil {
			s.flushClient(c)
		}
	}
	s.touched = s.touched[:0]
}

func (s *shard) flushClient(c *client) {
	if c.cq.Publish() {
		s.ringing.Store(c)
		c.ring.Ring()
		s.ringing.Store(nil)
		s.rang = true
	}
	if len(c.msgs) == 0 {
		return
	}
	if !c.session.out.put(c.msgs) {
		s.evict(c, "it does not read its control socket")
	}
	clear(c.msgs)
	c.msgs = c.msgs[:0]
}
