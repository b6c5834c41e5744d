// Package inner is the door between package edge and the packages above it, such as stream and named. They use what
// edge exports, and besides a few things for which programs have no use. These are methods of Edge.
package inner

import (
	"context"
	"fmt"

	"multiedge/internal/ipc"
)

// Edge is set when package edge is initialised. This package cannot import edge, so each package above asserts that
// Edge has the methods which that package uses.
var Edge any

// MaxImports is how much memory, by names, the peer of one connection can export to it at once.
const MaxImports = 4096

// Note is a notification as the daemon told it.
type Note struct {
	Key uint64 // of the export
	Off uint64 // of the write, within it
	Imm uint32
	Len uint32
}

// Sink takes the notifications of one export as they come, instead of the queue of the connection. The goroutine that
// looks for completions on behalf of all calls it (edge/wait.go), so it must not wait for anything of the Device.
type Sink interface {
	Notified(n Note)
	Ended(err error) // the export or the connection has ended: no notification follows
}

// Tap takes all notifications of one connection, as a Sink does, and learns what else happens on it.
type Tap interface {
	Notified(n Note)

	// Failed tells that an operation of the connection failed, before the operation counts as done.
	Failed(status ipc.Status, err error)

	// Completed tells that an operation has ended, or a redirection.
	Completed(redirection bool)

	// Changed tells that the peer exported memory, or that the connection has ended. Any goroutine may call it.
	Changed()
}

// Cond is something that goroutines wait for on a Device, as they wait for operations: one of them looks for
// completions meanwhile.
type Cond interface {
	// Wait returns when the condition holds or the daemon has gone, with nil, or with the error of ctx.
	Wait(ctx context.Context) error
	// WaitRoom is Wait that also returns when the connection has room for an operation, or has ended.
	WaitRoom(ctx context.Context) error
	// Wake makes those look who wait. A Sink or Tap calls it.
	Wake()
	// Interrupt is Wake for all other callers.
	Interrupt()
}

// Redirection is a redirection of part of an export (PROTOCOL clause 15.2).
type Redirection interface {
	Done() bool
	// Wait waits for its end, and End causes it first. They return why it ended, or the error of ctx.
	Wait(ctx context.Context) error
	End(ctx context.Context) error
	// PostEnd asks for the end. It reports false if the queue has no room.
	PostEnd() bool
	// Settled is Done without a look at the completion ring.
	Settled() bool
	// Spans returns the parts that were redirected, once it has ended: up to two, in order, the others empty.
	Spans() [2]Span
	// CopyRest copies everything else to the memory to which those parts were redirected.
	CopyRest() error
}

// Span is bytes Lo to Hi of a redirection.
type Span struct{ Lo, Hi int }

// particular is an error whose cause is known better than its kind says: it has the text of the cause alone, and
// errors.Is holds for all that it is.
type particular struct {
	text string
	is   []error
}

func (e *particular) Error() string   { return "edge: " + e.text }
func (e *particular) Unwrap() []error { return e.is }

// Because returns an error of a kind that says why.
func Because(kind error, format string, args ...any) error {
	return &particular{fmt.Sprintf(format, args...), []error{kind}}
}

// Also returns an error with a text of its own that is several others.
func Also(text string, is ...error) error { return &particular{text, is} }

// NotExported says that an import waited in vain, or was refused, because there is nothing of that name.
func NotExported(kind error, peer, name string) error {
	return Because(kind, "%s exports no memory named %q; start what exports it there, or check the name "+
		"(edgectl export)", peer, name)
}
