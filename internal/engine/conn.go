package engine

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"multiedge/internal/mono"
	"multiedge/internal/seqnum"
	"multiedge/internal/wire"
	"multiedge/regmem"
	"multiedge/sched"
)

type connState uint8

const (
	connFree     connState = iota
	connDialing            // asked for: waits for the peer, the session or the answer
	connIncoming           // the peer asked, the owner has not answered
	connOpen
	connClosing // Close was called: draining
	connLast    // over for the owner; lives until its last control segment is acknowledged
)

// Control segments that a connection owes the peer, by bit.
const (
	ctlOpen = 1 << iota
	ctlAccept
	ctlRefuse
	ctlClose
)

// conn is one end of a connection (clause 1.4).
//
//	dialing --Accept--> open --Close--> closing --drained--> last --acknowledged--> free
//	incoming --accepted--> open          any --peer's Close, abort, session failure--> last or free
//
// Sending: of operations [sndBase, sndNext) those not done are outstanding; those before sndCur were sent at least once, sndCur up to curOff. None is sent
// as far as Config.OpWindow from sndBase: beyond it operations wait that were taken because few are outstanding, though the oldest is one of these.
// Receiving: operations before rcvBase are applied; of [rcvBase, rcvTop) each has its state.
type conn struct {
	e        *Endpoint
	s        *session
	id       ConnID
	remote   uint32 // the peer's number; 0 until known
	state    connState
	ordered  bool
	ping     bool // DialOptions.Ping
	queued   bool // in s.sendq
	owesAck  bool // in s.opacks
	ownFirst bool // of the latest frame: refusals and our operations went before the data of the peer's reads
	limbo    bool // in connIncoming or connLast: counted by the session
	noting   bool // EvNotify is out and TakeNotify has not said no yet
	ctl      uint8
	status   Status // of Close or Refuse
	deadline mono.Time
	wantPeer string
	service  string
	text     string
	data     []byte // private data to send
	sched    string
	tried    int // shards of the peer that do not offer the service

	sndBase, sndCur, sndNext seqnum.Value
	pending                  int // operations outstanding
	curOff                   uint64
	ackBase                  seqnum.Value // every op before it is applied at the peer
	limit                    seqnum.Value // credit, clause 7.2
	lastForward              seqnum.Value
	hasForward               bool
	ops                      []sendOp
	retx                     queue[resend]
	urgent                   queue[resend] // of the operation that everything at the peer may be waiting for

	rcvBase, rcvTop seqnum.Value
	window          int // of our receive side
	rops            []recvOp
	appliedAhead    int          // applied ops in (rcvBase, rcvTop)
	limitSent       seqnum.Value // the largest limit told: the peer's credit ends there
	naks            queue[seqnum.Value]
	reading         queue[seqnum.Value]
	notes           queue[Notification]
	held, heldFence int // held segments; those of them behind a forward fence
	releasing       bool
	again           bool

	adverts  map[int]*advert // what we exported, by number, until its withdrawal has arrived
	adByKey  map[regmem.Key]int
	adNumber int        // of the next
	adQueue  queue[int] // to send, or their withdrawals
	told     ranges     // numbers of the peer's adverts that came, themselves or their withdrawals
	taken    ranges     // those of them that were withdrawn, as many as are remembered
}

// sendOp is an operation of ours until it completed.
type sendOp struct {
	Op
	n      uint64 // bytes
	since  mono.Time
	fence  seqnum.Value
	fenced bool
	done   bool
	got    ranges // of a read
}

// resend is something to be sent again.
type resend struct {
	kind recKind // recOps, recRange or recReadData
	op   seqnum.Value
	off  uint64
	n    uint64
}

type advert struct {
	Advert
	withdrawn bool
}

// firstRing is the length that rings of operations start with; they grow to the window as use demands.
// A power of two. Most of very many connections have little in flight, and an entry costs more than 100 bytes.
const firstRing = 4

