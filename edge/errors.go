package edge

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"syscall"

	"multiedge/internal/ipc"
	"multiedge/regmem"
)

// Error is one of the package's error values. Compare with errors.Is: what is returned may carry details around it.
type Error struct {
	text string
	also error // errors.Is holds for it as well; may be nil
}

func (e *Error) Error() string { return "edge: " + e.text }

// Unwrap returns the more general error e stands for, if any.
func (e *Error) Unwrap() error { return e.also }

// particular is an error whose cause is known better than its kind says: it has the text of the cause alone, and
// errors.Is holds for all that it is.
type particular struct {
	text string
	is   []error
}

func (e *particular) Error() string   { return "edge: " + e.text }
func (e *particular) Unwrap() []error { return e.is }

// because returns an error of a kind that says why.
func because(kind error, format string, args ...any) error {
	return &particular{fmt.Sprintf(format, args...), []error{kind}}
}

// What can go wrong, and what to do next. An error that the package returns may say a more particular cause than the
// one here, which it still is: compare by errors.Is.
var (
	ErrNoDaemon = &Error{text: "no daemon answers; start edged, name its socket in EDGE_SOCKET or Config.Socket, or " +
		"use Config.Embedded"}
	// ErrDaemonDown ends everything on a Device whose daemon went away. Whether operations then in flight took effect
	// is unknown. The Device attaches again by itself when edged is back.
	ErrDaemonDown = &Error{text: "the daemon went away; dial anew and renew registered memory (Region.Renew) once " +
		"edged runs again"}
	// ErrDraining means that somebody prepares the daemon's end (edgectl drain), or that it is stopping: it finishes
	// what exists and takes nothing new. errors.Is(err, ErrDaemonDown) holds too.
	ErrDraining = &Error{text: "the daemon takes nothing new, since it drains or stops; use what exists, or wait for " +
		"its restart", also: ErrDaemonDown}
	// ErrDaemonSilent comes with the error of a context that ended a wait while the daemon had not run for seconds. It
	// also ends a request that the daemon did not take for as long. Operations stay in flight.
	ErrDaemonSilent = &Error{text: "the daemon is there but does not run: it is stopped, hung or starved of " +
		"processor time; let edged go on, or restart it"}
	// ErrStale is the error of memory whose daemon went away. errors.Is(err, ErrDaemonDown) holds too.
	ErrStale = &Error{text: "the memory was registered with a daemon that has gone; register it anew by Region.Renew",
		also: ErrDaemonDown}

	ErrPeerUnknown = &Error{text: "no node of that name was heard on any link; check the name, and that edged runs " +
		"there on a common link (edgectl peer)"}
	ErrPeerDown = &Error{text: "the peer stopped answering or restarted; dial again when it is back (edgectl peer)"}
	// ErrPeerClosed means that the other side closed the connection by Close, with all its operations complete.
	// errors.Is(err, io.EOF) holds too, and for no other end.
	ErrPeerClosed = &Error{text: "the peer closed the connection", also: io.EOF}
	// ErrReset means that the other side went away without closing: its process died or aborted, or closed a Stream
	// while we were writing. It may have wanted to send more. errors.Is(err, syscall.ECONNRESET) holds too.
	ErrReset = &Error{text: "the peer left without closing the connection: it died or aborted; dial again",
		also: syscall.ECONNRESET}
	// ErrStream ends a Stream whose peer broke the rules of PROTOCOL clause 11, and a dial to a service that has no
	// streams.
	ErrStream = &Error{text: "the peer does not follow the rules of streams; use DialStream and ListenStream of the " +
		"same release at both ends"}
	// ErrStranger means that one of the two nodes does not authorise the other's key, or that this node authorises no
	// peer of that name.
	ErrStranger = &Error{text: "not authorised; each of the two nodes must authorise the other's key: edgectl key " +
		"show there, edgectl peers add KEY NAME here"}
	ErrNoService = &Error{text: "nobody at the peer listens for that service; start the server or check the " +
		"service's name"}
	ErrRefused = &Error{text: "the service refused the connection"}
	ErrTimeout = &Error{text: "no answer in time; check the links (edgectl link) or allow more time",
		also: os.ErrDeadlineExceeded}
	ErrMTU = &Error{text: "no frame size works on the path; give the links and switches between the peers the " +
		"same MTU (edgectl doctor)"}
	ErrVersion = &Error{text: "versions differ; upgrade so that library, daemon and peer are of the same release"}

	ErrKey     = &Error{text: "the remote memory is not exported (any more); import it again"}
	ErrRevoked = &Error{text: "the peer revoked the remote memory; import it again once it is exported anew",
		also: ErrKey}
	ErrPermission = &Error{text: "the remote memory does not allow this access; export it with that permission"}
	ErrBounds     = &Error{text: "the range lies outside the memory; check offset and length against Len and Size"}

	// ErrMemory ends an operation that uses memory of a space, here or at the peer, which did not become resident
	// within a second. Other operations are not touched; the same one may be posted again.
	ErrMemory = &Error{text: "memory of a space did not become resident in time; let it pin more (MapOptions.Pin), " +
		"release what is held, or raise limits.filled (edgectl doctor)"}
	ErrTooLong = &Error{text: "the message is longer than the buffer posted for it; post longer ones or send less"}
	// ErrNoBuffer ends a Send whose Patience was over before the peer had posted a buffer for it.
	ErrNoBuffer = &Error{text: "the peer has posted no buffer for the message; allow more patience, or have it post " +
		"more"}
	// ErrQueueFull means that a CompletionQueue has no place for the end of one more piece of work. Nothing was posted.
	ErrQueueFull = &Error{text: "the completion queue has no room for more work; take completions from it, or make a " +
		"longer one"}

	ErrAborted = &Error{text: "the connection, or the message composed on it, was aborted by this side",
		also: net.ErrClosed}
	ErrAgain = &Error{text: "the queue is full; wait for an operation in flight, or use PostWait"}
	ErrBusy  = &Error{text: "operations in flight use the region; wait for them first"}
	ErrLimit = &Error{text: "a quota of the daemon is reached; release what is not needed or raise the limit in " +
		"its configuration"}
	// ErrQuota ends an operation when all clients of the user together have too many in flight. errors.Is(err,
	// ErrLimit) holds too.
	ErrQuota = &Error{text: "this user's programs have as many operations in flight as the daemon allows; wait for " +
		"some or raise limits.ops_per_user", also: ErrLimit}
	ErrDenied  = &Error{text: "this user may not use the daemon; join the group of its socket or ask its owner"}
	ErrExists  = &Error{text: "the name is taken; choose another or end the present use"}
	ErrInvalid = &Error{text: "invalid argument"}
)

