package op

import (
	"fmt"
	"slices"

	"multiedge/internal/abi"
	"multiedge/internal/mono"
	"multiedge/internal/seqnum"
	"multiedge/internal/wire"
	"multiedge/regmem"
)

// What arrives for connections in a session: parts of operations and their answers, acknowledgements, control.

// OnBulk takes the bulk segment of a frame, which at learns from. It reports whether the frame may count as received
// (clause 3.3).
func (e *Endpoint) OnBulk(now mono.Time, s *Session, f *wire.Frame, at *Forecast, lasting bool) bool {
	b := &f.Bulk
	c, known := e.receiver(s, b.Conn)
	if c == nil {
		return known
	}
	at.learn(f)
	if f.Shuffle != 0 {
		e.Count.Placing.FramesShuffled++
	}
	of, g := carriers[b.Kind%wire.MaxKinds], &e.segment
	g.kind, g.flags, g.lasting, g.shuffled, g.op, g.fence = of.kind, b.Flags, lasting, int(f.Shuffle),
		seqnum.Value(b.Op), seqnum.Value(b.Fence)
	g.imm, g.key, g.place, g.size, g.data, g.follows = b.Imm, regmem.Key(b.Key), b.Place, 0, f.Payload, 0
	if b.Flags&wire.SegLast == 0 {
		g.follows = uint64(b.Imm)
	}
	if of.answer {
		return c.accept(now, g)
	}
	return c.onOperation(now, g)
}

// OnSegment takes a segment of a frame's tail that is for a connection. It reports whether the frame may count as
// received (clause 3.3).
func (e *Endpoint) OnSegment(now mono.Time, s *Session, g *wire.Segment, lasting bool) bool {
	if of := carriers[g.Kind%wire.MaxKinds]; of.kind != 0 {
		c, known := e.receiver(s, g.Conn)
		if c == nil {
			return known
		}
		op := &e.segment
		op.kind, op.flags, op.lasting, op.shuffled, op.op, op.fence = of.kind, g.Flags, lasting, 0,
			seqnum.Value(g.Op), seqnum.Value(g.Fence)
		op.imm, op.key, op.place, op.size, op.data, op.follows = g.Imm, regmem.Key(g.Key), g.Place, g.Size, g.Data, 0
		if of.answer {
			return c.accept(now, op)
		}
		return c.onOperation(now, op)
	}
	switch g.Kind {
	case wire.KindOpAck:
		if c, _ := e.receiver(s, g.Conn); c != nil {
			return c.onOpAck(now, g)
		}
	case wire.KindCredit, wire.KindWant:
		c, known := e.receiver(s, g.Conn)
		switch {
		case c == nil:
			return known // credit that overtook the Accept is not lost
		case g.Kind == wire.KindCredit:
			return c.onCredit(now, g)
		default:
			c.onWant(now, uint32(g.Key))
		}
	case wire.KindStage, wire.KindCommit, wire.KindDiscard, wire.KindUnstaged:
		c, known := e.receiver(s, g.Conn)
		if c == nil {
			return known
		}
		return c.onEager(now, g)
	case wire.KindOpNak:
		if c, _ := e.receiver(s, g.Conn); c != nil && c.outstanding(seqnum.Value(g.Op)) && c.sent(seqnum.Value(g.Op)) {
			c.complete(now, seqnum.Value(g.Op), abi.Status(g.Status))
		}
	default:
		return e.onControl(now, s, g)
	}
	return true
}

// receiver returns the connection that segments addressed to number are for. It returns nil if that connection is over,
// and the segments are ignored; or if the Accept that opens it has not arrived yet: known is then false, and they must
// come again.
func (e *Endpoint) receiver(s *Session, number uint32) (c *Conn, known bool) {
	c = e.conn(ConnID(number))
	if c == nil || c.S != s || c.state == connLast || c.state == connIncoming {
		return nil, true
	}
	if c.state == connDialing {
		e.Count.Reject.RejectedNoRoom++
		return nil, false
	}
	return c, true
}

