package shard

import "multiedge/internal/ipc"

// Operations whose bytes came with them and are more than fit into their entry (A6.19): those of the entries before it
// are copied together, and with its own they are the engine's local memory until its completion. Each such operation
// counts as inlineCost more for limits.ops_per_user until then, since its memory is the daemon's.

type inlineBytes [ipc.MaxBytes]byte

const (
	inlineCost = ipc.MaxBytes / 256
	// mostIdleBytes is how many of them a shard keeps that nobody uses, for all its clients: 4 MiB.
	mostIdleBytes = 4096
)

// inline is what a client has said of the bytes of its next operation.
type inline struct {
	bytes *inlineBytes
	n     int
	conn  uint32
}

// addBytes keeps the bytes of an entry.
func (s *Shard) addBytes(b *inline, e *ipc.SQE) error {
	fresh := e.Inline[:e.InlineLen]
	if len(fresh) >= ipc.MaxBytes-b.n || b.n > 0 && b.conn != e.Conn { // the operation has one at least
		return ipc.ErrEntry
	}
	if b.bytes == nil {
		if n := len(s.idleBytes); n > 0 {
			b.bytes, s.idleBytes = s.idleBytes[n-1], s.idleBytes[:n-1]
		} else {
			b.bytes = new(inlineBytes)
		}
	}
	b.n += copy(b.bytes[b.n:], fresh)
	b.conn = e.Conn
	return nil
}

// belongTo reports whether e is an operation that can have bytes before it, of the same connection, and not too many.
func (b *inline) belongTo(e *ipc.SQE) bool {
	return (e.Op == ipc.OpWrite || e.Op == ipc.OpSend) && e.InlineLen > 0 && e.Conn == b.conn &&
		b.n+int(e.InlineLen) <= ipc.MaxBytes
}

// with returns all bytes of the operation e.
func (b *inline) with(e *ipc.SQE) []byte {
	return b.bytes[:b.n+copy(b.bytes[b.n:], e.Inline[:e.InlineLen])]
}

// lend counts them for the operation that has been taken, and returns them for its slot; nil: there are none.
func (c *Client) lend() *inlineBytes {
	b := &c.taken.bytes
	if b.n == 0 {
		return nil
	}
	lent := b.bytes
	b.bytes, b.n = nil, 0
	c.user.ops.Add(inlineCost)
	return lent
}

// returned takes those of an operation that has ended. Frames that still wait may refer to them, and must not take
// along what another client's operation puts there next.
func (s *Shard) returned(c *Client, b *inlineBytes) {
	s.dropReferring(b[:])
	c.user.ops.Add(-inlineCost)
	if len(s.idleBytes) < mostIdleBytes {
		s.idleBytes = append(s.idleBytes, b)
	}
}
