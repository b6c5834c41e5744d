package shard

import (
	"fmt"
	"sync"
	"sync/atomic"

	"multiedge/internal/engine"
	"multiedge/internal/ipc"
	"multiedge/internal/mono"
	"multiedge/regmem"
)

// sqBudget is the number of submissions taken from one client per iteration.
const sqBudget = 64

// Client is the data half of an attached process: its owner, which has the control half, made it by NewClient. Only the
// shard touches it, except gone.
//
// States: attached (rings are served), then dying (no ring is touched, connections are aborted, memory may still be in
// use), then gone (the owner may unmap everything).
type Client struct {
	slot  int
	label Label
	// in force with the client; set before it is attached
	Features ipc.Features
	user     *User
	out      *Outbox
	evicted  func(why string) // tells the owner, who ends the client
	rings    *ipc.Rings       // nil once dying
	sq       *ipc.SubmitConsumer
	cq       *ipc.CompleteProducer
	submit   *ipc.Doorbell // rung by the client; watched, never read
	// rung by us; the client has what watches it alone, since nothing that the shard does may wait for a client
	ring ringer

	taken submissions

	flight flying

	receives receives
	regions  regionSet
	conns    map[engine.ConnID]*Conn
	last     *Conn // the connection of the latest submission
	ends     ends
	names    []string
	dialing  int // dials that were not answered
	backlog  int // requests of peers the client has not answered
	exports  int

	delivery delivery
	carrying *carrying // nil: it has no heap grant

	msgs    []*ipc.Message // said in this iteration, sent after the completion ring is published
	touched bool
	reaped  int           // places of regions that were looked at since it died, twice each (reapRegions)
	gone    chan struct{} // closed when nothing of the client is in use any more, its doorbell neither
}

// submissions is what was taken from the client's ring and waits.
type submissions struct {
	held        [sqBudget]ipc.SQE // private copies, validated by ipc, not yet all submitted
	next, count int               // held[next:count] wait
	pieces      pieces            // of the operation that comes next
	bytes       inline            // likewise
}

// flying is a client's operations in flight.
type flying struct {
	ops      []opSlot // by the low half of the engine's token
	free     []uint32 // unused slots
	inflight int
	hidden   int // writes with ipc.FlagLocal that have a place in the completion ring for a late failure
	useless  int // submissions in a row that could not be served
	late     int // completions that wait for a courier
}

// delivery is what waits to be put into the completion ring.
type delivery struct {
	notify []*Conn // connections with credit whose notifications the engine or left still holds
	full   bool    // they wait for room in the completion ring
	aims   bool    // some connection was aimed at a word (ABI A8.7)
}

// opSlot remembers whose operation the engine's token means.
type opSlot struct {
	conn  *Conn
	token uint64 // the client's own
	list  *engine.Pieces
	bytes *inlineBytes // it has more than fit into its entry
	local bool         // counted in Client.hidden
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
	connEnding  // the engine has forgotten it; its keys are being revoked before the client is told
	connOver    // they are; notifications are still to be delivered before the client is told
)

// Conn is one connection of a client.
type Conn struct {
	id         engine.ConnID
	client     *Client
	state      connState
	request    uint64 // request to answer: dial, accept or close
	peer       string
	inflight   int
	unreturned int                   // notifications delivered beyond those the client gave credit back for
	queued     bool                  // on client.notify, or parked
	dials      bool                  // counted in client.dialing
	inside     bool                  // Services knows who dialled
	word       uint8                 // of the thread that its entries wake (ABI A8.7); 0: the doorbell is rung
	stops      bool                  // what follows an operation beyond the user's quota is refused, too (A7.20)
	refusing   bool                  // there was one, and OpResume has not come
	parked     bool                  // has notifications and no credit: looked at again when credit comes
	left       []engine.Notification // taken from the engine when the connection ended
	farewell   *ipc.Message          // to send when left is delivered
	why        ipc.Status            // of operations that come too late, once it is over
}