// sop returns the slot of one of our operations in [sndBase, sndNext).
func (c *conn) sop(op seqnum.Value) *sendOp { return &c.ops[uint32(op)&uint32(len(c.ops)-1)] }

// outstanding reports whether op was submitted and has not completed.
func (c *conn) outstanding(op seqnum.Value) bool {
	return op.InWindow(c.sndBase, c.sndBase.Distance(c.sndNext)) && !c.sop(op).done
}

// sent reports whether the peer can know of op.
func (c *conn) sent(op seqnum.Value) bool {
	return op.Before(c.sndCur) || op == c.sndCur && c.curOff > 0
}

// sendable reports whether op, of those not sent yet, may be sent: the peer gives credit for it and it is not too far from the oldest.
func (c *conn) sendable(op seqnum.Value) bool {
	return op.Before(c.limit) && op.InWindow(c.sndBase, c.e.cfg.OpWindow)
}

// ErrConns is wrapped by Dial when the endpoint has as many connections as Config.MaxConns allows.
var ErrConns = errors.New("engine: connections")

// Dial asks for a connection to a service of a peer, named by node name or identity in hexadecimal. The answer is EvConnected, or EvClosed with the reason.
func (e *Endpoint) Dial(now mono.Time, peer, service string, o DialOptions) (ConnID, error) {
	if service == "" || len(service) > MaxServiceName {
		return 0, fmt.Errorf("engine: service name %q: must be 1 to %d bytes", service, MaxServiceName)
	}
	if len(o.Data) > MaxPrivateData {
		return 0, fmt.Errorf("engine: %d bytes of private data; at most %d fit", len(o.Data), MaxPrivateData)
	}
	if peer == "" || len(peer) > MaxNodeName {
		return 0, fmt.Errorf("engine: peer name %q: must be 1 to %d bytes", peer, MaxNodeName)
	}
	if o.Scheduler != "" {
		if _, err := sched.New(o.Scheduler); err != nil {
			return 0, err
		}
	}
	c := e.newConn()
	if c == nil {
		return 0, fmt.Errorf("%w: all %d are in use", ErrConns, e.cfg.MaxConns)
	}
	wait := o.Timeout
	if wait <= 0 {
		wait = e.cfg.DialTime
	}
	c.state, c.wantPeer, c.service, c.ordered, c.ping, c.sched = connDialing, peer, service, o.Ordered, o.Ping, o.Scheduler
	c.data = append([]byte(nil), o.Data...)
	c.deadline = now.Add(wait)
	c.window, c.limitSent = e.cfg.OpWindow, seqnum.Value(e.cfg.OpWindow)
	e.dials = append(e.dials, c)
	if !e.authorised(peer) {
		c.finish(now, StatusStranger, fmt.Sprintf("no authorised peer is called %q; authorise it: edgectl peers add KEY %s", peer, peer))
		return c.id, nil
	}
	if e.tryDial(now, c); c.s == nil {
		e.greet(now)
	}
	return c.id, nil
}

// tryDial attaches a dialing connection to its session once the peer is known.
func (e *Endpoint) tryDial(now mono.Time, c *conn) {
	p := e.findPeer(c.wantPeer, c.tried)
	if p == nil {
		return
	}
	c.attach(e.dialSession(now, p, c.sched))
	if c.s.state == sessionOpen {
		c.requestOpen()
	}
}

func (c *conn) attach(s *session) {
	c.s = s
	s.conns++
}

// setLimbo says that the connection waits for its first answer or for the confirmation of its end, or does so no more.
func (c *conn) setLimbo(on bool) {
	if on != c.limbo {
		c.limbo = on
		if on {
			c.s.limbo++
		} else {
			c.s.limbo--
		}
	}
}

