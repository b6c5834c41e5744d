package linkdrv

import (
	"runtime"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// checksumOffload switches an interface's transmit checksums, and with them all segmentation, on or off: without them the kernel cuts super-frames up.
func checksumOffload(t testing.TB, name string, on bool) {
	t.Helper()
	v := struct{ cmd, data uint32 }{cmd: unix.ETHTOOL_STXCSUM}
	if on {
		v.data = 1
	}
	var req struct {
		name [unix.IFNAMSIZ]byte
		data unsafe.Pointer
		_    [16]byte
	}
	copy(req.name[:], name)
	req.data = unsafe.Pointer(&v)
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&req))); errno != 0 {
		t.Fatalf("checksum offload of %s: %v", name, errno)
	}
	runtime.KeepAlive(&v)
}
