package stream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"multiedge/edge"
	"multiedge/edge/internal/inner"
)

// A stream is bytes in both directions, over the one-sided operations of a connection (PROTOCOL clause 11). Each end
// exports a ring to the other:
//
//	Write: p is copied to the send buffer -> a write with Notify into the peer's ring, one for each piece
//	       ... whoever waits on the peer's Device takes the notification and moves tail: that much is there to read
//	Read:  copied from the ring to p; when a quarter of the ring was read, a notification back says
//	       so: that much may be sent
//
// A stream has no goroutine, except while credit finds no room. The connection's notifications come to it as they
// arrive (inner.Tap) and are counters that move, so that the daemon's credit for them always returns and a stream that
// nobody reads holds up nothing but its own peer. What a Read or a Write waits for is the cond of its half: canRead and
// canWrite say whether it can go on, and Interrupt lets it look because its deadline passed or the stream ended.
//
// Guards: half.mu admits one Read and one Write at a time and guards the fields that only they use. Fields that change
// with notifications are atomic. An edge.Region keeps its memory mapped while it is copied from and to.

// core is what a stream uses of package edge besides exported names.
var core = inner.Edge.(interface {
	Shared(context.Context) (*edge.Device, error)
	Log(*edge.Device) *slog.Logger
	Conns(*edge.Device) int
	Silent(*edge.Conn) bool
	Down(*edge.Conn) error
	Tap(*edge.Conn, inner.Tap)
	NewCond(*edge.Conn, func() bool, func() int) inner.Cond
	WaitIdle(context.Context, *edge.Conn) error
	Settled(edge.Op) bool
	Exported(*edge.Conn, string) *edge.RemoteRegion
	Check(c *edge.Conn, r *edge.Region, off, n int) error
	Whole(*edge.Region) bool
	Copy(to *edge.Region, off int, from *edge.Region, at, n int) error
	Export(ctx context.Context, r *edge.Region, c *edge.Conn, name string, perm edge.Perm, off, n int) (*edge.Grant,
		error)
	Redirect(g *edge.Grant, off, n int, to *edge.Region, toOff int) (inner.Redirection, error)
})

// The immediate of a stream's notifications: what is said, and a count or position (clause 11.3).
const (
	immData   = 0 << 30 // a piece that starts at this position, modulo 2^30, is in the ring
	immCredit = 1 << 30 // so many bytes more were read
	immFin    = 2 << 30 // the stream ends at this position

	immKind  = 3 << 30
	immCount = 1<<30 - 1
)

// lingerTime is Conn.linger unless Config says.
const lingerTime = 5 * time.Second

// Conn is a net.Conn over a connection, with half-close. Any number of goroutines may use it. Its errors are
// *net.OpError around values of package edge, but for io.EOF: errors.Is(err, edge.ErrPeerDown), net.ErrClosed,
// os.ErrDeadlineExceeded. Close it, also after an error: it holds registered memory.
type Conn struct {
	c      *edge.Conn
	region *edge.Region // the receive ring, and after it the send buffer
	export *edge.Grant  // of the ring
	ring   int          // bytes of the receive ring
	data   []byte       // private data of the dialler
	local  net.Addr
	remote net.Addr
	// bounds how long Close waits for the peer to have everything, and CloseWrite for room to tell it
	linger time.Duration

	peerRing atomic.Pointer[edge.RemoteRegion] // set by the first that needs it
	closed   atomic.Bool
	broken   atomic.Pointer[error] // why this end cut the connection
	room     inner.Cond            // never holds: for room in the queue

	in  inbound
	out outbound
}

var (
	_ net.Conn  = (*Conn)(nil)
	_ inner.Tap = tap{}
)

// half is what both directions of a stream have: one call at a time, those who wait, and until when.
type half struct {
	mu    sync.Mutex // held by the call under way
	cond  inner.Cond // whether the call under way can go on, or must end; for the holder of mu
	limit deadline
}

// newConn makes the stream of a connection, which has memory but has not exported it. It takes over the notifications
// of c.
func newConn(c *edge.Conn, r *edge.Region, cfg *Config, data []byte) *Conn {
	s := &Conn{
		c: c, region: r, ring: cfg.ReceiveBuffer, data: data, linger: cfg.Linger,
		local: Addr{c.Device().Name(), c.Service()}, remote: Addr{c.Peer(), c.Service()},
	}
	s.in.cond = core.NewCond(c, s.canRead, s.fewToRead)
	s.out.cond = core.NewCond(c, s.canWrite, s.fewToWrite)
	s.room = core.NewCond(c, func() bool { return false }, nil)
	s.out.size = cfg.SendBuffer
	core.Tap(c, tap{s})
	return s
}

// wait waits until the half is ready. The caller holds mu.
func (h *half) wait() { h.cond.Wait(context.Background()) } // returns no error: that context never ends

// waitRoom is wait that also ends when the connection may have room for an operation.
func (h *half) waitRoom() { h.cond.WaitRoom(context.Background()) }

// check returns why a call on a half must end, other than for what happened to the connection.
func (s *Conn) check(h *half) error {
	switch {
	case s.closed.Load():
		return net.ErrClosed
	case !h.limit.expired.Load():
		return nil
	case core.Silent(s.c):
		return silentError{}
	}
	return os.ErrDeadlineExceeded
}

// Read implements net.Conn. It returns what is there, once something is, and io.EOF after everything that the peer
// wrote before it closed the stream or its writing half.
func (s *Conn) Read(p []byte) (int, error) {
	s.in.mu.Lock()
	defer s.in.mu.Unlock()
	n, err := s.read(p)
	return n, s.fault("read", err)
}

