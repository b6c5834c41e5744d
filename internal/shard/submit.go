package shard

import (
	"errors"
	"math"
	"slices"

	"multiedge/internal/engine"
	"multiedge/internal/ipc"
	"multiedge/internal/mono"
	"multiedge/regmem"
)

// The way of a submission:
//
//	client's ring -> Drain copies and validates it (ipc) -> client.held, private ->
//	checks against this client's connections and regions ->
//	engine.Submit copies it; the bytes it names stay where they are and are counted by the region's InFlight
//
// An entry that cannot go on because the completion ring has no room stays in held, and those behind it wait: a client
// that overcommits stalls itself. The engine takes every operation that check lets pass, however far the oldest of its
// connection lies back, but those of a connection whose end it is about to report: they wait for that.

// drainClients takes a bounded number of submissions from every user, whatever the number of his clients; from every
// client while one user alone has any.
func (s *Shard) drainClients(now mono.Time) (worked bool) {
	if !s.clients.mixed {
		for _, c := range s.clients.list {
			if c != nil && c.rings != nil {
				worked = s.drainClient(now, c) > 0 || worked
			}
		}
		return worked
	}
	var last *tenant
	busy := 0
	for _, u := range s.clients.tenants {
		if s.drainUser(now, u, sqBudget) {
			busy++
			last = u
		}
	}
	if busy == 1 {
		s.drainUser(now, last, math.MaxInt)
	}
	return busy > 0
}

// tenant is a user with clients at this shard.
type tenant struct {
	clients []*Client
	next    int // whose turn it is
}

// drainUser serves the clients of one user in turn, until they have used up the budget.
func (s *Shard) drainUser(now mono.Time, u *tenant, budget int) (worked bool) {
	for range u.clients {
		if u.next++; u.next >= len(u.clients) {
			u.next = 0
		}
		c := u.clients[u.next]
		if c.rings == nil {
			continue
		}
		n := s.drainClient(now, c)
		worked = worked || n > 0
		if budget -= n; budget <= 0 {
			break
		}
	}
	return worked
}

// fewRefused is how many entries of a client that cannot be served end its turn.
const fewRefused = 8

// drainClient takes submissions of a client, sqBudget of them, to which the entries before them with their pieces or
// bytes are not counted, and hands it notifications. It returns how many entries and notifications.
func (s *Shard) drainClient(now mono.Time, c *Client) (work int) {
	last := c.flight.useless + fewRefused
	for taken, more := 0, true; more && taken < sqBudget && work < sqBudget*ipc.MaxEntries; {
		var bad error
		want := sqBudget - taken
		if more = c.taken.next == c.taken.count; more {
			c.taken.next = 0
			c.taken.count, bad = c.sq.Drain(c.taken.held[:want])
		}
		for ; c.taken.next < c.taken.count && c.flight.useless < last; work++ {
			e := &c.taken.held[c.taken.next]
			ok, err := s.submit(now, c, e)
			if err != nil {
				bad = err
				break
			}
			if !ok {
				break
			}
			c.taken.next++
			if e.Op != ipc.OpPieces && e.Op != ipc.OpBytes {
				taken++
			}
		}
		if bad != nil {
			s.evict(c, bad.Error())
			return work + 1
		}
		more = more && c.taken.next == want
	}
	c.ring.took = c.ring.took || work > 0
	if len(c.delivery.notify) > 0 {
		work += s.deliver(c)
	}
	return work
}

