package engine

import (
	"container/heap"
	"errors"
	"fmt"
	"math"

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
	ctlCredit
	ctlWant
)

// conn is one end of a connection (clause 1.4).
//
//	dialing --Accept--> open --Close--> closing --drained--> last --acknowledged--> free
//	incoming --accepted--> open          any --peer's Close, abort, session failure--> last or free
type conn struct {
	e        *Endpoint
	s        *session
	id       ConnID
	remote   uint32 // the peer's number; 0 until known
	state    connState
	ordered  bool
	owner    Owner
	share    share  // in s.fair, while there is a session
	ctl      uint8  // control segments to be sent
	status   Status // of Close or Refuse
	text     string // of Refuse
	ownFirst bool   // of the latest frame: refusals and our operations went before the data of the peer's reads

	bytesIn, bytesOut uint64 // of operations, of either end, that succeeded

	dialling
	sendSide
	recvSide
	resting
	exports
	missed chain     // what is parked at the endpoint
	msgs   *messages // nil until the first send or receive
	eager  *eager    // nil until the first composed message, of either end
}

// sendSide is our operations. Those of [sndBase, sndNext) that are not done are outstanding; those before sndCur were
// sent at least once, sndCur up to curOff. Only operations within Config.OpWindow of sndBase are sent; later ones stay
// queued.
type sendSide struct {
	sndBase, sndCur, sndNext seqnum.Value // sndBase <= sndCur <= sndNext
	pending                  int          // operations outstanding, at most Config.OpWindow, but for those hidden
	hidden, acking           int          // with LocalDone, outstanding: completed for their owner, and not yet
	curOff                   uint64
	ackBase                  seqnum.Value // every operation before it is applied at the peer
	limit                    seqnum.Value // credit, clause 7.2: the first operation that may not be sent
	lastForward              seqnum.Value // the latest with a forward fence, if hasForward
	hasForward               bool
	ops                      []sendOp      // ring of [sndBase, sndNext), its length a power of two or 0
	retx                     queue[resend] // lost
	urgent                   queue[resend] // lost, of the operation that everything at the peer may be waiting for
}

// sendOp is an operation of ours until it completed.
type sendOp struct {
	Op
	n      uint64 // bytes
	since  mono.Time
	fence  seqnum.Value // with SegFenced
	done   bool
	hidden bool       // it has completed for its owner (LocalDone)
	staged bool       // Local is a buffer of the stage
	acked  uint64     // of a write with LocalDone: bytes that the peer has received
	left   unreceived // parts of its answer, since the latest part in place
	failed Status     // its memory did not come: the peer is told that it is over
	flags  uint8      // of its segments, but for SegFirst and SegLast
	backed bool       // its local memory may not be resident
	puts   int32      // trips of couriers that put parts of a read
	// trips that fetched parts of a write
	fetched *regmem.Trip
	got     ranges // of a read
	result  uint64 // of an atomic
}

// resend is something to be sent again.
type resend struct {
	kind recKind // recOps, recRange or recAnswer
	op   seqnum.Value
	off  uint64
	n    uint64
	late bool // it was not sent before, since its memory was not resident
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

// sendable reports whether op, of those not sent yet, may be sent: the peer gives credit for it and it is not too far
// from the oldest.
func (c *conn) sendable(op seqnum.Value) bool {
	return op.Before(c.limit) && op.InWindow(c.sndBase, c.e.cfg.OpWindow)
}

// ErrConns is wrapped by Dial when the endpoint has as many connections as Config.MaxConns allows.
var ErrConns = errors.New("engine: connections")

// Dial asks for a connection to a service of a peer, named by node name or identity in hexadecimal. The answer is
// EvConnected, or EvClosed with the reason.
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
	if len(e.dials) >= e.cfg.MaxDials {
		return 0, fmt.Errorf("%w: %d wait for an answer already", ErrDials, e.cfg.MaxDials)
	}
	c := e.newConn()
	if c == nil {
		return 0, fmt.Errorf("%w: all %d are in use", ErrConns, e.cfg.MaxConns)
	}
	wait := o.Timeout
	if wait <= 0 {
		wait = e.cfg.DialTime
	}
	c.state, c.wantPeer, c.service, c.ordered, c.ping, c.sched = connDialing, peer, service, o.Ordered, o.Ping,
		o.Scheduler
	c.data = append([]byte(nil), o.Data...)
	c.deadline = now.Add(min(wait, math.MaxInt64/2))
	c.window, c.limitSent, c.owner = e.cfg.OpWindow, seqnum.Value(e.cfg.OpWindow), o.Owner
	heap.Push(&e.dials, c)
	e.await(c)
	if !e.authorised(peer) {
		c.finish(now, StatusStranger, fmt.Sprintf("no authorised peer is called %q; authorise it: edgectl peers add "+
			"KEY %s", peer, peer))
		return c.id, nil
	}
	if e.tryDial(now, c); c.s == nil {
		e.lookFor(now)
	}
	return c.id, nil
}

