package op

import (
	"multiedge/internal/abi"
	"multiedge/internal/engine/build"
	"multiedge/internal/mono"
	"multiedge/internal/seqnum"
	"multiedge/internal/wire"
)

// The table kinds has a row for each kind of operation, with everything that differs between kinds. One file for each
// kind fills its row and holds its functions: write.go, read.go, atomic.go, send.go, tell.go. They are called through
// the table; each call is for one segment.

// opKind is a kind of operation. The end that submitted an operation emits it, and completes it when the peer has
// applied it or has answered it in full; the other end delivers it, and replies to it if it has an answer.
type opKind struct {
	request wire.Kind // of the segments that carry it to the peer
	next    wire.Kind // of those that follow one of the same kind in a frame, in short; KindPad: there is none
	answer  wire.Kind // of the segments that carry its answer back; KindPad: it has none
	fills   bool      // its answer is put into its local memory
	sized   bool      // recvOp.last is how many bytes it is about; else as many as it has, or its answer

	// emit puts the first bytes of a part into the frame, as many as it takes, and returns how many. ok is false, and
	// nothing was put, if nothing fits, or if memory that it needs is not resident, which it returns then. retx says
	// that they were sent before.
	emit func(w *build.Frame, c *Conn, o *sendOp, p part, retx bool) (sent uint64, ok bool, lack *miss)
	// deliver performs a request that no fence forbids. It ends in apply, perhaps with a later segment or when the
	// answer has arrived, or in refuseAccess. It reports whether the segment may count as received (clause 3.3). If
	// memory is not resident it has done nothing, and returns that.
	deliver func(c *Conn, now mono.Time, o *recvOp, g *segment) (received bool, lack *miss)
	// reply is emit for a part of the answer, with no flags given. Nil without an answer.
	reply func(w *build.Frame, c *Conn, o *recvOp, p part, retx bool) (sent uint64, ok bool, lack *miss)
	// accept takes a segment of the answer, and completes the operation with the last of it. Nil without an answer.
	accept func(c *Conn, now mono.Time, g *segment) (received bool, lack *miss)
	// complete counts an operation that has ended with st, and gives back what it held. It returns the memory that
	// frames handed out may still refer to, if it failed.
	complete func(c *Conn, now mono.Time, op seqnum.Value, st abi.Status) (referred []byte)
}

// maxOpKinds is more than the largest OpKind.
const maxOpKinds = 16

// kinds is the table, by OpKind. addKind alone writes it, before there is an endpoint.
var kinds [maxOpKinds]opKind

// carried says of which operations' kind the segments of a wire kind are; 0: they carry no operation.
type carried struct {
	kind   OpKind
	answer bool
}

var carriers [len(wire.Layouts)]carried

// addKind makes an entry of kinds.
func addKind(number OpKind, k opKind) {
	kinds[number] = k
	carriers[k.request] = carried{kind: number}
	if k.next != wire.KindPad {
		carriers[k.next] = carriers[k.request]
	}
	if k.answer != wire.KindPad {
		carriers[k.answer] = carried{kind: number, answer: true}
	}
}

// part is bytes [off, off+n) of an operation, or of its answer, on their way into a frame.
type part struct {
	op     seqnum.Value
	off, n uint64
	flags  uint8 // of the segment, but for SegLast
}
