package sim

import (
	"encoding/binary"
	"math"
	"time"

	"multiedge/internal/engine"
)

// event follows what an engine says.
func (w *swarm) event(n *Node, ev *engine.Event) {
	e := w.ends[n.Index][ev.Conn]
	switch ev.Kind {
	case engine.EvIncoming:
		w.incoming(n, ev)
		return
	case engine.EvPeerUp:
		w.peerUp(n, ev)
		return
	case engine.EvComplete, engine.EvLate, engine.EvNotify, engine.EvReceived, engine.EvConnected, engine.EvClosed:
	default:
		return
	}
	if ev.Kind == engine.EvReceived && ev.Conn == 0 {
		w.returned(n, ev)
		return
	}
	if e != nil && e.state == endLate && (ev.Kind == engine.EvConnected || ev.Kind == engine.EvClosed) {
		return
	}
	if e == nil || e.state == endOver {
		w.world.fault("node%d: event %d of connection %x, which is over or never was", n.Index, ev.Kind, ev.Conn)
		return
	}
	switch ev.Kind {
	case engine.EvComplete, engine.EvLate:
		w.completed(e, ev)
	case engine.EvReceived:
		w.received(e, ev)
	case engine.EvNotify:
		if e.lazy > 0 {
			w.world.After(e.lazy, func() { w.take(e) })
		} else {
			w.take(e)
		}
	case engine.EvConnected:
		if e.state != endDialing && e.state != endIncoming || e.pairing.answer > acceptLater {
			w.world.fault("%v: connected in state %d", e, e.state)
		}
		e.state = endOpen
		if e.shares != nil {
			w.joinSoon(e)
		} else if e.posted == 0 {
			w.postBuffers(e)
		}
	case engine.EvClosed:
		w.closed(e, ev)
		return
	}
	w.post(e)
}

// incoming answers a request as the pairing's dice say.
func (w *swarm) incoming(n *Node, ev *engine.Event) {
	if len(ev.Data) != 4 || int(binary.BigEndian.Uint32(ev.Data)) >= len(w.pairs) {
		w.world.fault("node%d: a request with private data % x", n.Index, ev.Data)
		return
	}
	p := w.pairs[binary.BigEndian.Uint32(ev.Data)]
	e := p.end[1]
	if e.state == endOver && e.node == n && !w.final {
		// An Open that was repeated, and whose first copy was only late: nobody is there to answer to, so accepting it
		// must come to an end by itself. The same when this end went down with its session while the request waited:
		// the request moves to the next session, and this end will not have it.
		w.report.Late++
		w.ends[n.Index][ev.Conn] = &end{pairing: p, node: n, conn: ev.Conn, state: endLate}
		if n.ended(ev.Conn) {
			return
		}
		if p.end[0].state == endDialing && p.dropped() != nil {
			n.E.Refuse(w.world.Now, ev.Conn, "late")
			return
		}
		if err := n.E.Accept(w.world.Now, ev.Conn, nil); err != nil {
			w.world.fault("%v: %w", e, err)
		}
		return
	}
	if e.state != endNone || e.node != n || p.answer == nobody {
		w.world.fault("%v: requested in state %d", e, e.state)
		return
	}
	w.begin(e, ev.Conn, endIncoming)
	if n.ended(ev.Conn) {
		return
	}
	w.postEarly(e)
	accept := func() {
		if e.state == endIncoming {
			if err := n.E.Accept(w.world.Now, e.conn, nil); err != nil && !e.closing {
				w.world.fault("%v: %w", e, err)
			}
		}
	}
	switch p.answer {
	case acceptNow:
		accept()
	case acceptLater:
		w.world.After(time.Duration(w.rng.IntN(20_000_000)), accept)
	case refuse:
		n.E.Refuse(w.world.Now, ev.Conn, "no")
	case abandon:
		n.E.Abort(w.world.Now, ev.Conn, engine.StatusAborted)
	}
	if p.answer == refuse || p.answer == abandon { // without an EvClosed
		n.Grants.RevokeOwner(uint64(ev.Conn), math.MaxInt)
		w.over(e)
	}
}

// peerUp checks that nothing of the peer's earlier epochs is left when a session with its new one opens.
func (w *swarm) peerUp(n *Node, ev *engine.Event) {
	for _, p := range w.pairs {
		for _, e := range p.end {
			if e.node == n && e.other.node.ID() == ev.Peer && e.state == endOpen && e.other.killed {
				w.world.fault("%v: still open when a session with the restarted peer began", e)
			}
		}
	}
}

// take takes all notifications of an end.
func (w *swarm) take(e *end) {
	if e.state != endOpen || e.node.Down || e.boot != e.node.boot {
		return
	}
	for {
		note, ok := e.node.E.TakeNotify(e.conn)
		if !ok {
			return
		}
		w.notified(e, note)
	}
}

func (w *swarm) notified(e *end, note engine.Notification) {
	i, ops := int(note.Imm&0xffff), e.other.flow.ops
	if i >= len(ops) || ops[i].op.Imm != note.Imm || int(note.Len) != ops[i].size && ops[i].op.Kind == engine.OpWrite ||
		!ops[i].submitted || ops[i].bad ||
		ops[i].op.Flags&engine.Notify == 0 || ops[i].notified > 0 {
		w.world.fault("%v: notification %+v delivered twice or never asked for", e, note)
		return
	}
	ops[i].notified++
}

// closed checks how a connection ended, and that all its operations did.
func (w *swarm) closed(e *end, ev *engine.Event) {
	for _, note := range ev.Notes {
		w.notified(e, note)
	}
	if e.flow.open != 0 {
		w.world.fault("%v: closed with %d operations outstanding", e, e.flow.open)
	}
	if n := e.mail.region.InFlight; e.posted != e.got || n != 0 {
		w.world.fault("%v: closed with %d of %d buffers given back, %d in flight", e, e.got, e.posted, n)
	}
	if err := e.judgeEnd(w.world.Now, ev.Status); err != nil {
		w.world.fault("%v: ended with %q (%s) in state %d, answer %d: %w", e, ev.Status, ev.Text, e.state,
			e.pairing.answer,
			err)
	}
	w.over(e)
	if ch := e.pairing.channel; e == e.pairing.end[0] && ch.tries > 0 {
		ch.tries--
		w.world.After(time.Duration(w.rng.Int64N(int64(w.mix.duration)/4+1)), func() {
			if !w.healed && !ch.from.Down {
				w.dial(ch, anyOperations, w.dialTime())
			}
		})
	}
}

// over makes an end's memory its owner's again.
func (w *swarm) over(e *end) {
	if e.state == endDialing || e.state == endOpen || e.closing || e.aborted {
		e.pairing.ended = true
	}
	e.state = endOver
	for _, a := range append(e.exports, e.mail) {
		a.end()
	}
	e.leavePool(w)
}
