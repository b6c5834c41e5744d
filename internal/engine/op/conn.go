package op

import (
	"fmt"

	"multiedge/internal/abi"
	"multiedge/internal/engine/build"
	"multiedge/internal/engine/op/fair"
	"multiedge/internal/engine/op/park"
	"multiedge/internal/engine/op/span"
	"multiedge/internal/engine/queue"
	"multiedge/internal/mono"
	"multiedge/internal/seqnum"
	"multiedge/internal/wire"
	"multiedge/regmem"
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

// Conn is one end of a connection (clause 1.4).
//
//	dialing --Accept--> open --Close--> closing --drained--> last --acknowledged--> free
//	incoming --accepted--> open          any --peer's Close, abort, session failure--> last or free
type Conn struct {
	e       *Endpoint
	S       *Session
	ID      ConnID
	remote  uint32 // the peer's number; 0 until known
	state   connState
	ordered bool
	overlap bool // ordered, but an answer need not end before the next operation begins (clause 5.3)
	owner   fair.Owner
	share   fair.Share[*Conn] // in s.fair, while there is a session
	ctl     uint8             // control segments to be sent
	status  abi.Status        // of Close or Refuse
	text    string            // of Refuse
	// of the latest frame: refusals and our operations went before the data of the peer's reads
	ownFirst bool

	bytesIn, bytesOut uint64 // of operations, of either end, that succeeded

	dial    dialRequest
	send    sendSide
	recv    recvSide
	resting resting
	exports exports
	missed  park.Chain[waiter] // what is parked at the endpoint
	msgs    *messages          // nil until the first send or receive
	eager   *composed          // nil until the first composed message, of either end
}

// sendSide is our operations. Those of [send.base, send.next) that are not done are outstanding; those before send.cur
// were sent at least once, send.cur up to curOff, and so were those behind it that left first. Only operations within
// Config.OpWindow of send.base are sent; later ones stay queued.
type sendSide struct {
	base, cur, next seqnum.Value // send.base <= send.cur <= send.next
	pending         int          // operations outstanding, at most Config.OpWindow, but for those hidden
	hidden, acking  int          // with LocalDone, outstanding: completed for their owner, and not yet
	curOff          uint64
	ackBase         seqnum.Value // every operation before it is applied at the peer
	limit           seqnum.Value // credit, clause 7.2: the first operation that may not be sent
	lastForward     seqnum.Value // the latest with a forward fence, if hasForward
	hasForward      bool
	ops             []sendOp            // ring of [send.base, send.next), its length a power of two or 0
	retx            queue.Queue[resend] // lost
	urgent          queue.Queue[resend] // lost, of the operation that everything at the peer may wait for; or first
}

// sendOp is an operation of ours until it completed.
type sendOp struct {
	op     Op
	n      uint64 // bytes
	key    uint64 // of its segments: that of the remote memory; of a send the number of its message
	since  mono.Time
	fence  seqnum.Value // with SegFenced
	done   bool
	hidden bool // it has completed for its owner (LocalDone)
	ahead  ahead
	copied bool            // Local is a copy of ours
	acked  uint64          // of a write with LocalDone: bytes that the peer has received
	left   park.Unreceived // parts of its answer, since the latest part in place
	failed abi.Status      // its memory did not come: the peer is told that it is over
	flags  uint8           // of its segments, but for SegFirst and SegLast
	backed bool            // its local memory may not be resident
	puts   int32           // trips of couriers that put parts of a read
	// trips that fetched parts of a write
	fetched *regmem.Trip
	got     span.Set // of a read
	result  uint64   // of an atomic
}

// ahead is whether an operation leaves before those with smaller numbers.
type ahead uint8

const (
	inTurn ahead = iota
	leavesFirst
	leftFirst // it has
)

// resend is something to be sent again.
type resend struct {
	kind build.Kind // RecOps, RecRange or RecAnswer
	op   seqnum.Value
	off  uint64
	n    uint64
	late bool // it was not sent before, since its memory was not resident
}

// firstRing is the length that rings of operations start with; they grow to the window as use demands.
// A power of two. Most of very many connections have little in flight, and an entry costs more than 100 bytes.
const firstRing = 4

// sop returns the slot of one of our operations in [send.base, send.next).
func (c *Conn) sop(op seqnum.Value) *sendOp { return &c.send.ops[uint32(op)&uint32(len(c.send.ops)-1)] }

// outstanding reports whether op was submitted and has not completed.
func (c *Conn) outstanding(op seqnum.Value) bool {
	return op.InWindow(c.send.base, c.send.base.Distance(c.send.next)) && !c.sop(op).done
}

// sent reports whether the peer can know of op.
func (c *Conn) sent(op seqnum.Value) bool {
	return op.Before(c.send.cur) || op == c.send.cur && c.send.curOff > 0 ||
		op.Before(c.send.next) && c.sop(op).ahead == leftFirst
}

// allSent reports whether the peer can know of every operation before op, one at least.
func (c *Conn) allSent(op seqnum.Value) bool {
	for op--; c.sent(op); op-- {
		if op.Before(c.send.cur) {
			return true
		}
	}
	return false
}

// sendable reports whether op, of those not sent yet, may be sent: the peer gives credit for it and it is not too far
// from the oldest.
func (c *Conn) sendable(op seqnum.Value) bool {
	return op.Before(c.send.limit) && op.InWindow(c.send.base, c.e.cfg.OpWindow)
}

func (c *Conn) attach(s *Session) {
	c.S = s
	s.Conns++
	s.Fair.Join(c, &c.share, c.owner, c.e.Conns.Users)
}

// detach undoes attach.
func (c *Conn) detach() {
	c.S.Conns--
	c.S.Fair.Leave(&c.share, c.owner, c.e.Conns.Users)
	c.S = nil
}

// setLimbo says that the connection waits for its first answer or for the confirmation of its end, or does so no more.
func (c *Conn) setUnconfirmed(on bool) {
	if on != c.dial.unconfirmed {
		c.dial.unconfirmed = on
		if on {
			c.S.Unconfirmed++
		} else {
			c.S.Unconfirmed--
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
	c.state, c.dial.data = connOpen, append([]byte(nil), data...)
	c.setUnconfirmed(false)
	c.ctl |= ctlAccept
	if c.msgs != nil {
		c.ctl |= ctlCredit // it was given buffers already
	}
	c.wake()
	e.Count.Life.ConnectionsOpened++
	e.Emit(Event{Kind: EvConnected, Conn: id, Peer: c.S.Peer.ID, PeerName: c.S.Peer.Name})
	return nil
}

// Refuse answers EvIncoming with a reason.
func (e *Endpoint) Refuse(now mono.Time, id ConnID, reason string) {
	if c := e.conn(id); c != nil && c.state == connIncoming {
		c.refuse(now, abi.StatusRefused, reason)
	}
}

// refuse tells the peer why, and returns the buffers that the connection was given to their owner.
func (c *Conn) refuse(now mono.Time, st abi.Status, reason string) {
	c.flush(now, abi.StatusAborted)
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
	return e.cfg.OpWindow - c.send.pending
}

// Submit takes an operation. It reports false, and nothing has happened, if the connection is not open or has no room;
// exactly one EvComplete with op.Token follows otherwise. op.Pieces is nil then if the list is the caller's again.
func (e *Endpoint) Submit(now mono.Time, id ConnID, op *Op) bool {
	c := e.conn(id)
	if c == nil || c.state != connOpen || c.send.pending >= e.cfg.OpWindow {
		return false
	}
	if op.Region != nil {
		op.Region.InFlight++
	}
	if op.Pieces != nil {
		op.Pieces.Use(1)
	}
	c.send.pending++
	e.Count.Op.OpsSubmitted++
	if (op.Kind.Message() || c.msgs != nil) && c.mustWait(now, op) {
		return true
	}
	c.enter(op, now)
	return true
}

// enter gives an operation its number, and has it sent.
func (c *Conn) enter(op *Op, since mono.Time) {
	if n := c.send.base.Distance(c.send.next); n == len(c.send.ops) {
		c.growOps()
	}
	seq := c.send.next
	o := c.sop(seq)
	// Filled in its place: a literal would be stored in parts and then copied, which waits for the stores.
	o.op, o.n, o.key, o.since = *op, uint64(len(op.Local)), uint64(op.Key), since
	o.fence, o.done, o.hidden, o.copied, o.ahead = 0, false, false, false, inTurn
	o.acked, o.left, o.failed, o.result, o.puts, o.fetched = 0, park.Unreceived{}, OK, 0, 0, nil
	if op.Kind.Message() {
		c.msgs.number(o)
	}
	o.backed = o.op.Backed()
	if o.op.Flags&LocalDone != 0 && (o.op.Kind != OpWrite || o.op.Pieces != nil || o.backed) {
		o.op.Flags &^= LocalDone
	}
	if op.Local == nil {
		o.n = uint64(op.Inline)
		if op.Pieces != nil {
			o.n = op.Pieces.Size
			c.gatherAhead(o, op)
		}
	}
	if c.ordered && !c.overlap {
		o.op.Flags |= BackwardFence
	}
	o.flags = uint8(o.op.Flags&(BackwardFence|ForwardFence|Notify))*wire.SegBackward | uint8(o.op.Flags&strict)
	if c.send.hasForward && c.outstanding(c.send.lastForward) {
		o.fence = c.send.lastForward
		o.flags |= wire.SegFenced
	}
	if o.op.Flags&ForwardFence != 0 {
		c.send.lastForward, c.send.hasForward = seq, true
	}
	if c.overtakes(o, seq) {
		o.ahead = leavesFirst
		c.send.urgent.Push(resend{kind: build.RecOps, op: seq, late: true})
	}
	c.send.next++
	if o.op.Flags&LocalDone != 0 {
		c.submitLocal(seq)
	}
	if !c.share.Waits && c.sendable(seq) {
		c.wake()
	}
}

func (c *Conn) growOps() {
	old := c.send.ops
	c.send.ops = make([]sendOp, max(firstRing, 2*len(old)))
	if len(old) > 0 {
		c.e.grew(c)
	}
	for i := range old {
		op := c.send.base.Add(i)
		*c.sop(op) = old[uint32(op)&uint32(len(old)-1)]
	}
}

// wake notes that the connection has something to send.
func (c *Conn) wake() {
	if !c.share.Waits && c.S != nil && c.state != connFree {
		c.S.Fair.Add(&c.share)
	}
}

// complete ends one of our operations.
func (c *Conn) complete(now mono.Time, op seqnum.Value, st abi.Status) {
	o := c.sop(op)
	if o.done {
		return
	}
	o.done = true
	if o.failed != OK {
		st = o.failed
	}
	e := c.e
	referred := kinds[o.op.Kind].complete(c, now, op, st)
	ev := e.events.short(EvComplete, c.ID)
	ev.Status, ev.Token, ev.Value, ev.Data = st, o.op.Token, o.result, referred
	e.Count.Op.OpsCompleted++
	if st != OK {
		e.Count.Op.OpsFailed++
	}
	if o.op.Region != nil {
		o.op.Region.InFlight--
		o.op.Region = nil
	}
	if o.op.Pieces != nil {
		o.op.Pieces.Use(-1)
		o.op.Pieces = nil
	}
	if o.op.eager != nil {
		c.endEager(o)
	}
	if o.op.Flags&LocalDone != 0 {
		c.endLocal(o, ev)
	} else if o.copied {
		c.dropCopy(o, ev)
	}
	o.op.Local = nil
	dropTrips(&o.fetched)
	c.send.pending--
	far := c.send.cur != c.send.next && !c.sendable(c.send.cur)
	for c.send.base != c.send.next && c.sop(c.send.base).done {
		c.send.base++
	}
	if c.send.cur.Before(c.send.base) {
		c.send.cur, c.send.curOff = c.send.base, 0
	}
	if far && c.sendable(c.send.cur) {
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
		c.Abort(now, abi.StatusClosed, "")
	case connIncoming:
		c.refuse(now, abi.StatusRefused, "service closed")
	}
}

// drained sends Close when nothing is outstanding any more (clause 5.4).
func (c *Conn) drained(now mono.Time) {
	if c.send.base != c.send.next || c.waiting() > 0 {
		return
	}
	c.leave(now, OK, "")
}

// leave tells the peer and the owner that the connection is over.
func (c *Conn) leave(now mono.Time, st abi.Status, text string) {
	c.tellClosed(now, st, text)
	c.dropReceived()
	c.state, c.status = connLast, st
	c.setUnconfirmed(true)
	c.ctl = ctlClose
	c.wake()
}

// tellClosed emits EvClosed with the notifications that were applied but not taken yet: the connection may be gone when
// the owner reads it.
func (c *Conn) tellClosed(now mono.Time, st abi.Status, text string) {
	why := st
	if why == OK {
		why = abi.StatusClosed
	}
	c.endRedirects(why, func(*redirect) bool { return true })
	c.endComposing(why)
	c.flush(now, st)
	ev := Event{Kind: EvClosed, Conn: c.ID, Status: st, Text: text}
	for ; c.recv.notes.Len() > 0; c.recv.notes.Pop() {
		ev.Notes = append(ev.Notes, *c.recv.notes.Front())
	}
	if !c.dial.ping {
		c.e.Count.Life.ConnectionsClosed++
	}
	c.e.Emit(ev)
}

// Abort ends the connection at once: operations in flight complete with st, the peer is told, EvClosed follows.
func (e *Endpoint) Abort(now mono.Time, id ConnID, st abi.Status) {
	c := e.conn(id)
	if c == nil || c.state == connLast {
		return
	}
	if c.state == connIncoming {
		c.refuse(now, abi.StatusRefused, "the service went away")
		return
	}
	c.Abort(now, st, "")
}

func (c *Conn) Abort(now mono.Time, st abi.Status, text string) {
	if c.state == connDialing && (c.S == nil || !c.S.Open) {
		c.Finish(now, st, text)
		return
	}
	c.e.dropDial(c)
	c.failOps(now, st)
	c.leave(now, st, text)
}

// failOps completes every operation in flight with st.
func (c *Conn) failOps(now mono.Time, st abi.Status) {
	if c.state == connClosing {
		c.state = connOpen // complete must not find it drained
	}
	for op := c.send.base; op != c.send.next; op++ {
		c.complete(now, op, st)
	}
	c.failWaiting(st)
	c.send.urgent = queue.Queue[resend]{}
	c.send.retx.Remove(func(r resend) bool { return r.kind != build.RecAnswer })
}

// Finish ends the connection without a word to the peer and frees it.
func (c *Conn) Finish(now mono.Time, st abi.Status, text string) {
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
func (c *Conn) forget() {
	if c.recv.owesAck && c.S != nil {
		c.S.OpAcks.Remove(func(o *Conn) bool { return o == c })
	}
	c.e.freeConnection(c)
}

// dropReceived forgets what the peer's operations and adverts left here.
func (c *Conn) dropReceived() {
	c.e.movers.later.settleConn(c.ID)
	c.dropMissed()
	c.dropDrafts()
	for op := c.recv.base; op != c.recv.top; op++ {
		c.dropHeld(c.rop(op))
		dropTrips(&c.rop(op).fetched)
	}
	c.empty(&c.exports.told)
	c.empty(&c.exports.taken)
	c.giveBack()
	c.send.retx, c.send.urgent = queue.Queue[resend]{}, queue.Queue[resend]{}
	c.recv.top = c.recv.base
}

// TakeNotify takes the oldest notification of a connection. When it reports false, EvNotify announces the next.
func (e *Endpoint) TakeNotify(id ConnID) (Notification, bool) {
	c := e.conn(id)
	if c == nil || c.recv.notes.Len() == 0 {
		if c != nil {
			c.recv.noting = false
		}
		return Notification{}, false
	}
	n := *c.recv.notes.Front()
	c.recv.notes.Pop()
	if c.creditLimit().Distance(c.recv.limitSent) < -c.recv.window/2 {
		c.oweAck() // the peer may be waiting for credit
	}
	return n, true
}
