package linkdrv

import (
	"encoding/binary"
	"net/netip"
	"unsafe"

	"multiedge/internal/frame"

	"golang.org/x/sys/unix"
)

// Socket addresses and control messages of KindIP, as the kernel lays them out.

// Lengths of the memory for control messages: received ones, and the one that is sent.
const (
	ipControl        = 64
	ipSegmentControl = 24 // unix.CmsgSpace(2)
)

func nameOf(n *unix.RawSockaddrInet6) *byte { return (*byte)(unsafe.Pointer(n)) }

// putName writes where a message goes and returns how long that is. wide: the socket's addresses are IPv6's.
func putName(n *unix.RawSockaddrInet6, to *Addr, wide bool) uint32 {
	at := to.AddrPort()
	if wide {
		*n = unix.RawSockaddrInet6{Family: unix.AF_INET6, Addr: at.Addr().As16()}
		n.Port = swapped(at.Port())
		return unix.SizeofSockaddrInet6
	}
	v4 := (*unix.RawSockaddrInet4)(unsafe.Pointer(n))
	*v4 = unix.RawSockaddrInet4{Family: unix.AF_INET, Addr: at.Addr().As4()}
	v4.Port = swapped(at.Port())
	return unix.SizeofSockaddrInet4
}

// swapped returns a number of the host as the two bytes of the network, and the other way round.
func swapped(port uint16) (v uint16) {
	binary.BigEndian.PutUint16((*[2]byte)(unsafe.Pointer(&v))[:], port)
	return v
}

// sourceOf returns where a message came from.
func sourceOf(h *unix.Msghdr, n *unix.RawSockaddrInet6) (Addr, bool) {
	switch {
	case n.Family == unix.AF_INET6 && h.Namelen >= unix.SizeofSockaddrInet6:
		return frame.IP(netip.AddrPortFrom(netip.AddrFrom16(n.Addr), swapped(n.Port))), n.Port != 0
	case n.Family == unix.AF_INET && h.Namelen >= unix.SizeofSockaddrInet4:
		v4 := (*unix.RawSockaddrInet4)(unsafe.Pointer(n))
		return frame.IP(netip.AddrPortFrom(netip.AddrFrom4(v4.Addr), swapped(v4.Port))), v4.Port != 0
	}
	return Addr{}, false
}

// mergedStep returns the length of the datagrams in a message that the kernel merged; 0: it is one datagram.
func mergedStep(h *unix.Msghdr, ctl *[ipControl]byte) int {
	n := min(int(h.Controllen), len(ctl))
	for at := 0; at+unix.SizeofCmsghdr <= n; {
		c := (*unix.Cmsghdr)(unsafe.Pointer(&ctl[at]))
		size := int(c.Len)
		if size < unix.SizeofCmsghdr || at+size > n {
			return 0
		}
		if c.Level == unix.IPPROTO_UDP && c.Type == unix.UDP_GRO && size >= unix.SizeofCmsghdr+4 {
			return int(*(*int32)(unsafe.Pointer(&ctl[at+unix.SizeofCmsghdr])))
		}
		at += alignUp(size, unix.SizeofPtr)
	}
	return 0
}

// initSegments prepares the control message that says how a message is to be cut up.
func initSegments(ctl *[ipSegmentControl]byte) {
	c := (*unix.Cmsghdr)(unsafe.Pointer(&ctl[0]))
	c.Level, c.Type = unix.IPPROTO_UDP, unix.UDP_SEGMENT
	c.SetLen(unix.CmsgLen(2))
}

// putSegments says that a message is of count datagrams of step bytes, the last perhaps shorter.
func putSegments(h *unix.Msghdr, ctl *[ipSegmentControl]byte, step, count int) {
	h.Control = nil
	h.SetControllen(0)
	if count > 1 {
		binary.NativeEndian.PutUint16(ctl[unix.SizeofCmsghdr:], uint16(step))
		h.Control = &ctl[0]
		h.SetControllen(ipSegmentControl)
	}
}

// socketDrops returns how many datagrams a socket had no room for.
func socketDrops(fd int) (uint32, unix.Errno) {
	const drops = 8 // SK_MEMINFO_DROPS
	var mem [drops + 1]uint32
	size := uint32(unsafe.Sizeof(mem))
	_, _, errno := unix.RawSyscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_MEMINFO,
		uintptr(unsafe.Pointer(&mem)), uintptr(unsafe.Pointer(&size)), 0)
	return mem[drops], errno
}

// epollLook returns how many events there are now, and stores them.
func epollLook(fd int, events []unix.EpollEvent) int {
	n, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(fd),
		uintptr(unsafe.Pointer(unsafe.SliceData(events))), uintptr(len(events)), 0, 0, 0)
	if errno != 0 {
		return 0
	}
	return int(n)
}