func (c *conn) attach(s *session) {
	c.s = s
	s.conns++
	s.fair.join(c)
}

// detach undoes attach.
func (c *conn) detach() {
	c.s.conns--
	c.s.fair.leave(c)
	c.s = nil
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
	e := c.e
	e.leaveList(c)
	c.tried++
	s.acks.opacks.remove(func(o *conn) bool { return o == c })
	c.detach()
	c.ctl, c.owesAck = 0, false
	e.tryDial(now, c)
	return true
}

func (c *conn) requestOpen() {
	c.ctl |= ctlOpen
	c.wake()
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

// IsOpen reports whether a connection is open: its end, if it has ended, is reported before long.
func (e *Endpoint) IsOpen(id ConnID) bool {
	c := e.conn(id)
	return c != nil && c.state == connOpen
}

// Room says how many operations Submit would take now.
func (e *Endpoint) Room(id ConnID) int {
	c := e.conn(id)
	if c == nil || c.state != connOpen {
		return 0
	}
	return e.cfg.OpWindow - c.pending
}

// Submit takes an operation. It reports false, and nothing has happened, if the connection is not open or has no room;
// exactly one EvComplete with op.Token follows otherwise. op.Pieces is nil then if the list is the caller's again.
func (e *Endpoint) Submit(now mono.Time, id ConnID, op *Op) bool {
	c := e.conn(id)
	if c == nil || c.state != connOpen || c.pending >= e.cfg.OpWindow {
		return false
	}
	if op.Region != nil {
		op.Region.InFlight++
	}
	if op.Pieces != nil {
		op.Pieces.use(1)
	}
	c.pending++
	e.Count.OpsSubmitted++
	if (op.Kind == OpSend || c.msgs != nil) && c.mustWait(now, op) {
		return true
	}
	c.enter(op, now)
	return true
}

// enter gives an operation its number, and has it sent.
func (c *conn) enter(op *Op, since mono.Time) {
	if n := c.sndBase.Distance(c.sndNext); n == len(c.ops) {
		c.growOps()
	}
	seq := c.sndNext
	o := c.sop(seq)
	// Filled in its place: a literal would be stored in parts and then copied, which waits for the stores.
	o.Op, o.n, o.since = *op, uint64(len(op.Local)), since
	o.fence, o.done, o.hidden, o.staged = 0, false, false, false
	o.acked, o.left, o.failed, o.result, o.puts, o.fetched = 0, unreceived{}, OK, 0, 0, nil
	if op.Kind == OpSend {
		c.msgs.number(o)
	}
	o.backed = o.Backed()
	if o.Flags&LocalDone != 0 && (o.Kind != OpWrite || o.Pieces != nil || o.backed) {
		o.Flags &^= LocalDone
	}
	if op.Local == nil {
		o.n = uint64(op.Inline)
		if op.Pieces != nil {
			o.n = op.Pieces.bytes
			c.gatherAhead(o, op)
		}
	}
	if c.ordered {
		o.Flags |= BackwardFence
	}
	o.flags = uint8(o.Flags&(BackwardFence|ForwardFence|Notify))*wire.SegBackward | uint8(o.Flags&strict)
	if c.hasForward && c.outstanding(c.lastForward) {
		o.fence = c.lastForward
		o.flags |= wire.SegFenced
	}
	if o.Flags&ForwardFence != 0 {
		c.lastForward, c.hasForward = seq, true
	}
	c.sndNext++
	if o.Flags&LocalDone != 0 {
		c.submitLocal(seq)
	}
	if !c.share.waits && c.sendable(seq) {
		c.wake()
	}
}

func (c *conn) growOps() {
	old := c.ops
	c.ops = make([]sendOp, max(firstRing, 2*len(old)))
	if len(old) > 0 {
		c.e.grew(c)
	}
	for i := range old {
		op := c.sndBase.Add(i)
		*c.sop(op) = old[uint32(op)&uint32(len(old)-1)]
	}
}

// wake notes that the connection has something to send.
func (c *conn) wake() {
	if !c.share.waits && c.s != nil && c.state != connFree {
		c.s.fair.add(c)
	}
}

// complete ends one of our operations.
func (c *conn) complete(now mono.Time, op seqnum.Value, st Status) {
	o := c.sop(op)
	if o.done {
		return
	}
	o.done = true
	if o.failed != OK {
		st = o.failed
	}
	e := c.e
	referred := kinds[o.Kind].complete(c, now, op, st)
	ev := e.events.short(EvComplete, c.id)
	ev.Status, ev.Token, ev.Value, ev.Data = st, o.Token, o.result, referred
	e.Count.OpsCompleted++
	if st != OK {
		e.Count.OpsFailed++
	}
	if o.Region != nil {
		o.Region.InFlight--
		o.Region = nil
	}
	if o.Pieces != nil {
		o.Pieces.use(-1)
		o.Pieces = nil
	}
	if o.eager != nil {
		c.endEager(o)
	}
	if o.Flags&LocalDone != 0 {
		c.endLocal(o, ev)
	} else if o.staged {
		c.unstage(o, ev)
	}
	o.Local = nil
	dropTrips(&o.fetched)
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
		c.drained(now)
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
		c.drained(now)
	case connDialing:
		c.abort(now, StatusClosed, "")
	case connIncoming:
		c.refuse(StatusRefused, "service closed")
	}
}