// tryNextShard asks the next shard of the peer, if there is one, for the service that this one does not offer.
func (c *conn) tryNextShard(now mono.Time) bool {
	s := c.s
	if c.tried >= int(s.peer.last) {
		return false
	}
	c.tried++
	s.sendq.remove(func(o *conn) bool { return o == c })
	s.opacks.remove(func(o *conn) bool { return o == c })
	s.conns--
	c.s, c.ctl, c.queued, c.owesAck = nil, 0, false, false
	c.e.tryDial(now, c)
	return true
}

func (c *conn) requestOpen() {
	c.ctl |= ctlOpen
	c.wake()
}

// dialExpired ends a dial that nobody answered in time, saying how far it came.
func (e *Endpoint) dialExpired(now mono.Time, c *conn) {
	switch {
	case c.s == nil:
		text := fmt.Sprintf("no node %q was heard on any link; is its daemon running and on the same Ethernet segment?", c.wantPeer)
		if c.text != "" {
			text += " " + c.text
		}
		c.finish(now, StatusPeerUnknown, text)
	case c.s.state != sessionOpen:
		text := fmt.Sprintf("node %q was heard but does not answer", c.wantPeer)
		if c.s.hint != "" {
			text += ": " + c.s.hint
		}
		if c.s.peer.sealed && e.cfg.Secure == nil {
			text += ": it talks encrypted only, and this node plaintext; give both the same setting of security"
		}
		c.finish(now, StatusPeerDown, text)
	case !c.s.reachable():
		c.abort(now, StatusTimeout, fmt.Sprintf("node %q does not answer on any link at present; see the paths to it: edgectl peer", c.wantPeer))
	default:
		c.abort(now, StatusTimeout, fmt.Sprintf("node %q offers service %q but did not accept in time", c.wantPeer, c.service))
	}
}

func (e *Endpoint) dropDial(c *conn) {
	for i, d := range e.dials {
		if d == c {
			e.dials = slices.Delete(e.dials, i, i+1)
			return
		}
	}
}

// Accept answers EvIncoming: the connection is open and EvConnected follows.
func (e *Endpoint) Accept(now mono.Time, id ConnID, data []byte) error {
	c := e.conn(id)
	if c == nil || c.state != connIncoming {
		return fmt.Errorf("engine: connection %d does not wait to be accepted", id)
	}
	if len(data) > MaxPrivateData {
		return fmt.Errorf("engine: %d bytes of private data; at most %d fit", len(data), MaxPrivateData)
	}
	c.state, c.data = connOpen, append([]byte(nil), data...)
	c.setLimbo(false)
	c.ctl |= ctlAccept
	c.wake()
	e.Count.ConnectionsOpened++
	e.emit(Event{Kind: EvConnected, Conn: id, Peer: c.s.peer.id, PeerName: c.s.peer.name})
	return nil
}

// Refuse answers EvIncoming with a reason.
func (e *Endpoint) Refuse(now mono.Time, id ConnID, reason string) {
	if c := e.conn(id); c != nil && c.state == connIncoming {
		c.refuse(StatusRefused, reason)
	}
}

func (c *conn) refuse(st Status, reason string) {
	c.state, c.status, c.text = connLast, st, reason[:min(len(reason), wire.MaxText)]
	c.ctl |= ctlRefuse
	c.wake()
}

// Room says how many operations Submit would take now.
func (e *Endpoint) Room(id ConnID) int {
	c := e.conn(id)
	if c == nil || c.state != connOpen {
		return 0
	}
	return e.cfg.OpWindow - c.pending
}

// Submit takes an operation. It reports false, and nothing has happened, if the connection is not open or has no room; exactly one EvComplete
// with op.Token follows otherwise.
func (e *Endpoint) Submit(now mono.Time, id ConnID, op *Op) bool {
	c := e.conn(id)
	if c == nil || c.state != connOpen || c.pending >= e.cfg.OpWindow {
		return false
	}
	if n := c.sndBase.Distance(c.sndNext); n == len(c.ops) {
		c.growOps()
	}
	seq := c.sndNext
	o := c.sop(seq)
	*o = sendOp{Op: *op, n: uint64(len(op.Local)), since: now, got: o.got}
	if op.Local == nil {
		o.n = uint64(op.Inline)
	}
	if c.ordered {
		o.Flags |= BackwardFence
	}
	if c.hasForward && c.outstanding(c.lastForward) {
		o.fence, o.fenced = c.lastForward, true
	}
	if o.Flags&ForwardFence != 0 {
		c.lastForward, c.hasForward = seq, true
	}
	if o.Region != nil {
		o.Region.InFlight++
	}
	c.sndNext++
	c.pending++
	e.Count.OpsSubmitted++
	if !c.queued && c.sendable(seq) {
		c.wake()
	}
	return true
}

