package ipc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// MaxFDs is the number of descriptors one message may carry.
const MaxFDs = 3

// SendTimeout bounds how long Send waits for a peer that does not read.
const SendTimeout = 5 * time.Second

// ErrDescriptors is returned by Recv for a message with descriptors nobody expects; they have been closed.
var ErrDescriptors = errors.New("ipc: message with unexpected descriptors")

// Conn is one end of a control socket. Send may be called by many goroutines, Recv and RecvFDs by one. Close interrupts
// both.
type Conn struct {
	uc   *net.UnixConn
	turn chan struct{} // full while somebody sends
	told *Rings        // where packets that were sent are counted; nil: nowhere. By who sends
	buf  []byte
	last int // bytes of the packet in buf
	oob  []byte
}

// NewConn takes over a connected SEQPACKET socket.
func NewConn(uc *net.UnixConn) *Conn {
	return &Conn{uc: uc, turn: make(chan struct{}, 1)}
}

// Pair returns two connected ends, for an embedded daemon and for tests.
func Pair() (a, b *Conn, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("ipc: socketpair: %w", err)
	}
	a, errA := fromFD(fds[0])
	b, errB := fromFD(fds[1])
	if err := errors.Join(errA, errB); err != nil {
		for _, c := range []*Conn{a, b} {
			if c != nil {
				c.Close()
			}
		}
		return nil, nil, err
	}
	return a, b, nil
}

func fromFD(fd int) (*Conn, error) { return FromFile(os.NewFile(uintptr(fd), "ipc")) }

// FromFile makes a Conn of a connected SEQPACKET socket. It closes f, also on error.
func FromFile(f *os.File) (*Conn, error) {
	defer f.Close()
	c, err := net.FileConn(f)
	if err != nil {
		return nil, fmt.Errorf("ipc: %w", err)
	}
	uc, ok := c.(*net.UnixConn)
	if !ok {
		c.Close()
		return nil, errors.New("ipc: descriptor is not a Unix socket")
	}
	return NewConn(uc), nil
}

// Send sends m with descriptors, which stay the caller's. An error means the connection is of no further use, except
// for a message that cannot be encoded.
func (c *Conn) Send(m *Message, fds ...int) error {
	return c.SendContext(context.Background(), m, fds...)
}

// SendContext is Send that gives up when ctx ends, and then returns its error: nothing of m was sent, since a packet is
// sent whole or not at all, and the connection can be used further.
func (c *Conn) SendContext(ctx context.Context, m *Message, fds ...int) error {
	b, err := m.Encode()
	if err != nil {
		return err
	}
	if len(fds) > MaxFDs {
		return fmt.Errorf("ipc: %d descriptors in one message; at most %d are allowed", len(fds), MaxFDs)
	}
	var oob []byte
	if len(fds) > 0 {
		oob = unix.UnixRights(fds...)
	}
	select {
	case c.turn <- struct{}{}:
		defer func() { <-c.turn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if err := c.uc.SetWriteDeadline(time.Now().Add(SendTimeout)); err != nil {
		return err
	}
	cut := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		c.uc.SetWriteDeadline(time.Now())
		close(cut)
	})
	if _, _, err = c.uc.WriteMsgUnix(b, oob, nil); err == nil && c.told != nil {
		c.told.tell()
	}
	if !stop() {
		<-cut // or it would cut short the next Send
		if errors.Is(err, os.ErrDeadlineExceeded) {
			err = ctx.Err()
		}
	}
	return err
}

// TrySend is Send of a message without descriptors, by somebody who must not wait: false if there is no room, another
// message is being sent, or the connection is of no use. Then nothing was sent.
func (c *Conn) TrySend(m *Message) (sent bool) {
	b, err := m.Encode()
	if err != nil {
		return false
	}
	select {
	case c.turn <- struct{}{}:
		defer func() { <-c.turn }()
	default:
		return false
	}
	rc, err := c.uc.SyscallConn()
	if err != nil {
		return false
	}
	rc.Control(func(fd uintptr) {
		sent = unix.Sendto(int(fd), b, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, nil) == nil
	})
	if sent && c.told != nil {
		c.told.tell()
	}
	return sent
}

// Count has packets counted in the client's rings (ABI A6.3) from the next one on, or, with nil, no more: when it
// returns nobody uses the rings of before.
func (c *Conn) Count(r *Rings) {
	c.turn <- struct{}{}
	c.told = r
	<-c.turn
}

