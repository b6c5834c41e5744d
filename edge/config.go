package edge

import (
	"log/slog"
	"os"
	"time"

	"multiedge/internal/ipc"
)

// WaitMode is how a goroutine that waits finds out about progress.
type WaitMode uint8

const (
	// Adaptive polls for Config.Spin, then blocks. It polls longer while what it waits for comes soon after, and gives
	// way to others on the core after every look. If giving way turns out to be slow, somebody else needs the core, and
	// it stops polling for a while.
	Adaptive WaitMode = iota
	// Block never polls: least processor time, a wake-up (some 30 microseconds) on each wait.
	Block
	// Busy polls without end: only for a process with cores to itself.
	Busy
)

// Defaults of Config.
const (
	defaultSpin       = 50 * time.Microsecond
	defaultQueueDepth = 1024
	defaultBounce     = 32 << 20
)

// Config says how to attach. The zero value attaches to the local daemon at its usual place.
type Config struct {
	Socket   string    // the daemon's control socket; empty: $EDGE_SOCKET, or /run/edged/edged.sock
	Embedded *Embedded // not nil: no daemon, the transport runs in this process
	Wait     WaitMode
	// how long Adaptive polls at first, up to four times that while sleeps prove short; zero: 50 us
	Spin       time.Duration
	QueueDepth int // operations in flight on the Device, a power of two; zero: 1024
	// bytes of pinned memory that ReadAt and WriteAt may use at once, 64 KiB for each chunk in flight; registered as it
	// is needed, 2 MiB at a time, and kept. 2 MiB to 1 GiB, rounded down to a multiple of 2 MiB; zero: 32 MiB
	Bounce int
	// says when the daemon is lost and found again; nil: slog.Default. A logger of slog.DiscardHandler says nothing
	Log *slog.Logger

	// OnChange is called when the daemon is lost, with ErrDaemonDown, and when the Device has attached again, with nil,
	// in that order, by a goroutine of the Device: it must return soon, and neither close the Device nor ask anything
	// of it.
	OnChange func(lost error)
}

func (c *Config) normalize() error {
	if c.Socket == "" {
		c.Socket = os.Getenv(ipc.SocketEnv)
	}
	if c.Socket == "" {
		c.Socket = ipc.DefaultSocket
	}
	if c.Spin == 0 {
		c.Spin = defaultSpin
	}
	if c.QueueDepth == 0 {
		c.QueueDepth = defaultQueueDepth
	}
	if c.Bounce == 0 {
		c.Bounce = defaultBounce
	}
	if c.Bounce < bounceBlock || c.Bounce > bounceMost*bounceChunk {
		return invalid("Config.Bounce is %d bytes; choose %d to %d", c.Bounce, bounceBlock, bounceMost*bounceChunk)
	}
	if c.Wait > Busy {
		return invalid("Config.Wait is %d; choose Adaptive, Block or Busy", c.Wait)
	}
	if c.Spin < 0 {
		return invalid("Config.Spin is negative")
	}
	if _, err := ipc.LayoutFor(c.QueueDepth); err != nil {
		return invalid("Config.QueueDepth: %v", err)
	}
	return nil
}

// DialOption modifies a connection request.
type DialOption func(*dialOptions)

type dialOptions struct {
	ordered   bool
	overlap   bool
	lent      bool
	data      []byte
	scheduler string
}

// Ordered makes every operation take effect after the one before it, in both directions, as if each had a backward
// fence.
func Ordered() DialOption { return func(o *dialOptions) { o.ordered = true } }

// Overlap makes an operation begin after the one before it has, in both directions: each write and message takes
// effect before the next operation does, as with Ordered, but several reads and atomics are answered at a time. So a
// read without a fence behind it may see what a later write put there, and of two reads the earlier may see the newer
// bytes, if frames are lost or memory is not resident (PROTOCOL clause 5.3).
func Overlap() DialOption { return func(o *dialOptions) { o.ordered, o.overlap = true, true } }

// Data sends up to 512 bytes to the side that accepts, which reads them by Conn.Data or Request.Data.
func Data(b []byte) DialOption { return func(o *dialOptions) { o.data = b } }

// Scheduler chooses how frames are spread over links: "adaptive", "wd", "wsrr" or "srr". It has an effect when this is
// the first connection between the two nodes; others share what was chosen then.
func Scheduler(name string) DialOption { return func(o *dialOptions) { o.scheduler = name } }