func (c *conn) growOps() {
	old := c.ops
	c.ops = make([]sendOp, max(firstRing, 2*len(old)))
	for i := range old {
		op := c.sndBase.Add(i)
		*c.sop(op) = old[uint32(op)&uint32(len(old)-1)]
	}
}

// wake puts the connection in the session's send queue.
func (c *conn) wake() {
	if !c.queued && c.s != nil && c.state != connFree {
		c.queued = true
		c.s.sendq.push(c)
	}
}

// complete ends one of our operations.
func (c *conn) complete(now mono.Time, op seqnum.Value, st Status) {
	o := c.sop(op)
	if o.done {
		return
	}
	o.done = true
	if o.Kind == OpRead {
		c.settle(op, true)
		c.empty(&o.got)
	}
	if o.Region != nil {
		o.Region.InFlight--
		o.Region = nil
	}
	e := c.e
	ev := Event{Kind: EvComplete, Conn: c.id, Token: o.Token, Status: st}
	e.Count.OpsCompleted++
	if st == OK {
		e.Latency.of(o.Kind).Observe(now.Sub(o.since))
	} else {
		e.Count.OpsFailed++
		if o.Kind == OpWrite {
			ev.Data = o.Local
		}
	}
	o.Local = nil
	e.emit(ev)
	c.pending--
	far := c.sndCur != c.sndNext && !c.sendable(c.sndCur)
	for c.sndBase != c.sndNext && c.sop(c.sndBase).done {
		c.sndBase++
	}
	if c.sndCur.Before(c.sndBase) {
		c.sndCur, c.curOff = c.sndBase, 0
	}
	if far && c.sendable(c.sndCur) {
		c.wake()
	}
	if c.state == connClosing {
		c.drained()
	}
}

// Close ends the connection once everything submitted has completed; EvClosed follows.
func (e *Endpoint) Close(now mono.Time, id ConnID) {
	c := e.conn(id)
	if c == nil {
		return
	}
	switch c.state {
	case connOpen:
		c.state = connClosing
		c.drained()
	case connDialing:
		c.abort(now, StatusClosed, "")
	case connIncoming:
		c.refuse(StatusRefused, "service closed")
	}
}

// drained sends Close when nothing is outstanding any more (clause 5.4).
func (c *conn) drained() {
	if c.sndBase != c.sndNext {
		return
	}
	c.leave(OK, "")
}

// leave tells the peer and the owner that the connection is over.
func (c *conn) leave(st Status, text string) {
	c.tellClosed(st, text)
	c.e.cfg.Grants.RevokeOwner(grantOwner(c.id))
	c.dropReceived()
	c.state, c.status = connLast, st
	c.setLimbo(true)
	c.ctl = ctlClose
	c.wake()
}

// tellClosed emits EvClosed with the notifications that were applied but not taken yet: the connection may be gone when the owner reads it.
func (c *conn) tellClosed(st Status, text string) {
	ev := Event{Kind: EvClosed, Conn: c.id, Status: st, Text: text}
	for ; c.notes.len() > 0; c.notes.pop() {
		ev.Notes = append(ev.Notes, *c.notes.front())
	}
	if !c.ping {
		c.e.Count.ConnectionsClosed++
	}
	c.e.emit(ev)
}

