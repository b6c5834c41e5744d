package edge

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"multiedge/internal/ipc"
)

// Kind is what an operation does.
type Kind uint8

const (
	Write Kind = Kind(ipc.OpWrite) // local memory to remote memory
	Read  Kind = Kind(ipc.OpRead)  // remote memory to local memory
	// Atomic changes a value of remote memory in one step and fetches what was there: see AtomicFunc.
	Atomic Kind = Kind(ipc.OpAtomic)
	// Send: local memory, or Inline bytes, to the oldest buffer that the peer posted. It needs no Remote.
	Send Kind = Kind(ipc.OpSend)
	// Receive: local memory is for one message of the peer. It needs a Queue, where its Completion says what came.
	Receive Kind = Kind(ipc.OpReceive)
	// Notified is no work: the Kind of a Completion that is a Notification.
	Notified Kind = 255
)

// Flags modify an operation; each is independent of the others.
type Flags uint8

const (
	// BackwardFence: takes effect after every earlier operation of the connection.
	BackwardFence Flags = Flags(ipc.FlagBackwardFence)
	// ForwardFence: later operations of the connection take effect after this one.
	ForwardFence Flags = Flags(ipc.FlagForwardFence)
	// Notify: once a write is complete at the remote memory, its owner receives a Notification with Work.Imm. Of a
	// Send: the message carries Work.Imm.
	Notify Flags = Flags(ipc.FlagNotify)
	// LocalDone: a write is done as soon as its local bytes may change again: they were copied, or the peer has them.
	// Without it a write is done when it was applied at the peer. A failure that comes later is in Op.Err and
	// Conn.Late.
	LocalDone Flags = Flags(ipc.FlagLocal)
)

// MaxInline is the number of bytes a Work can carry by value. More than 24 take further places of the queue, one for
// each 56 bytes: a Device with a QueueDepth of less than 32 takes fewer, and one whose daemon is older takes 24.
const MaxInline = ipc.MaxBytes

// Work describes one operation. Post copies it, including Inline; the caller may reuse it at once. The memory that
// Local names is the operation's until it is done: do not change it under a write, nor use it under a read.
type Work struct {
	Kind      Kind
	Flags     Flags
	Imm       uint32 // handed to the peer with Notify
	Local     *Region
	LocalOff  int
	Len       int // in bytes; of an atomic: 4 or 8
	Remote    *RemoteRegion
	RemoteOff int    // of an atomic: a multiple of Len
	Inline    []byte // of a write or send, up to MaxInline bytes instead of Local, LocalOff and Len
	// of a write, send, read or receive, up to MaxPieces ranges instead of Local, LocalOff and Len: a write or send
	// gathers them, a read or a message that arrives is scattered into them, in their order
	Pieces []Piece

	Func    AtomicFunc // of an atomic, as are those that follow
	Operand uint64
	Compare uint64  // with CompareSwap
	Result  *uint64 // receives what was there, before the operation is done; nil: not wanted

	// Patience limits how long a send waits for a buffer of the peer; then the send fails with ErrNoBuffer. Zero: it
	// waits without limit. Negative: it does not wait.
	Patience time.Duration
	Queue    *CompletionQueue // where its end is told, besides the Op; nil: nowhere
	Context  uint64           // handed back in the Completion
	Op       *Op              // receives the operation when it is started; nil: not wanted
}

// MaxPieces is how many pieces of local memory an operation can have.
const MaxPieces = ipc.MaxPieces

// Piece is a range of local memory.
type Piece struct {
	Region *Region
	Off    int // within Region
	Len    int // in bytes, at most 2^32-1 but of the last piece; 0 is allowed
}

// Op is an operation in flight or done. It is a small value that may be dropped; nothing has to be released. The zero
// Op is done.
type Op struct {
	d    *attachment
	slot uint32
	gen  uint32
}

