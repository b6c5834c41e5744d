package edge

import "multiedge/internal/ipc"

// MaxEager is the longest composed message in bytes.
const MaxEager = ipc.MaxEager

// Message is a write or send that is being composed. The parts of it that are written already travel (EDT §4), into
// memory that the peer's program cannot see. Commit publishes it, at once and in the order of commits; Abort drops it.
// It is a small value that may be dropped.
type Message struct {
	c  *Conn
	op Op
	n  int
}

// Compose begins a message: a Work of Kind Write or Send. Its Local, LocalOff and Len, 1 to MaxEager, name the memory
// in which the message is composed. Flags and Imm are given to Commit instead. The memory belongs to the message until
// the message is done, but the caller may write it until Commit, in any order and repeatedly. The message takes the
// place of an operation in flight. A connection can have 16 messages that are not committed; its Close waits until they
// are committed or aborted. ErrAgain means that the queue is full.
func (c *Conn) Compose(w *Work) (Message, error) {
	m, err := c.compose(w)
	if err == ErrAgain && c.d.poll() > 0 {
		m, err = c.compose(w)
	}
	return m, err
}

func (c *Conn) compose(w *Work) (Message, error) {
	d := c.d
	switch {
	case d.features&ipc.FeatureEager == 0:
		return Message{}, errNoEager
	case w.Kind != Write && w.Kind != Send, w.Flags != 0, w.Imm != 0, len(w.Inline)+len(w.Pieces) > 0, w.Local == nil:
		return Message{}, errCompose
	case w.Len < 1 || w.Len > MaxEager:
		return Message{}, ErrTooLong
	}
	d.out.post.Lock()
	defer d.out.post.Unlock()
	if err := c.usable(); err != nil {
		return Message{}, err
	}
	if inSpace(w) {
		return Message{}, errMessageSpace
	}
	if err := c.encode(w, &d.out.sqe); err != nil {
		return Message{}, err
	}
	d.out.sqe.Op = ipc.OpCompose
	op, err := c.launch(w.Local, noBounce, w)
	if err != nil {
		return Message{}, err
	}
	d.slots.list[op.slot].composing = true
	d.publish()
	return Message{c, op, w.Len}, nil
}

// Wrote marks bytes off to off+n of the message as written, so that they may travel. Bytes that are written again must
// be marked again. Bytes that were never marked travel with Commit. Blocks are 64 bytes: one that is marked before all
// of it is written travels again with the next mark. ErrAgain means that the queue is full: mark the bytes again.
func (m Message) Wrote(off, n int) error {
	if off < 0 || n < 0 || off > m.n || n > m.n-off {
		return ErrBounds
	}
	return m.say(ipc.SQE{Op: ipc.OpWrote, LocalOff: uint64(off), Len: uint64(n)})
}

// Commit posts the first n bytes of the message as an operation of the connection, as Post does a Work with these flags
// (BackwardFence, ForwardFence, Notify) and immediate. From then on they must not change until the operation is done.
// With any error but ErrAgain the message has ended, or its operation has.
func (m Message) Commit(n int, flags Flags, imm uint32) (Op, error) {
	switch {
	case n < 0 || n > m.n:
		return m.op, ErrBounds
	case flags&^(BackwardFence|ForwardFence|Notify) != 0:
		return m.op, errCompose
	}
	return m.op, m.say(ipc.SQE{Op: ipc.OpCommit, Flags: ipc.Flags(flags), Imm: imm, Len: uint64(n)})
}

// Abort drops the message: the peer's program never sees any of it, and its operation ends with ErrAborted. The memory
// is the caller's once Op is done.
func (m Message) Abort() error { return m.say(ipc.SQE{Op: ipc.OpDiscard}) }

// Op is the message's operation: that of Commit, or one that ends with ErrAborted.
func (m Message) Op() Op { return m.op }

// say posts what is said about the message.
func (m Message) say(e ipc.SQE) error {
	if m.c == nil {
		return errComposed
	}
	err := m.sayOnce(e)
	if err == ErrAgain && m.c.d.poll() > 0 {
		err = m.sayOnce(e)
	}
	return err
}

func (m Message) sayOnce(e ipc.SQE) error {
	d := m.c.d
	d.out.post.Lock()
	defer d.out.post.Unlock()
	s := &d.slots.list[m.op.slot]
	switch {
	case m.op.settled():
		if err := m.op.Err(); err != nil {
			return err
		}
		return errComposed
	case !s.composing:
		return errComposed
	case d.out.detached:
		return ErrAgain
	}
	if n, err := d.out.sq.Room(); n == 0 || err != nil {
		if err != nil {
			go d.fail(ErrDaemonDown)
		}
		return ErrAgain
	}
	e.Conn, e.Token = m.c.id, opKey(m.op.slot, m.op.gen)
	if e.Op != ipc.OpWrote {
		s.composing = false
	}
	d.out.sqe = e
	d.out.sq.Put(&d.out.sqe)
	d.publish()
	return nil
}

var (
	errNoEager = &Error{text: "the daemon is older and composes no messages; upgrade it", also: ErrVersion}
	errCompose = invalid("Compose takes a Write or Send with Local, LocalOff and Len; fences, Notify and Imm belong " +
		"to Commit")
	errComposed = invalid("the message is committed or aborted already")
)