// ends remembers why the latest connections of a client ended, for operations that were posted before the client had
// heard of it.
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

// Label is how people know a client. The shard shows it, and decides nothing by it.
type Label struct {
	PID     int32
	UID     uint32
	Program string
	Since   mono.Time // when it came
}

// Owner is whose account a client uses: a user's number, or Unlisted.
type Owner uint32

// Unlisted is the account that all subordinate users share whose owner nobody knows. It is no user's number.
const Unlisted Owner = 1<<32 - 1

func (o Owner) String() string {
	if o == Unlisted {
		return "the subordinate users that /etc/subuid does not list"
	}
	return fmt.Sprintf("user %d", uint32(o))
}

// User is what the clients of one account hold at all shards, those that are ending included.
type User struct {
	id    uint32
	conns atomic.Int64
	ops   atomic.Int64 // in flight
	dials atomic.Int64 // that were not answered

	exports atomic.Int64

	unread atomic.Int64 // messages that wait for them
}

// NewUser returns a user who holds nothing.
func NewUser(id uint32) *User { return &User{id: id} }

// NewClient makes a client of the rings and doorbells that it shares with the daemon, which stay the owner's. Messages
// go to out. evicted is called by the shard when the client broke the rules and is detached; it must not wait.
func NewClient(l Label, u *User, out *Outbox, rings *ipc.Rings, submit, ring *ipc.Doorbell,
	evicted func(why string)) *Client {
	out.countFor(u)
	c := &Client{
		label: l, user: u, out: out, evicted: evicted, rings: rings, sq: rings.SubmitConsumer(),
		cq: rings.CompleteProducer(), submit: submit,
		ring:   ringer{bell: ring, rings: rings},
		flight: flyingOf(rings.Layout().Depth()), conns: map[engine.ConnID]*Conn{},
		gone: make(chan struct{}),
	}
	return c
}

// spareFlights are tables of clients that have gone, for the next ones: clients that come and go would keep the runtime
// collecting garbage.
var spareFlights sync.Pool

func flyingOf(depth int) flying {
	f, _ := spareFlights.Get().(*flying)
	if f == nil || len(f.ops) != depth {
		f = &flying{ops: make([]opSlot, depth), free: make([]uint32, depth)}
	}
	f.free = f.free[:depth]
	for i := range f.free {
		f.free[i] = uint32(depth - 1 - i)
	}
	return *f
}

// spare gives the tables of a client away, if nothing of it is in flight any more.
func (f *flying) spare() {
	if f.inflight == 0 && f.late == 0 {
		clear(f.ops)
		spareFlights.Put(&flying{ops: f.ops, free: f.free})
	}
	*f = flying{}
}

// owner is who the engine shares out turns to: users, and their clients. Number 0 is the daemon's own.
func (c *Client) owner() engine.Owner {
	return engine.Owner{User: uint64(c.user.id) + 1, Client: uint64(c.slot)}
}

// exported counts exports of the client, or fewer.
func (c *Client) exported(n int) {
	c.exports += n
	c.user.exports.Add(int64(n))
}

// lookup finds a connection by the number the client uses, which is the engine's.
func (c *Client) lookup(id uint32) *Conn {
	if cn := c.last; cn != nil && uint32(cn.id) == id {
		return cn
	}
	cn := c.conns[engine.ConnID(id)]
	if cn != nil {
		c.last = cn
	}
	return cn
}

// What others have a client told is refused where too much waits for it: more than is given, or for clients of its user
// together more than mostUnread, which do not read either. fewUnread messages may wait for each in any case.
const (
	mostUnread = 4 * OutboxLimit
	fewUnread  = 256
)

// leavesUnread reports whether too much waits for a client.
func (c *Client) leavesUnread(most int) bool {
	n := len(c.msgs) + c.out.length() + c.postponed()
	return n > most || n > fewUnread && c.user.unread.Load() > mostUnread
}

