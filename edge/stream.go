package edge

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"multiedge/internal/ipc"
)

// A Stream is bytes in both directions, over the one-sided operations of a connection (PROTOCOL clause 11). Each end
// exports a ring to the other:
//
//	Write: p is copied to the send buffer -> a write with Notify into the peer's ring, one for each piece
//	       ... the peer's leader (wait.go) takes the notification and moves tail: that much is there to read
//	Read:  copied from the ring to p; when a quarter of the ring was read, a notification back says
//	       so: that much may be sent
//
// A Stream has no goroutine, except while credit finds no room. The leader of the waiting on the Device takes the
// notifications of all its streams, which are counters that move, so that the daemon's credit for them always returns
// and a stream that nobody reads holds up nothing but its own peer. What a Read or a Write waits for is in its half:
// ready says whether it can go on, and interrupt lets it look because its deadline passed or the stream ended.
//
// Guards: half.mu admits one Read and one Write at a time and guards the fields that only they use. Fields that the
// leader changes are atomic. Region.use keeps the memory mapped while it is copied from and to.

// DefaultStreamBuffer is how many bytes each buffer of a Stream has, if StreamConfig does not say.
const DefaultStreamBuffer = 256 << 10

// StreamConfig says how much registered memory a Stream has at this end, in bytes: powers of two from 4 KiB to 512 MiB.
// Zero is DefaultStreamBuffer. Every Stream pins both.
type StreamConfig struct {
	ReceiveBuffer int // what the peer can send before it is read
	SendBuffer    int // what can be on its way to the peer
}

const (
	minStreamBuffer = 4 << 10
	maxStreamBuffer = 512 << 20 // half of what immCount can count
)

func (c *StreamConfig) normalize() error {
	for _, n := range []*int{&c.ReceiveBuffer, &c.SendBuffer} {
		if *n == 0 {
			*n = DefaultStreamBuffer
		}
		if !streamBufferSize(int64(*n)) {
			return invalid("Config.Stream: a buffer of %d bytes; choose a power of two from %d to %d", *n,
				minStreamBuffer, maxStreamBuffer)
		}
	}
	return nil
}

func streamBufferSize(n int64) bool {
	return n >= minStreamBuffer && n <= maxStreamBuffer && n&(n-1) == 0
}

// The immediate of a stream's notifications: what is said, and a count or position (clause 11.3).
const (
	immData   = 0 << 30 // a piece that starts at this position, modulo 2^30, is in the ring
	immCredit = 1 << 30 // so many bytes more were read
	immFin    = 2 << 30 // the stream ends at this position

	immKind  = 3 << 30
	immCount = 1<<30 - 1
)

// lingerTime is Stream.linger.
const lingerTime = 5 * time.Second

// Stream is a net.Conn over a connection, with half-close. Any number of goroutines may use it. Its errors are
// *net.OpError around the package's values, but for io.EOF: errors.Is(err, edge.ErrPeerDown), net.ErrClosed,
// os.ErrDeadlineExceeded. Close it, also after an error: it holds registered memory.
type Stream struct {
	c      *Conn
	region *Region // the receive ring, and after it the send buffer
	export *Grant  // of the ring
	ring   int     // bytes of the receive ring
	data   []byte  // private data of the dialler
	local  net.Addr
	remote net.Addr
	// bounds how long Close waits for the peer to have everything, and CloseWrite for room to tell it
	linger time.Duration

	peerRing atomic.Pointer[RemoteRegion] // set by the first that needs it
	closed   atomic.Bool

	in  inbound
	out outbound
}

var _ net.Conn = (*Stream)(nil)

// half is what both directions of a Stream have: one call at a time, those who wait, and until when.
type half struct {
	d       *attachment
	c       *Conn
	mu      sync.Mutex  // held by the call under way
	ready   func() bool // whether the call under way can go on, or must end; for the holder of mu
	waiters *waiter     // guarded by leadership.mu
	limit   deadline
}

// newStream makes the Stream of a connection, which has memory but has not exported it. It takes over the notifications
// of c.
func newStream(c *Conn, r *Region, cfg StreamConfig, data []byte) *Stream {
	s := &Stream{
		c: c, region: r, ring: cfg.ReceiveBuffer, data: data, linger: lingerTime,
		local: StreamAddr{c.d.name, c.service}, remote: StreamAddr{c.peer, c.service},
	}
	s.in.d, s.in.c, s.in.ready = c.d, c, s.canRead
	s.out.d, s.out.c, s.out.ready = c.d, c, s.canWrite
	s.out.size = cfg.SendBuffer
	c.notes.attach(s)
	c.d.returnCredit(c)
	return s
}