// Abort ends the connection at once: operations in flight complete with st, the peer is told, EvClosed follows.
func (e *Endpoint) Abort(now mono.Time, id ConnID, st Status) {
	c := e.conn(id)
	if c == nil || c.state == connLast {
		return
	}
	if c.state == connIncoming {
		c.refuse(StatusRefused, "the service went away")
		return
	}
	c.abort(now, st, "")
}

func (c *conn) abort(now mono.Time, st Status, text string) {
	if c.state == connDialing && (c.s == nil || c.s.state != sessionOpen) {
		c.finish(now, st, text)
		return
	}
	c.e.dropDial(c)
	c.failOps(now, st)
	c.leave(st, text)
}

// failOps completes every operation in flight with st.
func (c *conn) failOps(now mono.Time, st Status) {
	if c.state == connClosing {
		c.state = connOpen // complete must not find it drained
	}
	for op := c.sndBase; op != c.sndNext; op++ {
		c.complete(now, op, st)
	}
	c.urgent = queue[resend]{}
	c.retx.remove(func(r resend) bool { return r.kind != recReadData })
}

// finish ends the connection without a word to the peer and frees it.
func (c *conn) finish(now mono.Time, st Status, text string) {
	e := c.e
	e.dropDial(c)
	c.failOps(now, st)
	if c.state != connLast {
		c.tellClosed(st, text)
	}
	c.dropReceived()
	c.forget()
}

// forget frees the record.
func (c *conn) forget() {
	if c.s != nil {
		mine := func(o *conn) bool { return o == c }
		if c.queued {
			c.s.sendq.remove(mine)
		}
		if c.owesAck {
			c.s.opacks.remove(mine)
		}
	}
	c.e.freeConnection(c)
}

// dropReceived forgets what the peer's operations and adverts left here.
func (c *conn) dropReceived() {
	c.settleAll()
	for op := c.rcvBase; op != c.rcvTop; op++ {
		c.empty(&c.rop(op).got)
		c.dropHeld(c.rop(op))
	}
	c.empty(&c.told)
	c.empty(&c.taken)
	c.notes = queue[Notification]{}
	c.naks = queue[seqnum.Value]{}
	c.reading = queue[seqnum.Value]{}
	c.retx, c.urgent = queue[resend]{}, queue[resend]{}
	c.rops, c.rcvTop = nil, c.rcvBase
}

// TakeNotify takes the oldest notification of a connection. When it reports false, EvNotify announces the next.
func (e *Endpoint) TakeNotify(id ConnID) (Notification, bool) {
	c := e.conn(id)
	if c == nil || c.notes.len() == 0 {
		if c != nil {
			c.noting = false
		}
		return Notification{}, false
	}
	n := *c.notes.front()
	c.notes.pop()
	if c.creditLimit().Distance(c.limitSent) < -c.window/2 {
		c.oweAck() // the peer may be waiting for credit
	}
	return n, true
}

// Advertise tells the peer of exported memory under a name (clause 5.6).
func (e *Endpoint) Advertise(now mono.Time, id ConnID, a Advert) bool {
	c := e.conn(id)
	if c == nil || c.state != connOpen || len(a.Name) > MaxServiceName || c.adNumber > math.MaxUint32 {
		return false
	}
	if c.adverts == nil {
		c.adverts, c.adByKey = map[int]*advert{}, map[regmem.Key]int{}
	}
	c.adverts[c.adNumber] = &advert{Advert: a}
	c.adByKey[a.Key] = c.adNumber
	c.adQueue.push(c.adNumber)
	c.adNumber++
	c.wake()
	return true
}

// Withdraw takes an Advertise back.
func (e *Endpoint) Withdraw(now mono.Time, id ConnID, key uint64) {
	c := e.conn(id)
	if c == nil {
		return
	}
	i, ok := c.adByKey[regmem.Key(key)]
	if !ok {
		return
	}
	delete(c.adByKey, regmem.Key(key))
	c.adverts[i].withdrawn = true
	c.adQueue.push(i)
	c.wake()
}
