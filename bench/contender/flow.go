package contender

import (
	"io"

	"golang.org/x/sys/unix"

	"multiedge/bench/bytestream"
	"multiedge/bench/kit"
	"multiedge/bench/report"
	"multiedge/internal/lab"
	"multiedge/internal/mono"
)

// flow is a stream between the hosts, and what was sent over it. Its memory outlives its connections.
type flow struct {
	from, to *bytestream.End // the sending and the receiving one
	sockets  []*socket       // below them, from's first; none while it is not connected
	bytes    uint64
}

// newFlow makes the memory of a stream on which from sends to to.
func newFlow(j *Job, from, to *lab.Host) *flow {
	echo := j.Test == report.PingPong
	f := &flow{}
	err := kit.Try(func() {
		f.from = kit.Get(bytestream.NewEnd(j.Size, j.Region, true, echo))
		f.to = kit.Get(bytestream.NewEnd(j.Size, j.Region, echo, true))
	})
	if err != nil {
		f.close()
	}
	kit.Check(err)
	return f
}

// connect connects the ends, or just two sockets where there are none. With noDelay, TCP does not hold back a short
// message.
func (f *flow) connect(from, to *lab.Host, noDelay bool) {
	listener := newSocket(to)
	defer listener.Close()
	kit.Check(unix.Bind(listener.fd, name(to)))
	kit.Check(unix.Listen(listener.fd, 1))
	client := newSocket(from)
	f.sockets = append(f.sockets, client)
	kit.Check(unix.Connect(client.fd, kit.Get(unix.Getsockname(listener.fd))))
	fd, _ := kit.Get2(unix.Accept4(listener.fd, unix.SOCK_CLOEXEC))
	server := &socket{fd: fd}
	f.sockets = append(f.sockets, server)
	if f.from != nil {
		f.from.Conn, f.to.Conn = client, server
	}
	if noDelay {
		kit.Check(unix.SetsockoptInt(client.fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1))
		kit.Check(unix.SetsockoptInt(server.fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1))
	}
}

// confirm confirms the congestion control of both sockets.
func (f *flow) confirm(o Over, row *report.Row) {
	for _, s := range f.sockets {
		name, err := unix.GetsockoptString(s.fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION)
		kit.Checkf(err, "TCP_CONGESTION")
		kit.Check(o.confirm(row, name))
	}
}

func (f *flow) send(size int, stop mono.Time) {
	f.bytes = f.from.Send(stop) * uint64(max(size, 1))
}

// shutdown ends blocking calls on the flow.
func (f *flow) shutdown() {
	for _, s := range f.sockets {
		_ = unix.Shutdown(s.fd, unix.SHUT_RDWR)
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
type socket struct {
	fd    int
	calls uint64 // reads and writes, of the thread that uses it
}

// newSocket returns a socket in a host.
func newSocket(h *lab.Host) *socket {
	s := &socket{fd: -1}
	kit.Check(h.Do(func() (err error) {
		family := unix.AF_INET
		if h.IP(0).Is6() {
			family = unix.AF_INET6
		}
		s.fd, err = unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		return err
	}))
	return s
}

// name is a host's address, with any port.
func name(h *lab.Host) unix.Sockaddr {
	if ip := h.IP(0); ip.Is6() {
		return &unix.SockaddrInet6{Addr: ip.As16()}
	}
	return &unix.SockaddrInet4{Addr: h.IP(0).As4()}
}

// retry repeats a call that a signal interrupted.
func (s *socket) retry(call func() (int, error)) (int, error) {
	for {
		s.calls++
		n, err := call()
		if err != unix.EINTR {
			return max(n, 0), err
		}
	}
}

// Read implements bytestream.Conn.
func (s *socket) Read(p []byte) (int, error) {
	n, err := s.retry(func() (int, error) { return unix.Read(s.fd, p) })
	if n == 0 && err == nil && len(p) > 0 {
		return 0, io.EOF
	}
	return n, err
}

// Write implements bytestream.Conn.
func (s *socket) Write(p []byte) (done int, err error) {
	for done < len(p) && err == nil {
		var n int
		n, err = s.retry(func() (int, error) { return unix.Write(s.fd, p[done:]) })
		done += n
	}
	return done, err
}

// CloseWrite implements bytestream.Conn.
func (s *socket) CloseWrite() error { return unix.Shutdown(s.fd, unix.SHUT_WR) }

// Close implements bytestream.Conn.
func (s *socket) Close() error { return unix.Close(s.fd) }
