package ethtool

import (
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ioctl makes a SIOCETHTOOL request, which the kernel answers in place.
func ioctl(fd int, link string, m message) error {
	var req struct { // struct ifreq
		name [unix.IFNAMSIZ]byte
		data unsafe.Pointer
		_    [16]byte
	}
	copy(req.name[:], link)
	req.data = unsafe.Pointer(unsafe.SliceData(m))
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&req)))
	runtime.KeepAlive(m)
	if errno != 0 {
		return errno
	}
	return nil
}
