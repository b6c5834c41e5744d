package contender

import (
	"errors"
	"io"

	"golang.org/x/sys/unix"

	"multiedge/bench/bytestream"
	"multiedge/bench/report"
	"multiedge/internal/lab"
	"multiedge/internal/mono"
)

// flow is a stream between the hosts, and what was sent over it. Its memory outlives its connections.
type flow struct {
	from, to *bytestream.End // the sending and the receiving one
	sockets  []socket        // below them, from's first; none while it is not connected
	bytes    uint64
}

// newFlow makes the memory of a stream on which from sends to to.
func newFlow(j *Job, from, to *lab.Host) (*flow, error) {
	echo := j.Test == report.PingPong
	f := &flow{}
	var err error
	if f.from, err = bytestream.NewEnd(j.Size, j.Region, true, echo); err == nil {
		f.to, err = bytestream.NewEnd(j.Size, j.Region, echo, true)
	}
	if err != nil {
		f.close()
		return nil, err
	}
	return f, nil
}

// connect connects the ends, or just two sockets where there are none. With noDelay, TCP does not hold back a short
// message.
func (f *flow) connect(from, to *lab.Host, noDelay bool) error {
	listener, err := newSocket(to)
	if err != nil {
		return err
	}
	defer listener.Close()
	addr := &unix.SockaddrInet4{Addr: to.IP(0).As4()}
	if err := errors.Join(unix.Bind(int(listener), addr), unix.Listen(int(listener), 1)); err != nil {
		return err
	}
	bound, err := unix.Getsockname(int(listener))
	if err != nil {
		return err
	}
	client, err := newSocket(from)
	if err != nil {
		return err
	}
	f.sockets = append(f.sockets, client)
	if err := unix.Connect(int(client), bound); err != nil {
		return err
	}
	server, _, err := unix.Accept4(int(listener), unix.SOCK_CLOEXEC)
	if err != nil {
		return err
	}
	f.sockets = append(f.sockets, socket(server))
	if f.from != nil {
		f.from.Conn, f.to.Conn = client, socket(server)
	}
	if !noDelay {
		return nil
	}
	return errors.Join(unix.SetsockoptInt(int(client), unix.IPPROTO_TCP, unix.TCP_NODELAY, 1),
		unix.SetsockoptInt(server, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1))
}

// confirm confirms the congestion control of both sockets.
func (f *flow) confirm(o Over, row *report.Row) error {
	for _, s := range f.sockets {
		name, err := s.congestion()
		if err == nil {
			err = o.confirm(row, name)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (f *flow) send(size int, stop mono.Time) error {
	n, err := f.from.Send(stop)
	f.bytes = n * uint64(max(size, 1))
	return err
}

// shutdown ends blocking calls on the flow.
func (f *flow) shutdown() {
	for _, s := range f.sockets {
		_ = unix.Shutdown(int(s), unix.SHUT_RDWR)
	}
}

// hangUp closes the connection, if there is one.
func (f *flow) hangUp() {
	for _, s := range f.sockets {
		s.Close() // everything that counts was confirmed
	}
	f.sockets = nil
	for _, e := range []*bytestream.End{f.from, f.to} {
		if e != nil {
			e.Conn = nil
		}
	}
}

// close closes the connection and gives the memory back.
func (f *flow) close() {
	f.hangUp()
	for _, e := range []*bytestream.End{f.from, f.to} {
		if e != nil {
			e.Close()
		}
	}
}

// socket is a connected TCP socket that blocks the thread.
type socket int

// newSocket returns a socket in a host.
func newSocket(h *lab.Host) (socket, error) {
	fd := -1
	err := h.Do(func() (err error) {
		fd, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		return err
	})
	return socket(fd), err
}

// retry repeats a call that a signal interrupted.
func retry(call func() (int, error)) (int, error) {
	for {
		n, err := call()
		if err != unix.EINTR {
			return max(n, 0), err
		}
	}
}

// Read implements bytestream.Conn.
func (s socket) Read(p []byte) (int, error) {
	n, err := retry(func() (int, error) { return unix.Read(int(s), p) })
	if n == 0 && err == nil && len(p) > 0 {
		return 0, io.EOF
	}
	return n, err
}

// Write implements bytestream.Conn.
func (s socket) Write(p []byte) (done int, err error) {
	for done < len(p) && err == nil {
		var n int
		n, err = retry(func() (int, error) { return unix.Write(int(s), p[done:]) })
		done += n
	}
	return done, err
}

// CloseWrite implements bytestream.Conn.
func (s socket) CloseWrite() error { return unix.Shutdown(int(s), unix.SHUT_WR) }

// Close implements bytestream.Conn.
func (s socket) Close() error { return unix.Close(int(s)) }