// submit passes one entry on. It returns false when the entry must wait, an error when the client must go.
func (s *Shard) submit(now mono.Time, c *Client, e *ipc.SQE) (ok bool, err error) {
	switch e.Op {
	case ipc.OpCredit, ipc.OpPieces, ipc.OpBytes, ipc.OpAim, ipc.OpResume:
		return true, s.aside(c, e)
	}
	if !c.taken.fits(e) {
		return true, ipc.ErrEntry
	}
	switch e.Op {
	case ipc.OpReceive:
		return s.postReceive(now, c, e)
	case ipc.OpRedirect:
		return s.redirect(c, e)
	case ipc.OpEndRedirect:
		return true, s.endRedirect(c, e)
	case ipc.OpCompose, ipc.OpWrote, ipc.OpCommit, ipc.OpDiscard:
		return s.eager(now, c, e)
	}
	if len(c.flight.free) == 0 {
		return false, nil
	}
	if ok, err = c.roomForOp(); !ok {
		return false, err
	}
	cn := c.lookup(e.Conn)
	if status := s.check(c, cn, e); status != ipc.StatusOK {
		return true, s.reject(c, e, status)
	}
	local, err := c.hides(e)
	if err != nil {
		return false, err
	}
	slot := c.flight.free[len(c.flight.free)-1]
	op := &s.op
	// Filled in its place: a literal would be stored in parts and then copied, which waits for the stores.
	op.Kind, op.Flags, op.Inline, op.Imm = e.Op, e.Flags, e.InlineLen, e.Imm
	op.Token, op.Late, op.Key = uint64(c.slot)<<32|uint64(slot), e.Token, regmem.Key(e.Key)
	op.LocalOff, op.Local, op.Region, op.Pieces = e.LocalOff, nil, nil, nil
	if op.Off, op.Patience = e.RemoteOff, 0; e.Op.Message() {
		op.Off, op.Patience = 0, e.RemoteOff
	}
	if status := s.fill(c, e, op); status != ipc.StatusOK {
		return true, s.reject(c, e, status)
	}
	list := op.Pieces
	if !s.eng.Submit(now, cn.id, op) {
		s.keepList(list)
		return false, nil
	}
	c.taken.pieces.n = 0
	if op.Pieces == nil {
		s.keepList(list)
	}
	c.flight.free = c.flight.free[:len(c.flight.free)-1]
	if local {
		c.flight.hidden++
	}
	s.took(c, cn, slot, opSlot{conn: cn, token: e.Token, list: op.Pieces, bytes: c.lend(), local: local})
	return true, nil
}

// fill gives an operation its bytes, or the memory that it names.
func (s *Shard) fill(c *Client, e *ipc.SQE, op *engine.Op) (status ipc.Status) {
	switch {
	case e.Op == ipc.OpAtomic && e.RemoteOff&(e.AtomicSize()-1) != 0:
		return ipc.StatusMisaligned
	case c.taken.bytes.n > 0:
		op.Local, op.Inline = c.taken.bytes.with(e), 0
		return ipc.StatusOK
	case e.InlineLen > 0:
		op.Data = [ipc.MaxInline]byte(e.Inline[:])
		return ipc.StatusOK
	case e.Op == ipc.OpTell:
		op.SetTell(uint32(e.Len))
		return ipc.StatusOK
	case c.taken.pieces.n > 0:
		op.Pieces, status = s.takePieces(c, e)
	default:
		op.Local, op.Region, status = c.regions.local(e.Region, e.LocalOff, e.Len)
	}
	if e.Op == ipc.OpSend && status == ipc.StatusOK && op.Backed() {
		s.keepList(op.Pieces)
		status = ipc.StatusLocal // once a message has its number, it must leave
	}
	return status
}

// took notes what is in flight from now on.
func (s *Shard) took(c *Client, cn *Conn, slot uint32, o opSlot) {
	c.flight.ops[slot] = o
	c.flight.inflight++
	cn.inflight++
	c.user.ops.Add(1)
	c.flight.useless = 0
}

// hides reports whether a write completes once its local bytes may change (A6.15). Its failure may be told later, for
// which a second place in the completion ring is taken now; without one it is a write like any other.
func (c *Client) hides(e *ipc.SQE) (bool, error) {
	if e.Flags&ipc.FlagLocal == 0 {
		return false, nil
	}
	if c.Features&ipc.FeatureLocal == 0 {
		return false, ipc.ErrEntry
	}
	if c.taken.pieces.n > 0 || c.flight.hidden >= len(c.flight.ops) || c.cq.Room() <= c.promised()+1 {
		e.Flags &^= ipc.FlagLocal
		return false, nil
	}
	return true, nil
}