// onControl takes the segments of clause 5.
func (e *Endpoint) onControl(now mono.Time, s *Session, g *wire.Segment) bool {
	switch g.Kind {
	case wire.KindOpen:
		return e.onOpen(now, s, g)
	case wire.KindAccept:
		c := e.conn(ConnID(g.Conn))
		if c == nil || c.S != s || c.state != connDialing {
			// withdrawn, and the Close overtook the Open
			if c == nil || c.S == s && c.state == connLast && c.remote == 0 {
				return e.closeStray(s, g.From)
			}
			return true
		}
		e.dropDial(c)
		c.state, c.remote, c.send.limit = connOpen, g.From, seqnum.Value(min(g.Window, 1<<15))
		s.byRemote[c.remote] = c
		if !c.dial.ping {
			e.Count.Life.ConnectionsOpened++
		}
		e.Emit(Event{Kind: EvConnected, Conn: c.ID, Peer: s.Peer.ID, PeerName: s.Peer.Name, Data: append([]byte(nil),
			g.Data...)})
	case wire.KindRefuse:
		if c := e.conn(ConnID(g.Conn)); c != nil && c.S == s && c.state == connDialing {
			text := string(g.Data)
			if abi.Status(g.Status) == abi.StatusNoService {
				if e.cfg.NextShard(now, c) {
					return true
				}
				text = "nobody offers service \"" + c.dial.service + "\" at node \"" + s.Peer.Name + "\""
			}
			c.Finish(now, abi.Status(g.Status), text)
		}
	case wire.KindClose:
		c := e.conn(ConnID(g.Conn))
		if g.Flags&wire.CloseUnanswered != 0 {
			// it overtook the Open
			if c = s.byRemote[g.Conn]; c == nil && !slices.Contains(s.over, g.Conn) {
				s.ended(g.Conn)
			}
		}
		if c == nil || c.S != s {
			return true
		}
		if c.state == connLast {
			c.forget()
			return true
		}
		e.dropDial(c)
		if st := abi.Status(g.Status); st == OK {
			c.answersArrived(now)
			c.failOps(now, abi.StatusClosed)
			c.tellClosed(now, OK, "")
		} else { // only status 0 is an end in good order; others speak of the peer's side (clause 5.4)
			c.failOps(now, abi.StatusReset)
			c.tellClosed(now, abi.StatusReset, "at the peer: "+st.String())
		}
		c.dropReceived()
		c.state = connLast
		c.forget()
	case wire.KindAdvert, wire.KindWithdraw:
		c, known := e.receiver(s, g.Conn)
		if c == nil {
			return known
		}
		return c.onAdvert(g)
	}
	return true
}

// onOpen takes a connection request (clause 5.1).
func (e *Endpoint) onOpen(now mono.Time, s *Session, g *wire.Segment) bool {
	if g.From == 0 || s.byRemote[g.From] != nil || slices.Contains(s.over, g.From) {
		return true
	}
	if e.cfg.Crowded(s) {
		e.Count.Reject.RejectedNoRoom++
		return false // the peer asks again
	}
	c := e.newConn()
	full := c == nil
	if full {
		e.Count.Reject.RejectedNoRoom++
		if c = e.spareConn(); c == nil {
			return false // the peer asks again
		}
	}
	c.attach(s)
	c.setUnconfirmed(true)
	c.remote, c.send.limit, c.recv.window = g.From, seqnum.Value(min(g.Window, 1<<15)), e.cfg.OpWindow
	c.recv.limitSent = seqnum.Value(c.recv.window)
	c.ordered = g.Flags&wire.OpenOrdered != 0
	c.overlap = c.ordered && g.Flags&wire.OpenOverlap != 0
	c.dial.service = string(g.Name)
	s.byRemote[c.remote] = c
	if full {
		c.refuse(now, abi.StatusLimit, fmt.Sprintf("all %d connections of the node are in use", e.cfg.MaxConns))
		return true
	}
	if !e.Conns.services[c.dial.service] {
		c.refuse(now, abi.StatusNoService, "")
		return true
	}
	c.state = connIncoming
	from := uint64(0)
	if s.Inside {
		from = InsideToken(int(s.Peer.Shard), ConnID(c.remote))
	}
	e.Emit(Event{Kind: EvIncoming, Conn: c.ID, Token: from, Peer: s.Peer.ID, PeerName: s.Peer.Name,
		Service: c.dial.service,
		Data:    append([]byte(nil), g.Data...)})
	return true
}

// closeStray closes a connection that the peer believes in and we do not have (clause 3.6).
func (e *Endpoint) closeStray(s *Session, number uint32) bool {
	if e.cfg.Crowded(s) {
		return false
	}
	c := e.spareConn()
	if c == nil {
		return false
	}
	c.attach(s)
	c.setUnconfirmed(true)
	c.remote, c.state, c.status = number, connLast, abi.StatusAborted
	c.ctl = ctlClose
	c.wake()
	return true
}

// InsideToken is the Token of EvIncoming where a shard of this node asks, whose connection has that number there. It is
// not zero.
func InsideToken(shard int, id ConnID) uint64 { return uint64(shard+1)<<32 | uint64(id) }