// TakeDescriptors lets the other end send descriptors, which Listen has the kernel refuse.
func (c *Conn) TakeDescriptors() error {
	rc, err := c.uc.SyscallConn()
	if err != nil {
		return err
	}
	return rc.Control(func(fd uintptr) { // kernels that do not know the option take them always
		unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_PASSRIGHTS, 1)
	})
}

// Recv receives a message that carries no descriptors. io.EOF: the peer is gone.
func (c *Conn) Recv() (*Message, error) {
	m, fds, err := c.RecvFDs()
	if len(fds) > 0 {
		CloseFDs(fds)
		return nil, ErrDescriptors
	}
	return m, err
}

// buffers are those of connections on which nobody receives any more. Without them clients that come and go would keep
// the runtime collecting garbage.
var buffers = sync.Pool{New: func() any { return new([MaxMessage + 1]byte) }}

// Received says that who has called Recv or RecvFDs will not do so any more.
func (c *Conn) Received() {
	if c.buf != nil {
		buffers.Put((*[MaxMessage + 1]byte)(c.buf))
		c.buf = nil
	}
}

// RecvFDs receives a message and its descriptors, which become the caller's (close-on-exec is set). On error there are
// none, and a message only as Decode says.
func (c *Conn) RecvFDs() (*Message, []int, error) {
	if c.buf == nil { // not before: a connection that is turned away costs little
		c.buf, c.oob = buffers.Get().(*[MaxMessage + 1]byte)[:], make([]byte, unix.CmsgSpace(MaxFDs*4))
	}
	n, oobn, flags, _, err := c.uc.ReadMsgUnix(c.buf, c.oob)
	fds, fdErr := parseRights(c.oob[:oobn])
	switch {
	case errors.Is(err, io.EOF):
		err = io.EOF // bare, without the socket's name
	case err != nil:
	case n == 0:
		err = io.EOF
	case fdErr != nil:
		err = fdErr
	case flags&unix.MSG_CTRUNC != 0:
		err = ErrDescriptors
	case flags&unix.MSG_TRUNC != 0 || n > MaxMessage:
		err = fmt.Errorf("ipc: message exceeds %d bytes", MaxMessage)
	}
	var m *Message
	if c.last = max(n, 0); err == nil {
		m, err = Decode(c.buf[:n])
	}
	if err != nil {
		CloseFDs(fds)
		return m, nil, err
	}
	return m, fds, nil
}

// parseRights may return descriptors together with an error: they are open.
func parseRights(oob []byte) (fds []int, err error) {
	if len(oob) == 0 {
		return nil, nil
	}
	msgs, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, fmt.Errorf("ipc: control data: %w", err)
	}
	for i := range msgs {
		if len(msgs[i].Data)%4 != 0 { // no kernel sends that, and the parser would fault
			return fds, errors.New("ipc: control data: descriptors of a broken size")
		}
		got, err := unix.ParseUnixRights(&msgs[i])
		if err == nil {
			fds = append(fds, got...)
		}
	}
	return fds, nil
}

// CloseFDs closes descriptors that came with a message and are not used.
func CloseFDs(fds []int) {
	for _, fd := range fds {
		unix.Close(fd)
	}
}

// Cred is who is at the other end, as the kernel recorded it when the socket was connected.
type Cred struct {
	PID      int32
	UID, GID uint32
}

// Peer returns the credentials of the other end.
func (c *Conn) Peer() (Cred, error) {
	rc, err := c.uc.SyscallConn()
	if err != nil {
		return Cred{}, err
	}
	var uc *unix.Ucred
	var optErr error
	if err := rc.Control(func(fd uintptr) {
		uc, optErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET,
			unix.SO_PEERCRED)
	}); err != nil {
		return Cred{}, err
	}
	if optErr != nil {
		return Cred{}, fmt.Errorf("ipc: SO_PEERCRED: %w", optErr)
	}
	return Cred{PID: uc.Pid, UID: uc.Uid, GID: uc.Gid}, nil
}

// Gone reports whether an end is closed. What the other sent before is still to be received.
func (c *Conn) Gone() bool {
	gone := true
	if rc, err := c.uc.SyscallConn(); err == nil {
		rc.Control(func(fd uintptr) {
			p := []unix.PollFd{{Fd: int32(fd)}}
			unix.Poll(p, 0)
			gone = p[0].Revents&(unix.POLLHUP|unix.POLLERR) != 0
		})
	}
	return gone
}

// Close closes the socket.
func (c *Conn) Close() error { return c.uc.Close() }