// uselessDepths is how many submissions that cannot be served a client may make in a row, in units of its queue: those
// that were under way when a connection ended are fewer. They cost it nothing and the others time, so a client that
// makes more is up to no good.
const uselessDepths = 16

// reject answers an entry by a completion. The error says that the client must go.
func (s *Shard) reject(c *Client, e *ipc.SQE, status ipc.Status) error {
	c.taken.pieces.n, c.taken.bytes.n = 0, 0
	s.put(c, &ipc.CQE{Kind: ipc.CQComplete, Status: status, Conn: e.Conn, Token: e.Token})
	if status == ipc.StatusQuota {
		return nil // no fault of its own
	}
	return s.wasted(c)
}

// wasted counts a submission that did nothing.
func (s *Shard) wasted(c *Client) error {
	if c.flight.useless++; c.flight.useless > uselessDepths*len(c.flight.ops) {
		return errUseless
	}
	return nil
}

var errUseless = errors.New("it floods its submission ring with entries that cannot be served")

// check says whether an operation may go to a connection.
func (s *Shard) check(c *Client, cn *Conn, e *ipc.SQE) ipc.Status {
	switch {
	case cn == nil:
		return c.ends.why(e.Conn)
	case cn.state < connOpen && !(e.Op == ipc.OpReceive && cn.early()):
		return ipc.StatusNoConn
	case cn.state >= connEnding:
		return cn.why
	case cn.state > connOpen:
		return ipc.StatusAborted // by its own client: who closes has waited for its operations
	case e.Op == ipc.OpReceive:
	case e.Op == ipc.OpSend && e.Len > ipc.MaxSend:
		return ipc.StatusTooLong
	case cn.inflight >= s.window:
		return ipc.StatusLimit
	case cn.refusing:
		return ipc.StatusQuota
	case cn.client.user.ops.Load() >= int64(s.limits.OpsPerUser):
		cn.refusing = cn.stops
		return ipc.StatusQuota
	}
	return ipc.StatusOK
}

// credit lets more notifications of a connection through.
func (s *Shard) credit(c *Client, e *ipc.SQE) error {
	cn := c.lookup(e.Conn)
	if cn == nil || e.Imm == 0 {
		return s.wasted(c) // it raced with the connection's end, if it is not a flood
	}
	if int(e.Imm) > cn.unreturned {
		return ipc.ErrEntry
	}
	cn.unreturned -= int(e.Imm)
	c.flight.useless = 0
	c.unpark(cn)
	return nil
}

// resume ends what an operation beyond the quota began. A client that has not seen its refusal has no reason to ask.
func (s *Shard) resume(c *Client, e *ipc.SQE) error {
	cn := c.lookup(e.Conn)
	if cn == nil || !cn.refusing {
		return s.wasted(c)
	}
	cn.refusing = false
	return nil
}

// aim chooses which thread of the client the completions of a connection wake from now on: the one that sleeps on a
// word, or for 0 the one that waits for the doorbell. That thread is woken once: earlier completions woke others.
func (s *Shard) aim(c *Client, e *ipc.SQE) error {
	cn := c.lookup(e.Conn)
	if cn == nil {
		return s.wasted(c) // as credit
	}
	cn.word, c.delivery.aims = uint8(e.Imm), true
	c.cq.Stir(cn.word)
	s.touch(c)
	return nil
}

// completed routes the end of an operation to its client. A write that failed may not have arrived: the frames of it
// that still wait must not take along, in place of what was written, what the client does with the memory from now on,
// nor those of a copy what is copied there next.
func (s *Shard) completed(ev *engine.Event) {
	if ev.Data != nil {
		s.dropReferring(ev.Data)
	}
	c := s.clients.list[ev.Token>>32]
	token := s.finished(c, ev)
	if c.rings != nil {
		s.finish(c, &ipc.CQE{Kind: ipc.CQComplete, Status: ev.Status, Conn: uint32(ev.Conn), Token: token,
			Off: ev.Value})
	}
}