// ErrMemlock is wrapped by errors of Register when the memory cannot be pinned; their text has the remedy.
var ErrMemlock = regmem.ErrMemlock

var errNoConn = &Error{text: "the daemon has no such connection", also: net.ErrClosed}

// statusError maps how an operation ended to its error, without allocation; nil is success.
var statusError = func() (t [256]error) {
	for i := range t {
		t[i] = fmt.Errorf("edge: operation failed with unknown status %d; upgrade the library", i)
	}
	for s, err := range map[ipc.Status]error{
		ipc.StatusOK: nil, ipc.StatusKey: ErrKey, ipc.StatusOwner: ErrKey, ipc.StatusPermission: ErrPermission,
		ipc.StatusBounds: ErrBounds,
		ipc.StatusClosed: ErrPeerClosed, ipc.StatusPeerDown: ErrPeerDown, ipc.StatusPeerUnknown: ErrPeerUnknown,
		ipc.StatusNoService: ErrNoService, ipc.StatusRefused: ErrRefused, ipc.StatusLimit: ErrLimit,
		ipc.StatusAborted: ErrAborted,
		ipc.StatusTimeout: ErrTimeout, ipc.StatusMTU: ErrMTU, ipc.StatusVersion: ErrVersion,
		ipc.StatusStranger: ErrStranger, ipc.StatusReset: ErrReset,
		ipc.StatusMemory: ErrMemory, ipc.StatusTooLong: ErrTooLong, ipc.StatusNoBuffer: ErrNoBuffer,
		ipc.StatusLocal: ErrBounds, ipc.StatusNoConn: errNoConn, ipc.StatusQuota: ErrQuota,
		ipc.StatusMisaligned: ErrMisaligned, ipc.StatusTaken: ErrExists,
	} {
		t[s] = err
	}
	return t
}()

var codeError = map[string]error{
	ipc.CodeInvalid: ErrInvalid, ipc.CodeUnknownKind: ErrVersion, ipc.CodeMemlock: ErrMemlock, ipc.CodeBusy: ErrBusy,
	ipc.CodeExists: ErrExists, ipc.CodeNoRegion: ErrInvalid, ipc.CodeDraining: ErrDraining, ipc.CodeDenied: ErrDenied,
	ipc.CodeVersion: ErrVersion,
}

// errorFor turns a code and text of the daemon into an error that wraps one of the package's values where there is one.
func errorFor(code, text string) error {
	err := codeError[code]
	if s, ok := ipc.StatusFor(code); ok && err == nil {
		err = statusError[s]
	}
	switch {
	case err == nil && text == "":
		return fmt.Errorf("edge: the daemon answered %q", code)
	case err == nil:
		return fmt.Errorf("edge: %s", text)
	case text == "":
		return err
	}
	return because(err, "%s", text)
}

// closedError says why the daemon ended a connection.
func closedError(code, text string) error {
	switch code {
	case ipc.StatusOK.Code(), ipc.StatusClosed.Code():
		return ErrPeerClosed
	case "":
		return ErrReset
	}
	return errorFor(code, text)
}

// dialDaemonError says why the control socket at path cannot be used.
func dialDaemonError(path string, err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("%w (tried %s)", ErrNoDaemon, path)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%w (socket %s)", ErrDenied, path)
	}
	return fmt.Errorf("edge: connecting to the daemon: %w", err)
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrInvalid}, args...)...)
}
