package engine

import (
	"multiedge/internal/frame"
	"multiedge/internal/mono"
	"multiedge/internal/seqnum"
	"multiedge/internal/wire"
	"multiedge/regmem"
	"multiedge/remap"
)

// Receiving in place. A driver that can scatter asks where the payloads of the next frames will belong and receives
// them there; a forecast that was wrong costs a copy, as a driver that cannot scatter always does. Forecast places are
// bytes of operations in progress that have not been received, so a wrong payload in one of them is overwritten before
// anybody is told of the range.
//
// On a link that announced H (clause 2.6) frames arrive whole from a page boundary on: slots are whole pages of the
// Stage's pool, and the headers are shuffled out of them (paper 2.3.2). Without a Stage nothing is forecast there,
// since headers have no business in a region: payloads are copied from the driver's pages.

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
	p.kind, p.session, p.conn, p.op, p.key, p.place, p.n, p.stride, p.follows = b.Kind, f.Session, b.Conn, b.Op, b.Key,
		b.Place, n, stride, 0
	if b.Flags&wire.SegLast == 0 && n > 0 { // an empty payload leads nowhere: slots are never empty
		p.follows = uint64(b.Imm)
	}
}

// Forecast fills slots with the places where the bulk payloads of the next frames on link i are expected, each once,
// and returns how many. They are valid until any other method is called but Handle, to which
// the frames go that were received there.
func (e *Endpoint) Forecast(i int, slots [][]byte) (n int) {
	p := &e.links[i].forecast
	s := e.sessions.byNumber[p.session]
	// a sealed frame is opened into scratch first
	shuffles := e.links[i].Shuffle != 0
	if p.follows == 0 || s == nil || s.state != sessionOpen || s.trust.opener != nil || s.inside ||
		shuffles && e.cfg.Stage == nil {
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
		if slot == nil || shuffles && !remap.WholePages(slot, pageSize) {
			break
		}
		slots[n] = c.slotFor(p, slot, at, end)
		n++
	}
	return n
}

// vacant returns the memory at [at, at+n) of the forecast's operation if all of it may be received into now.
func (c *conn) vacant(p *forecast, at, n uint64) []byte {
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

// joinStray joins the frames of a batch from the first on that does not belong in the slot it was received into, before
// any of the batch is handled: what the tail of one frame, or a segment it releases, writes may lie where another
// waits.
func (e *Endpoint) joinStray(i int, frames []Arrival) {
	k := 0
	for k < len(frames) && e.fits(i, k, frames[k].Head, frames[k].Body) {
		k++
	}
	joinAll(frames[k:])
}

func joinAll(frames []Arrival) {
	for k := range frames {
		frames[k].Join()
	}
}

// fits reports whether the k-th frame of a batch belongs in slot k of the latest Forecast, as far as its headers, not
// yet verified, say. It changes nothing.
func (e *Endpoint) fits(i, k int, head, body []byte) bool {
	if e.links[i].Shuffle != 0 {
		body = head // the pages are as many as the payload's
	} else if len(head) != wire.HeadLen {
		return false
	}
	if len(head) < wire.HeadLen || len(body) == 0 {
		return false
	}
	p := &e.links[i].forecast
	return wire.PeekBulk(head[frame.HeaderLen:], &e.scratch.peek) && e.scratch.peek.Kind == p.kind &&
		e.scratch.peek.Op == p.op &&
		e.scratch.peek.Conn == p.conn && e.scratch.peek.Key == p.key &&
		e.scratch.peek.Place == p.place+uint64(k+1)*p.stride && int(e.scratch.peek.Len) == len(body)
}

// handleParts takes a frame received into a slot of Forecast. It reports false, and nothing has happened, if the
// payload does not belong where it is, although it fits.
func (e *Endpoint) handleParts(now mono.Time, i int, a *frame.Rx) bool {
	f, head, body, rest := &e.scratch.frame, a.Head, a.Body, a.Rest
	H := int(e.links[i].Shuffle)
	if H != 0 {
		if H != wire.HeadLen || len(head) < H || len(rest) < H {
			return false
		}
		body = head
		if f.DecodeParts(head[frame.HeaderLen:H], body, rest[H:]) != nil || int(f.Shuffle) != H {
			return false
		}
	} else if len(head) != wire.HeadLen || len(body) == 0 || f.DecodeParts(head[frame.HeaderLen:], body, rest) != nil ||
		f.Shuffle != 0 {
		return false
	}
	s := e.sessions.byNumber[f.Session]
	if f.Type != wire.TypeData || s == nil || s.state != sessionOpen || s.trust.opener != nil || s.inside {
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
	if H != 0 && !e.unshuffle(f, rest) {
		return false
	}
	e.received(i, a.Len())
	s.onData(now, i, f, true)
	return true
}

// unshuffle puts the first payload bytes, with which rest begins, over the headers at the start of f's pages, unless
// the payload is damaged. From then on f is a frame that never was shuffled.
func (e *Endpoint) unshuffle(f *wire.Frame, rest []byte) bool {
	H := int(f.Shuffle)
	if f.Flags&wire.FlagPayloadSum != 0 && wire.Sum(wire.Sum(0, f.Payload[H:]), rest[:H]) != f.Bulk.Sum {
		return false
	}
	remap.Unshuffle(f.Payload, rest, H)
	f.Flags &^= wire.FlagPayloadSum | wire.FlagShuffled
	f.Shuffle = 0
	e.Count.FramesShuffled++
	return true
}
