package engine

import (
	"multiedge/internal/seqnum"
	"multiedge/internal/wire"
	"multiedge/remap"
)

// Where copies are made or spared (paper 2.3): the sender's, which only a configuration for measuring makes, and the receiver's, which an exchange of
// pages can replace. With a Stage, a payload is in place when the Stage has it; it is in the region when its operation is settled.

// stageCopy puts the payload of a finished frame into the batch's buffer, between head and tail, as if it had to be sent from there.
func (w *builder) stageCopy(f *TxFrame) {
	n := len(f.Bulk)
	copy(w.buf[wire.HeadLen+n:], f.Tail)
	copy(w.buf[wire.HeadLen:], f.Bulk)
	f.Bulk = w.buf[wire.HeadLen : wire.HeadLen+n]
	f.Tail = w.buf[wire.HeadLen+n : wire.HeadLen+n+len(f.Tail)]
	w.tail = f.Tail[len(f.Tail)-len(w.tail):]
}

// opName names one of the peer's operations, or a read of ours, for the Stage.
func (c *conn) opName(op seqnum.Value, read bool) remap.Op {
	return remap.Op{Conn: uint32(c.id), Seq: uint32(op), Read: read}
}

// slotFor returns where to receive the payload whose place is slot, at at of the forecast's operation, which goes on to end.
func (c *conn) slotFor(p *forecast, slot []byte, at, end uint64) []byte {
	op, read := seqnum.Value(p.op), p.kind == wire.KindReadData
	var got *ranges
	if read {
		got = &c.sop(op).got
	} else {
		got = &c.rop(op).got
	}
	return c.e.cfg.Stage.Slot(c.opName(op, read), slot, got.before(at), end-at)
}

// before returns how many bytes right before at are in the set.
func (r *ranges) before(at uint64) uint64 {
	if i := r.find(at); i < len(r.spans) && r.spans[i].lo < at {
		return at - r.spans[i].lo
	}
	return 0
}

// lies reports whether body is where the payload whose place is slot was to be received: there, or where the Stage wants it.
func (c *conn) lies(p *forecast, slot, body []byte) bool {
	if &slot[0] == &body[0] {
		return true
	}
	st := c.e.cfg.Stage
	return st != nil && st.Lies(c.opName(seqnum.Value(p.op), p.kind == wire.KindReadData), slot, body)
}

// deliverStaged gives a payload to the Stage, if that has a part in it.
func (e *Endpoint) deliverStaged(op remap.Op, dst, data []byte, shuffled int) bool {
	handled, _ := e.cfg.Stage.Deliver(op, dst, data, shuffled)
	e.countStaged()
	return handled
}

// settle puts everything received of an operation in its place, before anybody is told that it has ended.
func (c *conn) settle(op seqnum.Value, read bool) {
	if st := c.e.cfg.Stage; st != nil {
		st.Settle(c.opName(op, read))
		c.e.countStaged()
	}
}

// settleAll does so for a connection that ends.
func (c *conn) settleAll() {
	if st := c.e.cfg.Stage; st != nil {
		st.SettleConn(uint32(c.id))
		c.e.countStaged()
	}
}

func (e *Endpoint) countStaged() {
	n := &e.cfg.Stage.Counts
	e.Count.FramesExchanged, e.Count.Exchanges, e.Count.BytesExchanged, e.Count.BytesUnexchanged = n.Frames, n.Exchanges, n.Bytes, n.Copied
}
