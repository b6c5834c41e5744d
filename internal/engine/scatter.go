package engine

import (
	"multiedge/internal/mono"
	"multiedge/internal/seqnum"
	"multiedge/internal/wire"
	"multiedge/regmem"
)

// Receiving in place. A driver that can scatter asks where the payloads of the next frames will belong and receives them there; a forecast
// that was wrong costs a copy, as a driver that cannot scatter always does. Forecast places are bytes of operations in progress that have not
// been received, so a wrong payload in one of them is overwritten before anybody is told of the range.

// forecast is what one link learned from its latest bulk frame: its operation, and where it led.
type forecast struct {
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
func (p *forecast) learn(f *wire.Frame) {
	b := &f.Bulk
	n := uint64(b.Len)
	stride := n
	if p.session == f.Session && p.conn == b.Conn && p.op == b.Op && p.kind == b.Kind && b.Place > p.place {
		stride = max(n, b.Place-p.place)
	}
	p.kind, p.session, p.conn, p.op, p.key, p.place, p.n, p.stride, p.follows = b.Kind, f.Session, b.Conn, b.Op, b.Key, b.Place, n, stride, 0
	if b.Flags&wire.SegLast == 0 && n > 0 { // an empty payload leads nowhere: slots are never empty
		p.follows = uint64(b.Imm)
	}
}

// Forecast fills slots with the places where the bulk payloads of the next frames on link i are expected, each once, and returns how many. They are valid
// until any other method is called but HandleParts and HandleFrame. Frames received there go to HandleParts.
func (e *Endpoint) Forecast(i int, slots [][]byte) (n int) {
	p := &e.links[i].forecast
	s := e.byNumber[p.session]
	if p.follows == 0 || s == nil || s.state != sessionOpen || s.opener != nil { // a sealed frame is opened into scratch first
		return 0
	}
	c, _ := s.receiver(p.conn)
	if c == nil {
		return 0
	}
	e.Placed() // a late copy must not end where a frame that was forecast wrongly waits to be joined
	if e.cfg.Stage != nil {
		e.cfg.Stage.Round()
	}
	end := p.place + p.n + p.follows
	for at := p.place + p.stride; n < len(slots) && at < end; at += p.stride {
		slot := c.vacant(p, at, min(p.n, end-at))
		if slot == nil {
			break
		}
		if e.cfg.Stage != nil {
			slot = c.slotFor(p, slot, at, end)
		}
		slots[n] = slot
		n++
	}
	return n
}

// vacant returns the memory at [at, at+n) of the forecast's operation if all of it may be received into now.
func (c *conn) vacant(p *forecast, at, n uint64) []byte {
	op := seqnum.Value(p.op)
	if p.kind == wire.KindReadData {
		if !c.outstanding(op) {
			return nil
		}
		o := c.sop(op)
		if o.Kind != OpRead || at > o.n || n > o.n-at || o.got.touches(at, at+n) {
			return nil
		}
		return o.Local[at : at+n]
	}
	if !op.InWindow(c.rcvBase, c.rcvBase.Distance(c.rcvTop)) {
		return nil
	}
	o := c.rop(op)
	if o.state != ropPartial || o.got.touches(at, at+n) {
		return nil
	}
	dst, _, err := c.e.cfg.Grants.Check(regmem.Key(p.key), grantOwner(c.id), regmem.RemoteWrite, at, n)
	if err != nil {
		return nil
	}
	return dst
}

// Fits reports whether the k-th frame of a batch received into the slots of the latest Forecast belongs in slot k, as far as its headers, not yet
// verified, say. It changes nothing. Frames from the first on that does not fit are joined before any frame of the batch is handled: what
// the tail of one frame, or a segment it releases, writes may lie where another waits.
func (e *Endpoint) Fits(i, k int, head, body []byte) bool {
	if len(head) != wire.HeadLen || len(body) == 0 {
		return false
	}
	p := &e.links[i].forecast
	return wire.PeekBulk(head[wire.EthLen:], &e.peek) && e.peek.Kind == p.kind && e.peek.Op == p.op && e.peek.Conn == p.conn && e.peek.Key == p.key &&
		e.peek.Place == p.place+uint64(k+1)*p.stride && int(e.peek.Len) == len(body)
}

// HandleParts takes a frame received into a forecast slot: head holds its first wire.HeadLen bytes, body what landed in the slot, rest what followed. It
// reports false, and nothing has happened, if the payload does not belong where it is, although Fits said so: the caller then joins the pieces of
// this frame and of all later ones of the same batch and gives them to HandleFrame.
func (e *Endpoint) HandleParts(now mono.Time, i int, head, body, rest []byte) bool {
	f := &e.frame
	if len(head) != wire.HeadLen || len(body) == 0 || f.DecodeParts(head[wire.EthLen:], body, rest) != nil {
		return false
	}
	s := e.byNumber[f.Session]
	if f.Type != wire.TypeData || f.Flags&wire.FlagShuffled != 0 || s == nil || s.state != sessionOpen || s.opener != nil {
		return false
	}
	c, _ := s.receiver(f.Bulk.Conn)
	if c == nil {
		return false
	}
	b := &f.Bulk
	p := forecast{kind: b.Kind, op: b.Op, key: b.Key}
	if slot := c.vacant(&p, b.Place, uint64(b.Len)); slot == nil || !c.lies(&p, slot, body) {
		return false
	}
	e.received(i, len(head)+len(body)+len(rest))
	e.lasting = true
	s.onData(now, i, f)
	return true
}
