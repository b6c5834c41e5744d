package daemon

import (
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ethtoolCoalesce begins as struct ethtool_coalesce of linux/ethtool.h does; the kernel writes all of it.
type ethtoolCoalesce struct {
	cmd     uint32
	rxUsecs uint32
	_       [21]uint32
}

// rxDelay returns for how many microseconds a NIC may hold a received frame back before it interrupts; ok is false if it does not say.
func rxDelay(name string) (usecs uint32, ok bool) {
	c := ethtoolCoalesce{cmd: unix.ETHTOOL_GCOALESCE}
	if !ethtool(name, unsafe.Pointer(&c)) {
		return 0, false
	}
	return c.rxUsecs, true
}

// largeReceive reports whether the NIC itself glues received frames together.
func largeReceive(name string) (on, ok bool) {
	const flagLRO = 1 << 15
	v := struct{ cmd, data uint32 }{cmd: unix.ETHTOOL_GFLAGS}
	if !ethtool(name, unsafe.Pointer(&v)) {
		return false, false
	}
	return v.data&flagLRO != 0, true
}

// ethtool does one SIOCETHTOOL request. data begins with the command.
func ethtool(name string, data unsafe.Pointer) bool {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	var req struct {
		name [unix.IFNAMSIZ]byte
		data unsafe.Pointer
		_    [16]byte
	}
	if len(name) >= len(req.name) {
		return false
	}
	copy(req.name[:], name)
	req.data = data
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&req)))
	runtime.KeepAlive(data)
	return errno == 0
}
