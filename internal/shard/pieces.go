package shard

import (
	"multiedge/internal/engine"
	"multiedge/internal/ipc"
)

// Operations whose local memory is in pieces (A6.14): entries of pieces are kept as they came, by numbers, until their
// operation comes, for the client may deregister a region in between. Then each is looked up, and the list is the
// engine's until the operation has ended.

// pieces is what a client has said of its next operation.
type pieces struct {
	list [ipc.MaxPieces - 1]ipc.Piece
	n    int
	conn uint32
}

// mostIdle is how many lists a shard keeps that nobody uses, for all its clients: 2.7 MB.
const mostIdle = 4096

// aside takes an entry that is no operation.
func (s *Shard) aside(c *Client, e *ipc.SQE) error {
	bytes, pieces := c.taken.bytes.n > 0, c.taken.pieces.n > 0
	switch {
	case e.Op == ipc.OpPieces && !bytes:
		return c.taken.pieces.add(e)
	case e.Op == ipc.OpBytes && !pieces:
		return s.addBytes(&c.taken.bytes, e)
	case bytes || pieces:
		return ipc.ErrEntry
	case e.Op == ipc.OpAim:
		return s.aim(c, e)
	case e.Op == ipc.OpResume:
		return s.resume(c, e)
	}
	return s.credit(c, e)
}

// add keeps the pieces of an entry.
func (p *pieces) add(e *ipc.SQE) error {
	fresh := e.Pieces[:e.InlineLen]
	if len(fresh) > len(p.list)-p.n || p.n > 0 && p.conn != e.Conn {
		return ipc.ErrEntry
	}
	p.n += copy(p.list[p.n:], fresh)
	p.conn = e.Conn
	return nil
}

// belongTo reports whether e is an operation that can have pieces, of the same connection.
func (p *pieces) belongTo(e *ipc.SQE) bool {
	switch e.Op {
	case ipc.OpWrite, ipc.OpRead, ipc.OpSend, ipc.OpReceive:
		return e.InlineLen == 0 && e.Conn == p.conn
	}
	return false
}

// fits reports whether e can follow the entries before it.
func (t *submissions) fits(e *ipc.SQE) bool {
	return (t.pieces.n == 0 || t.pieces.belongTo(e)) && (t.bytes.n == 0 || t.bytes.belongTo(e))
}

// takePieces makes the list of e, whose own range is the last piece.
func (s *Shard) takePieces(c *Client, e *ipc.SQE) (*engine.Pieces, ipc.Status) {
	p := &c.taken.pieces
	var list *engine.Pieces
	if n := len(s.idleLists); n > 0 {
		list, s.idleLists = s.idleLists[n-1], s.idleLists[:n-1]
	} else {
		list = new(engine.Pieces)
	}
	for i := range p.list[:p.n] {
		b, r, status := c.regions.local(p.list[i].Region, p.list[i].Off, uint64(p.list[i].Len))
		if status == ipc.StatusOK && r != nil && carried(r) {
			status = ipc.StatusLocal
		}
		if status != ipc.StatusOK {
			s.keepList(list)
			return nil, status
		}
		list.Add(b, r, p.list[i].Off)
	}
	b, r, status := c.regions.local(e.Region, e.LocalOff, e.Len)
	if status == ipc.StatusOK && r != nil && carried(r) {
		status = ipc.StatusLocal // couriers carry one range
	}
	if status != ipc.StatusOK {
		s.keepList(list)
		return nil, status
	}
	list.Add(b, r, e.LocalOff)
	return list, ipc.StatusOK
}

// keepList keeps a list that nobody uses any more, if there is one.
func (s *Shard) keepList(list *engine.Pieces) {
	if list == nil {
		return
	}
	list.Reset()
	if len(s.idleLists) < mostIdle {
		s.idleLists = append(s.idleLists, list)
	}
}

// completedPieces takes the list of an operation that has ended; see completed.
func (s *Shard) completedPieces(list *engine.Pieces, st engine.Status) {
	if st != engine.OK {
		list.All(s.dropReferring)
	}
	s.keepList(list)
}
