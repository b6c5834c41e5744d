package op

import (
	"multiedge/internal/engine/count"
	"multiedge/internal/seqnum"
	"multiedge/remap"
)

// A mover says where the payload of a frame goes, and moves it there (paper 2.3). There is one for each way:
//
//	copying     the endpoint copies at once. A payload that the driver has received in its place stays where it is.
//	placing     a Placer copies, by the time the operation is applied or complete
//	exchanging  an Exchanger collects runs of pages, and exchanges them for those of the region at the operation's end
//
// Nobody looks at the memory of an operation before it is whole, so a payload may be moved late: settle is called
// before an operation is applied, complete or refused, hence before anything behind a fence.
type mover interface {
	// slot returns where a driver should receive the bytes whose place is dst. The operation has so many bytes behind
	// in place right before them, and ahead from them on to its end.
	slot(op remap.Op, dst []byte, behind, ahead uint64) []byte
	// lies reports whether body is where slot had the bytes whose place is dst received.
	lies(op remap.Op, dst, body []byte) bool
	// move takes data, the payload of g or a part of it, whose place is dst.
	move(c *Conn, g *segment, dst, data []byte)
	// settle returns when everything that was moved of an operation is in its place.
	settle(op remap.Op)
	// settleConn does so for all operations of a connection, which ends.
	settleConn(id ConnID)
}

// movers are the endpoint's: for bytes that are the endpoint's for the call alone, since they were opened into scratch
// memory, and for bytes that stay as they are until Placed.
type movers struct {
	atOnce, later mover
	late          bool // one of them moves late: there is something to settle
}

// A Placer copies payloads into place while the endpoint goes on with the frames behind them: the part of receiving
// that a second core can do for one connection, since the bookkeeping of a session belongs to one thread. The
// endpoint's owner waits (Placed) before acting on events, sending, or giving received frames back to their driver.
type Placer interface {
	// Place copies src to dst, now or until Wait. Both belong to the Placer meanwhile.
	Place(dst, src []byte)
	// Wait returns when everything placed is in place.
	Wait()
}

// Placed returns when every payload of the frames handled so far is in place. Without Config.Placer it always is.
func (e *Endpoint) Placed() {
	if p := e.cfg.Placer; p != nil {
		p.Wait()
	}
}

// newMovers makes the movers that the configuration asks for.
func (e *Endpoint) newMovers() (m movers) {
	m.late = e.cfg.Placer != nil || e.cfg.Exchanger != nil
	m.atOnce = copying{e.Count}
	if m.later = m.atOnce; e.cfg.Placer != nil {
		m.later = &placing{copying{e.Count}, e.cfg.Placer}
	}
	if st := e.cfg.Exchanger; st != nil {
		m.atOnce, m.later = &exchanging{m.atOnce, st, e.Count}, &exchanging{m.later, st, e.Count}
	}
	return m
}

type copying struct{ count *count.Counters }

func (m copying) slot(_ remap.Op, dst []byte, _, _ uint64) []byte { return dst }
func (m copying) lies(_ remap.Op, dst, body []byte) bool          { return &dst[0] == &body[0] }
func (m copying) settle(remap.Op)                                 {}
func (m copying) settleConn(ConnID)                               {}

func (m copying) move(_ *Conn, _ *segment, dst, data []byte) {
	if &dst[0] == &data[0] {
		m.count.Placing.FramesInPlace++
		return
	}
	copy(dst, data)
}

type placing struct {
	copying
	placer Placer
}

func (m *placing) settle(remap.Op) { m.placer.Wait() }

func (m *placing) move(_ *Conn, _ *segment, dst, data []byte) {
	if &dst[0] == &data[0] {
		m.count.Placing.FramesInPlace++
		return
	}
	m.placer.Place(dst, data)
}

// exchanging leaves to next what the Exchanger has no part in.
type exchanging struct {
	next      mover
	exchanger *remap.Exchanger
	count     *count.Counters
}

func (m *exchanging) slot(op remap.Op, dst []byte, behind, ahead uint64) []byte {
	return m.exchanger.Slot(op, dst, behind, ahead)
}

func (m *exchanging) lies(op remap.Op, dst, body []byte) bool {
	return m.next.lies(op, dst, body) || m.exchanger.Lies(op, dst, body)
}

func (m *exchanging) move(c *Conn, g *segment, dst, data []byte) {
	handled := m.exchanger.Deliver(c.opName(g.op, kinds[g.kind].fills), dst, data)
	m.tally()
	if !handled {
		m.next.move(c, g, dst, data)
	}
}

func (m *exchanging) settle(op remap.Op) {
	m.next.settle(op)
	m.exchanger.Settle(op)
	m.tally()
}

func (m *exchanging) settleConn(id ConnID) {
	m.exchanger.SettleConn(uint32(id))
	m.tally()
}

func (m *exchanging) tally() {
	n, c := &m.exchanger.Counts, m.count
	c.Placing.FramesExchanged, c.Placing.Exchanges, c.Placing.BytesExchanged, c.Placing.BytesUnexchanged = n.Frames,
		n.Exchanges, n.Bytes, n.Copied
}

// opName names one of the peer's operations, or a read of ours, for a mover.
func (c *Conn) opName(op seqnum.Value, read bool) remap.Op {
	return remap.Op{Conn: uint32(c.ID), Seq: uint32(op), Read: read}
}

// deliver has the payload of a segment moved to its place. whole says that it is all of its operation, whose end would
// wait for it.
func (c *Conn) deliver(dst []byte, g *segment, whole bool) {
	e := c.e
	by := e.movers.atOnce
	if g.lasting && !whole {
		by = e.movers.later
	}
	e.Count.Traffic.PayloadReceived += uint64(len(g.data))
	if e.landed(g) {
		return
	}
	rest := g.data
	if g.shuffled > 0 {
		var first []byte
		if first, rest = g.inOrder(); len(first) > 0 {
			by.move(c, g, dst[:len(first)], first)
			dst = dst[len(first):]
		}
	}
	by.move(c, g, dst, rest)
}

// inOrder returns the payload in two pieces: of a shuffled one the first bytes stand behind the others (clause 2.6). Of
// any other first is empty.
func (g *segment) inOrder() (first, rest []byte) {
	n := len(g.data) - g.shuffled
	if g.shuffled == 0 || n <= 0 {
		return nil, g.data
	}
	return g.data[n:], g.data[:n]
}

// settle puts everything received of an operation in its place, before anybody is told that it has ended.
func (c *Conn) settle(op seqnum.Value, read bool) {
	if c.e.movers.late {
		c.e.movers.later.settle(c.opName(op, read))
	}
}