// promised is how many places in the completion ring are taken in advance: every operation in flight, every write that
// may still fail late, and every posted buffer has its own.
func (c *Client) promised() int {
	return c.flight.inflight + c.flight.hidden + c.receives.posted + c.flight.late
}

// roomForOp reports whether a completion can be promised: every operation in flight and every posted buffer has its
// place in the completion ring.
func (c *Client) roomForOp() (bool, error) {
	need := c.promised()
	if c.cq.Room() > need {
		return true, nil
	}
	room, err := c.cq.Refresh()
	return room > need, err
}

// roomForNotify reports whether a notification may be delivered: half of the ring stays for completions.
func (c *Client) roomForNotify() (bool, error) {
	need := c.flight.inflight + c.flight.hidden + c.flight.late + max(c.receives.posted, c.cqSize()/2)
	if c.cq.Room() > need {
		return true, nil
	}
	room, err := c.cq.Refresh()
	return room > need, err
}

func (c *Client) cqSize() int { return int(c.rings.Layout().CQ) }

// stalled reports whether copied submissions wait for room somewhere.
func (c *Client) stalled() bool { return c.taken.next < c.taken.count }

// put stores an entry in the completion ring. Room was reserved.
func (s *Shard) put(c *Client, e *ipc.CQE) {
	word := uint8(0)
	if c.delivery.aims {
		if cn := c.lookup(e.Conn); cn != nil {
			word = cn.word
		}
	}
	if !c.cq.PutFor(e, word) {
		panic("BUG: daemon: completion without a reserved place")
	}
	s.touch(c)
}

// say queues a message for the client. It is sent after what this iteration put in the completion ring became visible.
func (s *Shard) say(c *Client, m *ipc.Message) {
	if c.rings == nil || c.carrying != nil && s.postpones(c, m) {
		return
	}
	c.msgs = append(c.msgs, m)
	s.touch(c)
}

func (s *Shard) touch(c *Client) {
	if !c.touched {
		c.touched = true
		s.clients.touched = append(s.clients.touched, c)
	}
}

// flushClients publishes completions, wakes sleeping clients and sends messages, or hands them to the writers.
func (s *Shard) flushClients(now mono.Time) {
	for i, c := range s.clients.touched {
		s.clients.touched[i] = nil
		c.touched = false
		if c.rings != nil {
			s.flushClient(now, c)
		}
	}
	s.clients.touched = s.clients.touched[:0]
}

func (s *Shard) flushClient(now mono.Time, c *Client) {
	polls := c.rings.ClientPolling()
	c.cq.More = c.flight.inflight > 0
	if c.ring.overdue {
		c.ring.overdue = false
		c.cq.Recall()
	}
	if c.cq.Awaited(polls) {
		c.ring.rung = now
		s.await(c, true)
	}
	rings := c.ring.owe(owed{bell: c.cq.Publish(), words: c.cq.Wakes()})
	switch {
	case !rings || c.ring.waits:
	case c.ring.shares:
		c.ring.waits = true
		s.clients.bells = append(s.clients.bells, c)
	default:
		s.wake(c)
	}
	s.leaveAlone(now, c)
	if c.behind() {
		s.evict(c, "its memory takes longer to be read and written than its connections live")
		return
	}
	if len(c.msgs) == 0 {
		return
	}
	s.clients.told = s.clients.told || polls != ipc.NotPolling
	if !c.out.put(c.msgs) {
		s.evict(c, "it does not read its control socket")
	}
	clear(c.msgs)
	c.msgs = c.msgs[:0]
}

// Gone is closed when nothing of the client is in use any more.
func (c *Client) Gone() <-chan struct{} { return c.gone }

// Regions calls f for each of the client's regions, once it is gone.
func (c *Client) Regions(f func(*regmem.Region)) { c.regions.all(f) }
