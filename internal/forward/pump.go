package forward

import (
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
)

// socket is what both sides of a forwarded connection have.
type socket interface {
	net.Conn
	CloseWrite() error
}

// resetter is a socket that can end without telling its peer that all was said: stream.Conn.
type resetter interface{ Reset() error }

// reset ends a socket so that its peer sees a broken connection and no end of file.
func reset(s socket) {
	if r, ok := s.(resetter); ok {
		r.Reset()
		return
	}
	if t, ok := s.(*net.TCPConn); ok {
		t.SetLinger(0) // RST instead of FIN
	}
	s.Close() // a Unix socket knows no reset: what was not read yet makes it ECONNRESET
}

// buffers are as long as what one Read of a stream usually brings.
var buffers = sync.Pool{New: func() any { b := make([]byte, 64<<10); return &b }}

// pump carries bytes both ways until both directions ended, and closes both sockets. In an error of one direction both
// are reset.
func pump(local, remote socket, out, in *atomic.Uint64) error {
	errs := make(chan error, 2)
	one := func(dst, src socket, n *atomic.Uint64) {
		err := carry(dst, src, n)
		if err != nil { // the other direction must end too
			reset(local)
			reset(remote)
		}
		errs <- err
	}
	go one(remote, local, out)
	one(local, remote, in)
	err := <-errs
	if second := <-errs; err == nil || errors.Is(err, net.ErrClosed) && second != nil {
		err = second
	}
	if err == nil {
		err = remote.Close() // waits until the peer has everything
	}
	local.Close()
	return err
}

// carry copies until src ends, and passes the end on.
func carry(dst, src socket, n *atomic.Uint64) error {
	buf := buffers.Get().(*[]byte)
	defer buffers.Put(buf)
	for {
		got, err := src.Read(*buf)
		if got > 0 {
			if _, err := dst.Write((*buf)[:got]); err != nil {
				return err
			}
			n.Add(uint64(got))
		}
		switch {
		case err == io.EOF:
			return dst.CloseWrite()
		case err != nil:
			return err
		}
	}
}