// drained sends Close when nothing is outstanding any more (clause 5.4).
func (c *conn) drained(now mono.Time) {
	if c.sndBase != c.sndNext || c.waiting() > 0 {
		return
	}
	c.leave(now, OK, "")
}

// leave tells the peer and the owner that the connection is over.
func (c *conn) leave(now mono.Time, st Status, text string) {
	c.tellClosed(now, st, text)
	c.e.cfg.Grants.RevokeOwner(grantOwner(c.id))
	c.dropReceived()
	c.state, c.status = connLast, st
	c.setLimbo(true)
	c.ctl = ctlClose
	c.wake()
}

// tellClosed emits EvClosed with the notifications that were applied but not taken yet: the connection may be gone when
// the owner reads it.
func (c *conn) tellClosed(now mono.Time, st Status, text string) {
	why := st
	if why == OK {
		why = StatusClosed
	}
	c.endRedirects(why, func(*redirect) bool { return true })
	c.endComposing(why)
	c.flush(now, st)
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
	c.leave(now, st, text)
}

// failOps completes every operation in flight with st.
func (c *conn) failOps(now mono.Time, st Status) {
	if c.state == connClosing {
		c.state = connOpen // complete must not find it drained
	}
	for op := c.sndBase; op != c.sndNext; op++ {
		c.complete(now, op, st)
	}
	c.failWaiting(st)
	c.urgent = queue[resend]{}
	c.retx.remove(func(r resend) bool { return r.kind != recAnswer })
}

// finish ends the connection without a word to the peer and frees it.
func (c *conn) finish(now mono.Time, st Status, text string) {
	e := c.e
	e.dropDial(c)
	c.failOps(now, st)
	if c.state != connLast {
		c.tellClosed(now, st, text)
	}
	c.dropReceived()
	c.forget()
}

// forget frees the record.
func (c *conn) forget() {
	if c.owesAck && c.s != nil {
		c.s.acks.opacks.remove(func(o *conn) bool { return o == c })
	}
	c.e.freeConnection(c)
}

// dropReceived forgets what the peer's operations and adverts left here.
func (c *conn) dropReceived() {
	c.e.later.settleConn(c.id)
	c.dropMissed()
	c.dropDrafts()
	for op := c.rcvBase; op != c.rcvTop; op++ {
		c.dropHeld(c.rop(op))
		dropTrips(&c.rop(op).fetched)
	}
	c.empty(&c.told)
	c.empty(&c.taken)
	c.giveBack()
	c.retx, c.urgent = queue[resend]{}, queue[resend]{}
	c.rcvTop = c.rcvBase
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
