// Package compose sends messages that travel while they are being composed (EDT §4).
package compose

import (
	"fmt"

	"multiedge/edge"
	"multiedge/edge/internal/inner"
	"multiedge/internal/ipc"
)

// core is what this package uses of package edge besides exported names.
var core = inner.Edge.(interface {
	Compose(c *edge.Conn, w edge.Work) (edge.Op, error)
	SayOf(c *edge.Conn, op edge.Op, e ipc.SQE) error
})

// MaxSize is the longest composed message in bytes.
const MaxSize = ipc.MaxEager

// Message is a write or send that is being composed. The parts of it that are written already travel, into memory that
// the peer's program cannot see. Commit publishes it, at once and in the order of commits; Abort drops it. It is a
// small value that may be dropped.
type Message struct {
	c  *edge.Conn
	op edge.Op
	n  int
}

// Begin begins a message: a Work of Kind Write or Send. Its Local, LocalOff and Len, 1 to MaxSize, name the memory in
// which the message is composed. Flags and Imm are given to Commit instead. The memory belongs to the message until the
// message is done, but the caller may write it until Commit, in any order and repeatedly. The message takes the place
// of an operation in flight. A connection can have 16 messages that are not committed; its Close waits until they are
// committed or aborted. edge.ErrAgain means that the queue is full.
func Begin(c *edge.Conn, w *edge.Work) (Message, error) {
	op, err := core.Compose(c, *w)
	if err != nil {
		return Message{}, err
	}
	return Message{c, op, w.Len}, nil
}

// Wrote marks bytes off to off+n of the message as written, so that they may travel. Bytes that are written again must
// be marked again. Bytes that were never marked travel with Commit. Blocks are 64 bytes: one that is marked before all
// of it is written travels again with the next mark. edge.ErrAgain means that the queue is full: mark the bytes again.
func (m Message) Wrote(off, n int) error {
	if off < 0 || n < 0 || off > m.n || n > m.n-off {
		return edge.ErrBounds
	}
	return m.say(ipc.SQE{Op: ipc.OpWrote, LocalOff: uint64(off), Len: uint64(n)})
}

// Commit posts the first n bytes of the message as an operation of the connection, as Post does a Work with these flags
// (BackwardFence, ForwardFence, Notify) and immediate. From then on they must not change until the operation is done.
// With any error but edge.ErrAgain the message has ended, or its operation has.
func (m Message) Commit(n int, flags edge.Flags, imm uint32) (edge.Op, error) {
	switch {
	case n < 0 || n > m.n:
		return m.op, edge.ErrBounds
	case flags&^(edge.BackwardFence|edge.ForwardFence|edge.Notify) != 0:
		return m.op, fmt.Errorf("%w: Commit takes the flags BackwardFence, ForwardFence and Notify", edge.ErrInvalid)
	}
	return m.op, m.say(ipc.SQE{Op: ipc.OpCommit, Flags: ipc.Flags(flags), Imm: imm, Len: uint64(n)})
}

// Abort drops the message: the peer's program never sees any of it, and its operation ends with edge.ErrAborted. The
// memory is the caller's once Op is done.
func (m Message) Abort() error { return m.say(ipc.SQE{Op: ipc.OpDiscard}) }

// Op is the message's operation: that of Commit, or one that ends with edge.ErrAborted.
func (m Message) Op() edge.Op { return m.op }

// say posts what is said about the message.
func (m Message) say(e ipc.SQE) error {
	if m.c == nil {
		return fmt.Errorf("%w: the message was not begun", edge.ErrInvalid)
	}
	return core.SayOf(m.c, m.op, e)
}
