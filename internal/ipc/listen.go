package ipc

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// DefaultSocket is where the daemon listens; SocketEnv names the environment variable that overrides it for clients.
const (
	DefaultSocket = "/run/edged/edged.sock"
	SocketEnv     = "EDGE_SOCKET"
)

// Dial connects to a daemon. The error wraps the system's: fs.ErrNotExist and ECONNREFUSED mean no daemon runs there,
// fs.ErrPermission that the user may not use it.
func Dial(ctx context.Context, path string) (*Conn, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, "unixpacket", path)
	if err != nil {
		return nil, err
	}
	return NewConn(c.(*net.UnixConn)), nil
}

// Listener accepts clients.
type Listener struct{ ul *net.UnixListener }

// Listen makes the socket with permission bits mode, and its directory if needed. A socket that a dead daemon left
// behind is replaced; one that a live daemon serves is an error.
func Listen(path string, mode os.FileMode) (*Listener, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("ipc: directory of the control socket: %w", err)
	}
	if err := removeStale(path); err != nil {
		return nil, err
	}
	lc := net.ListenConfig{Control: refuseFDs}
	l, err := lc.Listen(context.Background(), "unixpacket", path)
	if err != nil {
		return nil, fmt.Errorf("ipc: control socket: %w", err)
	}
	ul := l.(*net.UnixListener)
	if err := os.Chmod(path, mode); err != nil {
		ul.Close()
		return nil, fmt.Errorf("ipc: control socket: %w", err)
	}
	return &Listener{ul}, nil
}

// refuseFDs has the kernel refuse descriptors from clients, from before the first can connect: closing a stranger's
// file may take as long as he likes. Kernels before Linux 6.16 cannot do that; there Recv closes them.
func refuseFDs(_, _ string, c syscall.RawConn) error {
	return c.Control(func(fd uintptr) { unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_PASSRIGHTS, 0) })
}

func removeStale(path string) error {
	st, err := os.Lstat(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("ipc: control socket: %w", err)
	}
	if st.Mode()&os.ModeSocket == 0 {
		return fmt.Errorf("ipc: %s exists and is not a socket; choose another path for the control socket", path)
	}
	c, err := net.Dial("unixpacket", path)
	if err == nil {
		c.Close()
		return fmt.Errorf("ipc: another daemon serves %s; stop it or choose another socket", path)
	}
	if !errors.Is(err, unix.ECONNREFUSED) {
		return fmt.Errorf("ipc: control socket: %w", err)
	}
	return os.Remove(path)
}

// Accept waits for a client. It returns net.ErrClosed after Close.
func (l *Listener) Accept() (*Conn, error) {
	uc, err := l.ul.AcceptUnix()
	if err != nil {
		return nil, err
	}
	return NewConn(uc), nil
}

// Close stops listening and removes the socket.
func (l *Listener) Close() error { return l.ul.Close() }
