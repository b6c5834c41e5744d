package linkdrv

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// The raw, never-waiting system calls of the packet path. Why raw: see the package comment.

// sendmmsg offers hdrs (at least one) to the kernel. errno describes the first message only; it is 0 if any was taken.
func sendmmsg(fd int, hdrs []unix.Mmsghdr) (n int, errno unix.Errno) {
	r, _, errno := unix.RawSyscall6(unix.SYS_SENDMMSG, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(hdrs))),
		uintptr(len(hdrs)),
		unix.MSG_DONTWAIT, 0, 0)
	return int(r), errno
}

// recvmmsg fills the buffers of hdrs (at least one) and sets their Len and Flags.
func recvmmsg(fd int, hdrs []unix.Mmsghdr) (n int, errno unix.Errno) {
	r, _, errno := unix.RawSyscall6(unix.SYS_RECVMMSG, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(hdrs))),
		uintptr(len(hdrs)),
		unix.MSG_DONTWAIT, 0, 0)
	return int(r), errno
}

// socketError reads and clears the error that waits on the socket; 0 if there is none.
func socketError(fd int) unix.Errno {
	var v int32
	size := uint32(unsafe.Sizeof(v))
	_, _, errno := unix.RawSyscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_ERROR,
		uintptr(unsafe.Pointer(&v)), uintptr(unsafe.Pointer(&size)), 0)
	if errno != 0 {
		return errno
	}
	return unix.Errno(v)
}

// isDown reports whether the interface of that index is set down or, when it is deleted, is listed no more. Other than
// a Send it leaves the socket's report alone.
func isDown(fd, index int) bool {
	var r struct { // struct ifreq
		name  [unix.IFNAMSIZ]byte
		value [3]uint64 // a union
	}
	*(*int32)(unsafe.Pointer(&r.value)) = int32(index)
	for _, ask := range [...]uintptr{unix.SIOCGIFNAME, unix.SIOCGIFFLAGS} {
		if _, _, errno := unix.RawSyscall(unix.SYS_IOCTL, uintptr(fd), ask, uintptr(unsafe.Pointer(&r))); errno != 0 {
			return errno == unix.ENODEV
		}
	}
	return *(*uint16)(unsafe.Pointer(&r.value))&unix.IFF_UP == 0
}

// boundIndex returns the index of the interface a packet socket is bound to: -1 once that was deleted, 0 if the
// question fails.
func boundIndex(fd int) int {
	var sa unix.RawSockaddrLinklayer
	size := uint32(unsafe.Sizeof(sa))
	_, _, errno := unix.RawSyscall(unix.SYS_GETSOCKNAME, uintptr(fd), uintptr(unsafe.Pointer(&sa)),
		uintptr(unsafe.Pointer(&size)))
	if errno != 0 {
		return 0
	}
	return int(sa.Ifindex)
}