// finished frees the place of what has ended, or goes on hidden, and returns the client's token.
func (s *Shard) finished(c *Client, ev *engine.Event) (token uint64) {
	slot := &c.flight.ops[uint32(ev.Token)]
	c.flight.free = append(c.flight.free, uint32(ev.Token))
	c.flight.inflight--
	if !ev.Local {
		c.user.ops.Add(-1)
		if slot.local {
			c.flight.hidden--
		}
	}
	slot.conn.inflight--
	if slot.list != nil {
		s.completedPieces(slot.list, ev.Status)
		slot.list = nil
	}
	if slot.bytes != nil {
		s.returned(c, slot.bytes)
		slot.bytes = nil
	}
	slot.conn = nil
	return slot.token
}

// late routes the end of a write that had completed when its local bytes were free. Whatever came of it, frames that
// wait must not take along what is copied next to where its copy lay.
func (s *Shard) late(ev *engine.Event) {
	s.dropReferring(ev.Data)
	c := s.clients.conns[ev.Conn].client
	c.flight.hidden--
	c.user.ops.Add(-1)
	if ev.Status != engine.OK && c.rings != nil {
		s.put(c, &ipc.CQE{Kind: ipc.CQLate, Status: ev.Status, Conn: uint32(ev.Conn), Token: ev.Token})
	}
}

// notified remembers that a connection has notifications.
func (s *Shard) notified(cn *Conn) {
	c := cn.client
	if c.rings == nil || cn.queued {
		return
	}
	cn.queued = true
	c.delivery.notify = append(c.delivery.notify, cn)
	s.deliver(c)
}

// unpark queues a connection that waited for credit, or for its end.
func (c *Client) unpark(cn *Conn) {
	if cn.parked {
		cn.parked = false
		c.delivery.notify = append(c.delivery.notify, cn)
	}
}

// dequeue takes a connection from where it waits its turn.
func (c *Client) dequeue(cn *Conn) {
	if cn.queued && !cn.parked {
		c.delivery.notify = slices.DeleteFunc(c.delivery.notify, func(o *Conn) bool { return o == cn })
	}
	cn.queued, cn.parked = false, false
}

// deliver moves notifications to the completion ring as far as credit and room go. A connection without credit is
// parked, so that an iteration looks at few connections, however many notifications a client leaves unread; without
// room nothing else is looked at. It returns how many it moved.
func (s *Shard) deliver(c *Client) (work int) {
	c.delivery.full = false
	done := 0
	for _, cn := range c.delivery.notify {
		more, err := s.deliverConn(c, cn, &work)
		if err != nil {
			s.evict(c, err.Error())
			return work + 1
		}
		if more {
			break
		}
		done++
	}
	rest := copy(c.delivery.notify, c.delivery.notify[done:])
	clear(c.delivery.notify[rest:])
	c.delivery.notify = c.delivery.notify[:rest]
	return work
}

// deliverConn reports whether there is more to deliver and no room for it.
func (s *Shard) deliverConn(c *Client, cn *Conn, work *int) (more bool, err error) {
	for {
		if cn.state == connOver && len(cn.left) == 0 {
			cn.queued = false
			s.forget(cn)
			return false, nil
		}
		if cn.unreturned >= ipc.NotifyCredit {
			cn.parked = true
			return false, nil
		}
		room, err := c.roomForNotify()
		if !room {
			c.delivery.full = true
			return true, err
		}
		n, ok := s.takeNotify(cn)
		if !ok {
			cn.queued = false
			return false, nil
		}
		cn.unreturned++
		*work++
		s.put(c, &ipc.CQE{Kind: ipc.CQNotify, Conn: uint32(cn.id), Token: uint64(n.Key), Imm: n.Imm, Len: n.Len,
			Off: n.Off})
	}
}

func (s *Shard) takeNotify(cn *Conn) (engine.Notification, bool) {
	if cn.state < connEnding {
		return s.eng.TakeNotify(cn.id)
	}
	if len(cn.left) == 0 {
		return engine.Notification{}, false
	}
	n := cn.left[0]
	cn.left = cn.left[1:]
	return n, true
}
