package op

import (
	"multiedge/internal/engine/build"
	"multiedge/internal/engine/op/span"
	"multiedge/internal/seqnum"
	"multiedge/internal/wire"
	"multiedge/regmem"
	"multiedge/remap"
)

// Where payloads that have not arrived yet will belong, for a driver that can scatter.

// Forecast is what one link learned from its latest bulk frame: its operation, and where it led.
type Forecast struct {
	kind    wire.Kind
	session uint32
	conn    uint32
	op      uint32
	key     uint64
	place   uint64 // of the latest payload
	n       uint64 // its length
	follows uint64 // bytes of the operation behind it
	stride  uint64 // from one payload of this link to the next: more than n when the operation is striped over links
}

// learn takes a bulk frame that arrived.
func (p *Forecast) learn(f *wire.Frame) {
	b := &f.Bulk
	n := uint64(b.Len)
	stride := n
	if p.session == f.Session && p.conn == b.Conn && p.op == b.Op && p.kind == b.Kind && b.Place > p.place {
		stride = max(n, b.Place-p.place)
	}
	p.kind, p.session, p.conn, p.op, p.key, p.place, p.n, p.stride, p.follows = b.Kind, f.Session, b.Conn, b.Op, b.Key,
		b.Place, n, stride, 0
	if b.Flags&wire.SegLast == 0 && n > 0 { // an empty payload leads nowhere: slots are never empty
		p.follows = uint64(b.Imm)
	}
}

// learnRun takes the frames of a run, which follow one that it learned from.
func (p *Forecast) learnRun(r *Run) {
	p.n, p.stride = r.n[1], max(r.n[0], r.n[1])
	p.place = r.g.place - p.n
	p.follows -= r.g.place - r.lo
}

// Slots fills some with the places where the bulk payloads of the next frames are expected, each once, and returns how
// many. whole says that they are to be whole pages.
func (e *Endpoint) Slots(s *Session, p *Forecast, whole bool, some [][]byte) (n int) {
	c, _ := e.receiver(s, p.conn)
	if c == nil {
		return 0
	}
	e.Placed() // a late copy must not end where a frame that was forecast wrongly waits to be joined
	if e.cfg.Exchanger != nil {
		e.cfg.Exchanger.Round()
	}
	end := p.place + p.n + p.follows
	for at := p.place + p.stride; n < len(some) && at < end; at += p.stride {
		slot := c.vacant(p, at, min(p.n, end-at))
		if slot == nil || whole && !remap.WholePages(slot, build.PageSize) {
			break
		}
		some[n] = c.slotFor(p, slot, at, end)
		n++
	}
	return n
}

// Leads reports whether anything is expected of the session of that number, which it returns.
func (p *Forecast) Leads() (session uint32, ok bool) { return p.session, p.follows != 0 }

// Takes reports whether a frame with that bulk header and payload length belongs in the k-th of the slots.
func (p *Forecast) Takes(b *wire.Bulk, k, n int) bool {
	return b.Kind == p.kind && b.Op == p.op && b.Conn == p.conn && b.Key == p.key &&
		b.Place == p.place+uint64(k+1)*p.stride && int(b.Len) == n
}

// InPlace reports whether body, the payload of a frame, was received where it belongs.
func (e *Endpoint) InPlace(s *Session, b *wire.Bulk, body []byte) bool {
	c, _ := e.receiver(s, b.Conn)
	if c == nil {
		return false
	}
	p := Forecast{kind: b.Kind, op: b.Op, key: b.Key}
	slot := c.vacant(&p, b.Place, uint64(b.Len))
	return slot != nil && c.lies(&p, slot, body)
}

// vacant returns the memory at [at, at+n) of the forecast's operation if all of it may be received into now.
func (c *Conn) vacant(p *Forecast, at, n uint64) []byte {
	op := seqnum.Value(p.op)
	if of := carriers[p.kind%wire.MaxKinds]; of.answer {
		if !c.outstanding(op) {
			return nil
		}
		o := c.sop(op)
		if o.op.Region != nil && o.op.Region.Back != nil {
			return nil // what is not resident would have the driver wait for it
		}
		if o.op.Kind != of.kind || at > o.n || n > o.n-at || o.got.Touches(at, at+n) || o.op.Pieces != nil {
			return nil
		}
		return o.op.Local[at : at+n]
	}
	if !op.InWindow(c.recv.base, c.recv.base.Distance(c.recv.top)) {
		return nil
	}
	o := c.rop(op)
	if o.state != ropPartial || o.got.Touches(at, at+n) {
		return nil
	}
	if o.kind == OpSend {
		return c.msgs.vacant(o, at, n)
	}
	dst, err := c.resolve(regmem.Key(p.key), regmem.RemoteWrite, at, n)
	if err != nil || c.e.cfg.Grants.Backed() {
		return nil
	}
	if r, _ := c.redirectAt(regmem.Key(p.key), at, at+n); r != nil {
		return nil
	}
	return dst
}

// slotFor returns where to receive the payload whose place is dst, at at of the forecast's operation, which goes on to
// end.
func (c *Conn) slotFor(p *Forecast, dst []byte, at, end uint64) []byte {
	op, read := seqnum.Value(p.op), carriers[p.kind%wire.MaxKinds].answer
	var got *span.Set
	if read {
		got = &c.sop(op).got
	} else {
		got = &c.rop(op).got
	}
	return c.e.movers.later.slot(c.opName(op, read), dst, got.Before(at), end-at)
}

// lies reports whether body is where slotFor had the payload whose place is dst received.
func (c *Conn) lies(p *Forecast, dst, body []byte) bool {
	return c.e.movers.later.lies(c.opName(seqnum.Value(p.op), carriers[p.kind%wire.MaxKinds].answer), dst, body)
}
