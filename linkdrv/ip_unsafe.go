package linkdrv

import (
	"encoding/binary"
	"net/netip"
	"unsafe"

	"multiedge/internal/frame"

	"golang.org/x/sys/unix"
)

// Socket addresses and control messages of KindIP, as the kernel lays them out.

// Lengths of the memory for control messages: received ones, and those that are sent: lengths of datagrams, traffic
// class.
const (
	ipControl      = 64
	ipControlPiece = 24 // unix.CmsgSpace of 1 to 8 bytes
	ipSendControl  = 2 * ipControlPiece
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

// readControl reads a message's control messages: the length of the datagrams of which the kernel merged it, 0 if it is
// one, and what their IP headers say of congestion.
func readControl(h *unix.Msghdr, ctl *[ipControl]byte) (step int, ecn frame.ECN) {
	const inECN = 3
	n := min(int(h.Controllen), len(ctl))
	for at := 0; at+unix.SizeofCmsghdr <= n; {
		c := (*unix.Cmsghdr)(unsafe.Pointer(&ctl[at]))
		size := int(c.Len)
		if size < unix.SizeofCmsghdr || at+size > n {
			break
		}
		switch has := size - unix.SizeofCmsghdr; {
		case c.Level == unix.IPPROTO_UDP && c.Type == unix.UDP_GRO && has >= 4:
			step = int(*(*int32)(unsafe.Pointer(&ctl[at+unix.SizeofCmsghdr])))
		case c.Level == unix.IPPROTO_IP && c.Type == unix.IP_TOS && has >= 1:
			ecn = frame.ECN(ctl[at+unix.SizeofCmsghdr] & inECN)
		case c.Level == unix.IPPROTO_IPV6 && c.Type == unix.IPV6_TCLASS && has >= 4:
			ecn = frame.ECN(*(*int32)(unsafe.Pointer(&ctl[at+unix.SizeofCmsghdr])) & inECN)
		}
		at += alignUp(size, unix.SizeofPtr)
	}
	return step, ecn
}

// putControl says that a message, of which first is the first frame, is of count datagrams of step bytes, the last
// perhaps shorter, and that it leaves without ECT(0), which its socket has, unless the frame has it. That takes the
// whole traffic class, so the DSCP is said again.
func (d *ipDriver) putControl(h *unix.Msghdr, ctl *[ipSendControl]byte, first *TxFrame, step, count int) {
	at := 0
	put := func(level, kind int32, size int) []byte {
		c := (*unix.Cmsghdr)(unsafe.Pointer(&ctl[at]))
		c.Level, c.Type = level, kind
		c.SetLen(unix.CmsgLen(size))
		data := ctl[at+unix.SizeofCmsghdr:]
		at += ipControlPiece
		return data
	}
	if count > 1 {
		binary.NativeEndian.PutUint16(put(unix.IPPROTO_UDP, unix.UDP_SEGMENT, 2), uint16(step))
	}
	if tos := d.tos &^ int(frame.ECT0); tos != d.tos && !first.Capable {
		level, kind := int32(unix.IPPROTO_IPV6), int32(unix.IPV6_TCLASS)
		if first.To.IsIPv4() {
			level, kind = unix.IPPROTO_IP, unix.IP_TOS
		}
		binary.NativeEndian.PutUint32(put(level, kind, 4), uint32(tos))
	}
	h.Control = nil
	if h.SetControllen(at); at > 0 {
		h.Control = &ctl[0]
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
