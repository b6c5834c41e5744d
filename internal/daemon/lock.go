package daemon

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"multiedge/internal/config"
	"multiedge/internal/ipc"

	"golang.org/x/sys/unix"
)

// lockSocket makes sure that only one daemon serves a socket path. The lock is on a file beside the socket and ends
// with the process, however it ends; the file stays.
func lockSocket(socket string) (*os.File, error) {
	dir := filepath.Dir(socket)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, socketError(socket, err)
	}
	f, err := os.OpenFile(socket+".lock", os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, socketError(socket, err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		holder, _ := os.ReadFile(f.Name())
		f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil,
				fmt.Errorf("another daemon (process %s) serves %s; stop it (systemctl stop edged) or give this one "+
					"another path by --socket",
					strings.TrimSpace(string(holder)), socket)
		}
		return nil, socketError(socket, err)
	}
	if err := f.Truncate(0); err == nil {
		f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	}
	return f, nil
}

func socketError(socket string, err error) error {
	if errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("control socket %s: %w; run as root or give another path by --socket (or $%s)", socket, err,
			ipc.SocketEnv)
	}
	return fmt.Errorf("control socket %s: %w; give another path by --socket (or $%s)", socket, err, ipc.SocketEnv)
}

// listenSocket makes the control socket with the configured permissions. The caller holds the lock.
func listenSocket(cfg *config.Config) (*ipc.Listener, error) {
	gid, err := cfg.GroupID()
	if err != nil {
		return nil, err
	}
	mode, err := config.ParseMode(cfg.Mode)
	if err != nil {
		return nil, err
	}
	l, err := ipc.Listen(cfg.Socket, mode)
	if err != nil {
		if errors.Is(err, fs.ErrPermission) {
			return nil, socketError(cfg.Socket, err)
		}
		return nil, err
	}
	if gid >= 0 {
		if err := os.Chown(cfg.Socket, -1, gid); err != nil {
			l.Close()
			return nil, fmt.Errorf("giving the control socket to group %q: %w", cfg.Group, err)
		}
	}
	return l, nil
}
