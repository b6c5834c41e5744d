package sim

import (
	"time"

	"multiedge/internal/engine"
)

// inbox is the buffers that an end posts for the messages of the other, one for each in their order.
type inbox struct {
	awaits []*operation // the other end's sends
	mail   *area        // which the buffers are in
	posted int          // of awaits: those whose buffers were posted
	got    int          // and came back
}

// postBuffers posts buffers, a few at a time, until there is one for every message: messages have to wait for some.
func (w *swarm) postBuffers(e *end) {
	if e.state != endOpen || e.node.Down || e.boot != e.node.boot {
		return
	}
	for n := 1 + w.mail.IntN(8); e.posted < len(e.awaits) && n > 0; n-- {
		o := e.awaits[e.posted]
		b := o.far.bytes()
		if o.bad {
			b = b[:len(b)-1]
		}
		r := engine.Receive{Token: uint64(e.posted), Local: b, Region: e.mail.region}
		if !e.node.E.PostReceive(w.Now, e.conn, &r) {
			return // it is being closed
		}
		e.posted++
	}
	if e.posted < len(e.awaits) {
		w.After(time.Duration(w.mail.IntN(20_000_000)), func() { w.postBuffers(e) })
	}
}

// received checks a buffer that came back: in the order of sends, whole and once (clauses 14.2 and 14.3).
func (w *swarm) received(e *end, ev *engine.Event) {
	if ev.Token != uint64(e.got) || e.got >= e.posted {
		w.fault("%v: buffer %d came back, want %d of %d", e, ev.Token, e.got, e.posted)
		return
	}
	o := e.awaits[e.got]
	e.got++
	m := ev.Msg
	switch ev.Status {
	case engine.OK:
		if o.bad || int(m.Len) != o.size || !o.far.has() || m.HasImm != (o.Flags&engine.Notify != 0) ||
			m.HasImm && m.Imm != o.Imm || o.notified > 0 {
			w.fault("%v: message %d of %d bytes (bad %v) arrived as %+v", e, ev.Token, o.size, o.bad, m)
		}
		o.notified++
	case engine.StatusTooLong:
		b := o.far.bytes()
		if !o.bad || b[len(b)-1] != untouched {
			w.fault("%v: message %d of %d bytes is too long (bad %v), or was put beyond its buffer", e, ev.Token,
				o.size, o.bad)
		}
	default:
		return // the connection ends
	}
	o.far.fill(reused)
}