// wait waits until the half is ready, or with waitRoom, the connection may have room for an operation. The caller holds
// mu.
func (h *half) wait(kind waitKind) {
	h.d.wait(context.Background(), waiter{kind: kind, conn: h.c, half: h}) // returns no error: that context never ends
}

// wake wakes those who wait for the half to be ready. The caller leads; a leader that waits looks anyway.
func (h *half) wake() {
	if h.d.lead.followers.Load() > 0 {
		h.d.lead.wake(&h.waiters)
	}
}

// interrupt wakes whoever waits in the half, for whatever reason.
func (h *half) interrupt() {
	l := &h.d.lead
	l.wake(&h.waiters)
	if l.others.Load() > 0 {
		l.wakeAll(false)
	}
	h.d.kick()
}

// check returns why a call on a half must end, other than for what happened to the connection.
func (s *Stream) check(h *half) error {
	switch {
	case s.closed.Load():
		return net.ErrClosed
	case !h.limit.expired.Load():
		return nil
	case s.c.d.life.silent.Load():
		return silentError{}
	}
	return os.ErrDeadlineExceeded
}

// Read implements net.Conn. It returns what is there, once something is, and io.EOF after everything that the peer
// wrote before it closed the stream or its writing half.
func (s *Stream) Read(p []byte) (int, error) {
	s.in.mu.Lock()
	defer s.in.mu.Unlock()
	n, err := s.read(p)
	return n, s.fault("read", err)
}

// Write implements net.Conn. It returns once all of p has been copied and given to the transport, for which the peer's
// ring needs room. p is the caller's again then. Bytes that were written may still be lost when the connection fails.
// With an error, the count is of the bytes that were given to the transport.
func (s *Stream) Write(p []byte) (int, error) {
	s.out.mu.Lock()
	defer s.out.mu.Unlock()
	n, err := s.write(p)
	return n, s.fault("write", err)
}

// CloseWrite tells the peer that nothing more is written: after what was sent, the peer reads io.EOF. Reading goes on.
// A Write under way ends.
func (s *Stream) CloseWrite() error {
	if s.closed.Load() {
		return s.fault("close", net.ErrClosed)
	}
	s.out.shut.Store(true)
	s.out.interrupt()
	ctx, cancel := context.WithTimeout(context.Background(), s.linger)
	defer cancel()
	err := s.finish(ctx)
	if err != nil && ctx.Err() != nil {
		err = os.ErrDeadlineExceeded
	}
	return s.fault("close", err)
}

// Close ends the stream in both directions. Calls under way end with net.ErrClosed. It waits until the peer has in
// memory what was written, 5 seconds at most, and then cuts the connection and returns a timeout. A peer that writes
// meanwhile or afterwards fails with ErrReset.
func (s *Stream) Close() error {
	if s.closed.Swap(true) {
		return s.fault("close", net.ErrClosed)
	}
	s.interrupt()
	ctx, cancel := context.WithTimeout(context.Background(), s.linger)
	defer cancel()
	s.finish(ctx) // its failure shows in the next, or is that the connection has ended
	err := s.c.CloseContext(ctx)
	if err != nil && ctx.Err() == nil {
		err = nil // the connection is over, that is all
	}
	s.release(ctx)
	if err != nil {
		err = os.ErrDeadlineExceeded
	}
	return s.opError("close", err)
}

// interrupt ends calls under way, and their deadlines.
func (s *Stream) interrupt() {
	s.in.limit.stop()
	s.out.limit.stop()
	s.in.interrupt()
	s.out.interrupt()
}

// release gives the memory back once no operation uses it. After ctx ends, this goes on in the background until it is
// done or the daemon has gone.
func (s *Stream) release(ctx context.Context) {
	inTime(ctx, func() {
		s.c.Abort() // unless it was closed
		s.c.d.wait(context.Background(), waiter{kind: waitIdle, conn: s.c})
		if err := s.region.Close(); err != nil {
			s.c.d.dev.log().Warn("edge: memory of a stream stays pinned until the device is closed", "peer", s.c.peer,
				"service", s.c.service, "reason", err)
		}
	})
}