// Write implements net.Conn. It returns once all of p has been copied and given to the transport, for which the peer's
// ring needs room. p is the caller's again then. Bytes that were written may still be lost when the connection fails.
// With an error, the count is of the bytes that were given to the transport.
func (s *Conn) Write(p []byte) (int, error) {
	s.out.mu.Lock()
	defer s.out.mu.Unlock()
	n, err := s.write(p)
	return n, s.fault("write", err)
}

// CloseWrite tells the peer that nothing more is written: after what was sent, the peer reads io.EOF. Reading goes on.
// A Write under way ends.
func (s *Conn) CloseWrite() error {
	if s.closed.Load() {
		return s.fault("close", net.ErrClosed)
	}
	s.out.shut.Store(true)
	s.out.cond.Interrupt()
	ctx, cancel := context.WithTimeout(context.Background(), s.linger)
	defer cancel()
	said := make(chan error, 1)
	inTime(ctx, func() { said <- s.finish(ctx) }) // a WriteRegion may keep it waiting
	err := os.ErrDeadlineExceeded
	select {
	case said := <-said:
		if said == nil || ctx.Err() == nil {
			err = said
		}
	default:
	}
	return s.fault("close", err)
}

// Close ends the stream in both directions. Calls under way end with net.ErrClosed. It waits until the peer has in
// memory what was written, 5 seconds at most, and then cuts the connection and returns a timeout. A peer that writes
// meanwhile or afterwards fails with edge.ErrReset.
func (s *Conn) Close() error {
	if s.closed.Swap(true) {
		return s.fault("close", net.ErrClosed)
	}
	s.interrupt()
	ctx, cancel := context.WithTimeout(context.Background(), s.linger)
	defer cancel()
	var err error
	if s.broken.Load() == nil { // else release aborts: the peer need not have what was written
		inTime(ctx, func() { s.finish(ctx) }) // its failure shows in the next, or is that the connection has ended
		err = s.c.CloseContext(ctx)
		if err != nil && ctx.Err() == nil {
			err = nil // the connection is over, that is all
		}
	}
	s.release(ctx)
	if err != nil {
		err = os.ErrDeadlineExceeded
	}
	return s.opError("close", err)
}

// interrupt ends calls under way, and their deadlines.
func (s *Conn) interrupt() {
	s.in.limit.stop()
	s.out.limit.stop()
	s.in.cond.Interrupt()
	s.out.cond.Interrupt()
}

// release gives the memory back once no operation uses it. After ctx ends, this goes on in the background until it is
// done or the daemon has gone.
func (s *Conn) release(ctx context.Context) {
	inTime(ctx, func() {
		s.c.Abort() // unless it was closed
		core.WaitIdle(context.Background(), s.c)
		if err := s.region.Close(); err != nil {
			core.Log(s.c.Device()).Warn("edge: memory of a stream stays pinned until the device is closed", "peer",
				s.c.Peer(), "service", s.c.Service(), "reason", err)
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
func (s *Conn) abandon(ctx context.Context) {
	s.closed.Store(true)
	ctx, cancel := context.WithTimeout(ctx, s.linger)
	defer cancel()
	s.release(ctx)
}

// LocalAddr returns this node's name and the service, an Addr.
func (s *Conn) LocalAddr() net.Addr { return s.local }

// RemoteAddr returns the peer's name and the service, an Addr.
func (s *Conn) RemoteAddr() net.Addr { return s.remote }

// Data returns at the accepting end what the other side dialled with (Config.Data). It must not be modified.
func (s *Conn) Data() []byte { return s.data }

// cut ends the connection at once, for a reason of this end.
func (s *Conn) cut(err error) {
	if !s.broken.CompareAndSwap(nil, &err) {
		return // the peer may break the rules many times
	}
	go s.c.Abort()
	s.in.cond.Interrupt()
	s.out.cond.Interrupt()
}

// peer returns the peer's ring, or nil until it is known, soon after the connection was made.
func (s *Conn) peer() (*edge.RemoteRegion, error) {
	if r := s.peerRing.Load(); r != nil {
		return r, nil
	}
	r := core.Exported(s.c, ringName)
	if r == nil {
		return nil, nil
	}
	return s.adopt(r)
}

func (s *Conn) adopt(r *edge.RemoteRegion) (*edge.RemoteRegion, error) {
	if !bufferSize(r.Size()) || r.Perm()&edge.RemoteWrite == 0 {
		err := fmt.Errorf("%w (a ring of %d bytes with permission %v)", ErrProtocol, r.Size(), r.Perm())
		s.cut(err)
		return nil, err
	}
	s.peerRing.CompareAndSwap(nil, r)
	return s.peerRing.Load(), nil
}

// ended returns why the stream ended, other than by the rules of clause 11.6.
func (s *Conn) ended() error {
	if err := s.broken.Load(); err != nil {
		return *err
	}
	return inStreamTerms(s.c.Err())
}

// inStreamTerms turns an orderly end of the connection into ErrReset: only an end by clause 11.6 is an orderly end of a
// stream.
func inStreamTerms(err error) error {
	if errors.Is(err, edge.ErrPeerClosed) || errors.Is(err, edge.ErrAborted) {
		return edge.ErrReset
	}
	return err
}

// fault makes the error that a method returns.
func (s *Conn) fault(op string, err error) error {
	switch {
	case err == nil, err == io.EOF:
		return err
	case s.closed.Load():
		err = net.ErrClosed
	default:
		if why := s.broken.Load(); why != nil { // the connection says only that this end has aborted it
			err = *why
		}
	}
	return s.opError(op, err)
}

func (s *Conn) opError(op string, err error) error {
	if err == nil {
		return nil
	}
	return &net.OpError{Op: op, Net: network, Source: s.local, Addr: s.remote, Err: err}
}

// errShut is what Write returns after CloseWrite, as TCP does.
const errShut = syscall.EPIPE