// slot is one place in the table of operations in flight. An operation is done when the generation of its slot has
// moved on; what went wrong, if anything, is then in attachment.failed. Posting fills the fields of a free slot; the
// leader empties them.
//
// It has half a cache line: every operation touches another one. What few operations have is in attachment.extras.
type slot struct {
	gen       atomic.Uint32 // odd: in flight
	bounce    int16         // slot of the bounce arena that is freed when its owner has gone; noBounce
	extra     bool          // there is something in attachment.extras, which is zero otherwise but for its room
	composing bool          // it is a composed message that is not committed; guarded by attachment.out.post
	conn      *Conn
	region    *Region
	waiters   *waiter // guarded by leadership.mu
}

// noBounce is a slot.bounce that names no slot of the arena.
const noBounce = -1

// extra is more of a slot.
type extra struct {
	ticket
	more        []held       // regions of pieces, of all but the last
	result      *uint64      // of an atomic
	redirection *redirection // nil: it is an operation
}

// ticket is what the Completion of a slot's work is made of.
type ticket struct {
	queue   *CompletionQueue // nil: nobody is told
	context uint64
	kind    Kind
}

// settled reports whether the operation can make no further progress. It does not look at the completion ring.
func (o *Op) settled() bool {
	return o.d == nil || o.d.slots.list[o.slot].gen.Load() != o.gen || o.d.life.dead.Load() != nil
}

// Done reports whether the operation has ended. It looks at the completion ring if nobody else does. An embedded
// transport sends operations of up to 64 KiB that were posted one by one behind others together: Done sends them once
// 64 wait or 10 us have passed, Wait and Poll send them at once.
func (o Op) Done() bool {
	if o.settled() {
		return true
	}
	if o.d.driven() && o.d.gathers() {
		return false
	}
	o.d.poll()
	return o.settled()
}

// Err returns nil for an operation that succeeded or is still in flight, and otherwise what went wrong. A failure is
// remembered until 65,536 later operations of the Device have failed as well.
func (o Op) Err() error {
	if o.d == nil {
		return nil
	}
	if o.d.slots.list[o.slot].gen.Load() == o.gen {
		return o.d.Err()
	}
	return statusError[o.d.slots.failed.get(o.slot, o.gen)]
}

// Wait waits until the operation has ended and returns Err, or the error of ctx when that ends first; the operation is
// then still in flight.
func (o Op) Wait(ctx context.Context) error { return o.waitWith(ctx, nil) }

// waitWith is Wait of a caller who goes on when more operations have ended, too.
func (o Op) waitWith(ctx context.Context, more []Op) error {
	if o.settled() {
		return o.Err()
	}
	if err := o.d.wait(ctx, waiter{kind: waitOp, op: o, more: more}); err != nil {
		return err
	}
	return o.Err()
}

// WaitAll waits for every operation and returns the first failure in the order of ops, or the error of ctx when that
// ends first. A daemon wakes it once, where a Wait for each is woken for each: a program that keeps many operations in
// flight waits best for some of the oldest together.
func WaitAll(ctx context.Context, ops []Op) error {
	var first error
	for i := range ops {
		err := ops[i].waitWith(ctx, ops[i+1:])
		if err != nil && !ops[i].settled() {
			return err
		}
		if first == nil {
			first = err
		}
	}
	return first
}

// maxFailures is how many failures a Device remembers.
const maxFailures = 1 << 16

// failures remembers how operations failed, by slot and generation, so that success needs no memory at all.
type failures struct {
	any   atomic.Bool
	mu    sync.Mutex
	byOp  map[uint64]ipc.Status
	order []uint64 // ring of the last maxFailures keys
	next  int
}

func opKey(slot, gen uint32) uint64 { return uint64(gen)<<32 | uint64(slot) }

func (f *failures) add(slot, gen uint32, s ipc.Status) {
	f.mu.Lock()
	defer f.mu.Unlock()
	k := opKey(slot, gen)
	if f.byOp == nil {
		f.byOp = map[uint64]ipc.Status{}
	}
	if len(f.order) < maxFailures {
		f.order = append(f.order, k)
	} else {
		delete(f.byOp, f.order[f.next])
		f.order[f.next] = k
		f.next = (f.next + 1) % maxFailures
	}
	f.byOp[k] = s
	f.any.Store(true)
}

func (f *failures) get(slot, gen uint32) ipc.Status {
	if !f.any.Load() {
		return ipc.StatusOK
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.byOp[opKey(slot, gen)]
}