// inTime runs f and returns when f or ctx has ended. If ctx ends first, f goes on.
func inTime(ctx context.Context, f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	select {
	case <-done:
	case <-ctx.Done():
	}
}

// abandon ends a stream whose set-up failed.
func (s *Stream) abandon(ctx context.Context) {
	s.closed.Store(true)
	ctx, cancel := context.WithTimeout(ctx, s.linger)
	defer cancel()
	s.release(ctx)
}

// LocalAddr returns this node's name and the service, a StreamAddr.
func (s *Stream) LocalAddr() net.Addr { return s.local }

// RemoteAddr returns the peer's name and the service, a StreamAddr.
func (s *Stream) RemoteAddr() net.Addr { return s.remote }

// Data returns at the accepting end what the other side gave to DialStream by the option Data. It must not be modified.
func (s *Stream) Data() []byte { return s.data }

// arrived takes a notification of the peer, which may be nonsense. The leader calls it, or attach.
func (s *Stream) arrived(n note) {
	count := uint64(n.imm & immCount)
	bad := ""
	switch n.imm & immKind {
	case immData:
		bad = s.in.piece(count, int(n.len), s.ring)
	case immCredit:
		bad = s.out.credit(count)
	case immFin:
		bad = s.in.end(count)
	default:
		bad = fmt.Sprintf("a notification of unknown kind, %#x", n.imm)
	}
	if bad != "" {
		s.cut(fmt.Errorf("%w (%s)", ErrStream, bad))
	}
}

// failed handles the failure of an operation. If the connection has ended, its end is reported elsewhere; otherwise the
// stream would have a hole, so failed cuts it. The leader calls it.
func (s *Stream) failed(status ipc.Status) {
	switch status {
	case ipc.StatusKey, ipc.StatusOwner, ipc.StatusPermission, ipc.StatusBounds, ipc.StatusLocal, ipc.StatusLimit,
		ipc.StatusQuota:
		s.cut(fmt.Errorf("edge: part of the stream was refused: %w", statusError[status]))
	}
}

// cut ends the connection at once, for a reason of this end.
func (s *Stream) cut(err error) {
	if s.c.Err() != nil {
		return // the peer may break the rules many times
	}
	go s.c.d.tell(&ipc.Message{Kind: ipc.KindAbort, Conn: s.c.id})
	s.c.fail(err)
}

// peer returns the peer's ring, or nil until it is known, soon after the connection was made.
func (s *Stream) peer() (*RemoteRegion, error) {
	if r := s.peerRing.Load(); r != nil {
		return r, nil
	}
	s.c.mu.Lock()
	r := s.c.adverts[streamRing]
	s.c.mu.Unlock()
	if r == nil {
		return nil, nil
	}
	return s.adopt(r)
}

func (s *Stream) adopt(r *RemoteRegion) (*RemoteRegion, error) {
	if !streamBufferSize(r.size) || r.perm&RemoteWrite == 0 {
		err := fmt.Errorf("%w (a ring of %d bytes with permission %v)", ErrStream, r.size, r.perm)
		s.cut(err)
		return nil, err
	}
	s.peerRing.CompareAndSwap(nil, r)
	return s.peerRing.Load(), nil
}

// ended returns why the connection ended.
func (s *Stream) ended() error { return inStreamTerms(s.c.Err()) }

// inStreamTerms turns an orderly end of the connection into ErrReset: only an end by clause 11.6 is an orderly end of a
// stream.
func inStreamTerms(err error) error {
	if errors.Is(err, ErrPeerClosed) || errors.Is(err, ErrAborted) {
		return ErrReset
	}
	return err
}

// fault makes the error that a method returns.
func (s *Stream) fault(op string, err error) error {
	switch {
	case err == nil, err == io.EOF:
		return err
	case s.closed.Load():
		err = net.ErrClosed
	}
	return s.opError(op, err)
}

func (s *Stream) opError(op string, err error) error {
	if err == nil {
		return nil
	}
	return &net.OpError{Op: op, Net: streamNetwork, Source: s.local, Addr: s.remote, Err: err}
}

// errShut is what Write returns after CloseWrite, as TCP does.
const errShut = syscall.EPIPE
