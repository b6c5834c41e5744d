package ipc

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Groups returns the groups that the process at the other end had when it connected, its primary one among them
// (SO_PEERCRED, SO_PEERGROUPS).
func (c *Conn) Groups() ([]uint32, error) {
	cred, err := c.Peer()
	if err != nil {
		return nil, err
	}
	rc, err := c.uc.SyscallConn()
	if err != nil {
		return nil, err
	}
	groups, errno := make([]uint32, 64), unix.Errno(0)
	err = rc.Control(func(fd uintptr) {
		for range 2 {
			size := uint32(len(groups) * 4)
			_, _, errno = unix.Syscall6(unix.SYS_GETSOCKOPT, fd, unix.SOL_SOCKET, unix.SO_PEERGROUPS,
				uintptr(unsafe.Pointer(&groups[0])), uintptr(unsafe.Pointer(&size)), 0)
			if errno != unix.ERANGE { // size says how many there are
				groups = groups[:min(int(size/4), len(groups))]
				return
			}
			groups = make([]uint32, size/4)
		}
	})
	if err == nil && errno != 0 && errno != unix.ENODATA { // none was recorded: a socket pair of our own
		err = fmt.Errorf("ipc: SO_PEERGROUPS: %w", errno)
	}
	if err != nil {
		return nil, err
	}
	if errno != 0 {
		groups = groups[:0]
	}
	return append(groups, cred.GID), nil
}
