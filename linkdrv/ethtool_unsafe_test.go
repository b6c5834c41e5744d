package linkdrv

import (
	"encoding/binary"
	"runtime"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// feature switches an offload of an interface on or off, by its name in "ethtool -k".
func feature(t testing.TB, link, name string, on bool) {
	t.Helper()
	const (
		features   = 4  // ETH_SS_FEATURES
		nameLength = 32 // ETH_GSTRING_LEN
	)
	info := binary.NativeEndian.AppendUint32(nil, unix.ETHTOOL_GSSET_INFO)
	info = append(binary.NativeEndian.AppendUint64(append(info, 0, 0, 0, 0), 1<<features), 0, 0, 0, 0)
	ethtool(t, link, info)
	n := binary.NativeEndian.Uint32(info[16:])
	names := make([]byte, 12+n*nameLength)
	binary.NativeEndian.PutUint32(names, unix.ETHTOOL_GSTRINGS)
	binary.NativeEndian.PutUint32(names[4:], features)
	binary.NativeEndian.PutUint32(names[8:], n)
	ethtool(t, link, names)
	for i := range n {
		if unix.ByteSliceToString(names[12+i*nameLength:][:nameLength]) != name {
			continue
		}
		set := make([]byte, 8+(n+31)/32*8) // for each 32 features what is valid and what is wanted
		binary.NativeEndian.PutUint32(set, unix.ETHTOOL_SFEATURES)
		binary.NativeEndian.PutUint32(set[4:], (n+31)/32)
		binary.NativeEndian.PutUint32(set[8+i/32*8:], 1<<(i%32))
		if on {
			binary.NativeEndian.PutUint32(set[8+i/32*8+4:], 1<<(i%32))
		}
		ethtool(t, link, set)
		return
	}
	t.Fatalf("this kernel knows no feature %q", name)
}

// ethtool does one SIOCETHTOOL request, which begins with its command.
func ethtool(t testing.TB, link string, request []byte) {
	t.Helper()
	var req struct {
		name [unix.IFNAMSIZ]byte
		data unsafe.Pointer
		_    [16]byte
	}
	copy(req.name[:], link)
	req.data = unsafe.Pointer(unsafe.SliceData(request))
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&req))); errno != 0 {
		t.Fatalf("ethtool of %s, command %#x: %v", link, binary.NativeEndian.Uint32(request), errno)
	}
	runtime.KeepAlive(request)
}
