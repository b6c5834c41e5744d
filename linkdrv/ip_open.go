package linkdrv

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"

	"multiedge/internal/frame"

	"golang.org/x/sys/unix"
)

// KindIP sends frames as datagrams of a UDP socket (Options.Listen).
const KindIP = "ip"

const (
	// ipMost is the most bytes of one message: the longest IPv4 datagram's.
	ipMost = 65507
	// What IP and UDP headers take of an interface's MTU.
	ipHeaders4 = 20 + 8
	ipHeaders6 = 40 + 8
	// ipBuffer is the receive buffer that is asked for, in bytes as the kernel takes them: it grants twice as many.
	ipBuffer = 8 << 20
	// leastLaneBuffer is the least of the sockets of lanes, which share that otherwise.
	leastLaneBuffer = 2 << 20
)

// MaxDSCP is the largest DSCP (RFC 2474).
const MaxDSCP = 63

func init() {
	Register(KindIP, func(_ *net.Interface, n int, o Options) ([]Driver, error) {
		if o.Pages {
			return nil, fmt.Errorf("linkdrv: %s: driver %q cannot receive frames at page boundaries: use %q", o.Listen,
				KindIP, KindMmsg)
		}
		drivers, err := openShardsIP(o, n)
		if err != nil {
			return nil, fmt.Errorf("linkdrv: %s: %w", o.Listen, err)
		}
		return drivers, nil
	})
}

// openShardsIP opens an IP link for each of some shards, each at a port of its own (PROTOCOL clause 21.11): the drivers
// of all shards for the first lane, then those for the next.
func openShardsIP(o Options, shards int) (all []Driver, err error) {
	at, err := ParseListen(o.Listen)
	if err != nil {
		return nil, err
	}
	lanes := max(o.Lanes, 1)
	all = make([]Driver, lanes*shards)
	for t := range shards {
		var of []Driver
		port := int(at.Port()) + t
		if port > math.MaxUint16 {
			err = fmt.Errorf("%d shards need as many ports, and none is above 65535: choose a smaller one", shards)
		} else if slices.Contains(reservedPorts[:], port) {
			err = fmt.Errorf("port %d, of shard %d, is %w: choose a smaller one", port, t, ErrListen)
		} else if of, err = openIP(o, netip.AddrPortFrom(at.Addr(), uint16(port))); err != nil && t > 0 {
			err = fmt.Errorf("port %d, of shard %d: %w", port, t, err)
		}
		if err != nil {
			for _, d := range all {
				if d != nil {
					d.Close()
				}
			}
			return nil, err
		}
		for k, d := range of {
			all[k*shards+t] = d
		}
	}
	return all, nil
}

// ParseListen reads where an IP link listens: ADDRESS:PORT, or :PORT for all addresses of the host.
func ParseListen(text string) (netip.AddrPort, error) {
	host, port, err := net.SplitHostPort(text)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("%q is %w: want ADDRESS:PORT, or :PORT for all addresses", text, ErrListen)
	}
	ip := netip.IPv6Unspecified()
	if host != "" {
		if ip, err = netip.ParseAddr(host); err != nil || ip.Zone() != "" || ip.IsMulticast() || ip.Is6() &&
			ip.IsLinkLocalUnicast() {
			return netip.AddrPort{}, fmt.Errorf("%q is %w: want an IPv4 or IPv6 address of this host, or nothing, "+
				"before the port", text, ErrListen)
		}
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 {
		return netip.AddrPort{}, fmt.Errorf("%q is %w: want a port from 1 to 65535", text, ErrListen)
	}
	if slices.Contains(reservedPorts[:], int(n)) {
		return netip.AddrPort{}, fmt.Errorf("%q is %w: networks or hosts treat port %d apart; choose another", text,
			ErrListen, n)
	}
	return netip.AddrPortFrom(ip, uint16(n)), nil
}

// IPAddr returns the address of an IP link that is reached there.
func IPAddr(at netip.AddrPort) Addr { return frame.IP(at) }

// ListenMTU returns the MTU that an IP link has which listens there: of the interface with that address, or for all
// addresses the largest of the interfaces that are up. It is an ErrNoLink where no interface has the address, and
// an ErrLinkDown where it is down.
func ListenMTU(at netip.AddrPort) (int, error) {
	mtu, err := interfaceMTU(at.Addr())
	if err != nil {
		return 0, err
	}
	return min(mtu-ipHeadersOf(at.Addr()), ipMost) - HeaderLen, nil
}

// ipHeadersOf is what headers take of an MTU on a socket of that address. One for all addresses may send IPv6.
func ipHeadersOf(ip netip.Addr) int {
	if ip.Unmap().Is4() {
		return ipHeaders4
	}
	return ipHeaders6
}

func interfaceMTU(ip netip.Addr) (int, error) {
	all, err := net.Interfaces()
	if err != nil {
		return 0, fmt.Errorf("the interfaces cannot be listed: %w", err)
	}
	largest, loop := 0, 0
	var addresses []string
	for _, ifi := range all {
		up := ifi.Flags&net.FlagUp != 0
		switch {
		case up && ifi.Flags&net.FlagLoopback != 0:
			loop = max(loop, ifi.MTU)
		case up:
			largest = max(largest, ifi.MTU)
		}
		have, _ := ifi.Addrs()
		for _, a := range have {
			p, err := netip.ParsePrefix(a.String())
			if err != nil {
				continue
			}
			if p.Addr().Unmap() == ip.Unmap() {
				if !up {
					return 0, fmt.Errorf("%s has that address, and its %w; bring it up with: ip link set %s up",
						ifi.Name, ErrLinkDown, ifi.Name)
				}
				return ifi.MTU, nil
			}
			addresses = append(addresses, p.Addr().String())
		}
	}
	switch {
	case !ip.IsUnspecified():
		return 0, fmt.Errorf("%w has that address; this namespace has: %s", ErrNoLink, strings.Join(addresses, ", "))
	case largest > 0:
		return largest, nil
	case loop > 0:
		return loop, nil
	}
	return 0, fmt.Errorf("%w is up: bring one up with ip link set NAME up", ErrNoLink)
}

// openIP opens an IP link of one shard: a driver for each of its lanes.
func openIP(o Options, at netip.AddrPort) (_ []Driver, err error) {
	mtu, err := ListenMTU(at)
	if err != nil {
		return nil, err
	}
	tos := o.DSCP << 2
	if o.DSCP < 0 || o.DSCP > MaxDSCP {
		return nil, fmt.Errorf("a DSCP of %d: want 0 to %d", o.DSCP, MaxDSCP)
	}
	if o.ECN {
		tos |= int(frame.ECT0)
	}
	lanes := max(o.Lanes, 1)
	if lanes > MaxLanes {
		return nil, fmt.Errorf("%d lanes: want 1 to %d", lanes, MaxLanes)
	}
	info := Info{Name: o.Listen, MTU: mtu, Kind: KindIP, Super: ipMost, Below: ipHeadersOf(at.Addr()) + HeaderLen}
	info.Local = frame.IP(at)
	if at.Addr().IsUnspecified() && at.Addr().Is6() {
		info.Local = frame.EveryIP(at.Port())
	}
	var drivers []Driver
	defer func() {
		if err != nil {
			for _, d := range drivers {
				d.Close()
			}
		}
	}()
	var set *laneSet
	if lanes > 1 {
		if set, err = newLaneSet(at, lanes); err != nil {
			return nil, err
		}
	}
	for k := range lanes {
		d := &ipDriver{socks: [ipSockets]int{-1, -1, -1}, at: at, info: info, tos: tos, lanes: set,
			lane: k}
		drivers = append(drivers, d)
		if err = d.openSockets(o); err != nil {
			return nil, err
		}
		d.errs = newLinkErrors(d.info)
		d.allocate(max(leastBuffers, ipBuffers/lanes))
	}
	if set != nil {
		err = set.steer(drivers[0].(*ipDriver).socks[frame.SocketFront])
	}
	return drivers, err
}

// openSockets makes the sockets of a link, or of one of its lanes.
func (d *ipDriver) openSockets(o Options) error {
	charge := ipCharge(d.info.MTU + HeaderLen)
	want := ipBuffer
	if d.lanes != nil {
		want = max(leastLaneBuffer, ipBuffer/len(d.lanes.lap))
	}
	if o.RingSlots > 0 {
		want = min(o.RingSlots*charge/2, math.MaxInt32/2)
	}
	d.room = want
	if d.lanes != nil {
		if err := d.lanes.add(d); err != nil {
			return err
		}
	} else if err := d.bind(frame.SocketAsk, d.at.Port(), false); err != nil {
		return err
	}
	granted, err := unix.GetsockoptInt(d.fd(), unix.SOL_SOCKET, unix.SO_RCVBUF)
	if err != nil {
		return err
	}
	d.info.RxSlots = max(1, granted/charge)
	return nil
}

// fd is the socket of the link's own port.
func (d *ipDriver) fd() int {
	if d.lanes != nil {
		return d.socks[frame.SocketFront]
	}
	return d.socks[frame.SocketAsk]
}

// bind makes one of the driver's sockets, at a port of its address; 0: at one that the kernel draws. Several sockets
// can have a shared one.
func (d *ipDriver) bind(which int, port uint16, shared bool) error {
	fd, err := d.newSocket(port, shared)
	if err == nil {
		d.socks[which] = fd
	}
	return err
}

// newSocket makes a socket. On a host without IPv6, one for all addresses is one for those of IPv4.
func (d *ipDriver) newSocket(port uint16, shared bool) (fd int, err error) {
	const how = unix.SOCK_DGRAM | unix.SOCK_CLOEXEC | unix.SOCK_NONBLOCK
	ip, every := d.at.Addr(), d.at.Addr().IsUnspecified()
	var sa unix.Sockaddr = &unix.SockaddrInet6{Port: int(port), Addr: ip.As16()}
	if d.wide = !ip.Unmap().Is4(); d.wide {
		fd, err = unix.Socket(unix.AF_INET6, how, 0)
		if err != nil && (!every || !errors.Is(err, unix.EAFNOSUPPORT)) {
			return -1, fmt.Errorf("socket: %w", err)
		}
		d.wide = err == nil
	}
	if !d.wide {
		v4 := &unix.SockaddrInet4{Port: int(port)}
		if sa = v4; every {
			d.info.Local = frame.IP(netip.AddrPortFrom(netip.IPv4Unspecified(), d.at.Port()))
		} else {
			v4.Addr = ip.Unmap().As4()
		}
		if fd, err = unix.Socket(unix.AF_INET, how, 0); err != nil {
			return -1, fmt.Errorf("socket: %w", err)
		}
	}
	if err = d.configure(fd, every, shared); err == nil {
		err = bindError(unix.Bind(fd, sa))
	}
	if err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// bindError says what to do where an address cannot be taken.
func bindError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.EADDRINUSE):
		return fmt.Errorf("another socket has that UDP port (ss -ulpn shows whose): choose another: %w", err)
	case errors.Is(err, os.ErrPermission):
		return fmt.Errorf("ports below %s need a privilege: choose a larger one: %w", "1024", err)
	}
	return fmt.Errorf("bind: %w", err)
}

func setOption(fd, level, opt, v int, name string) error {
	if err := unix.SetsockoptInt(fd, level, opt, v); err != nil {
		return fmt.Errorf("setsockopt %s: %w", name, err)
	}
	return nil
}

// configure has the kernel merge what arrives, never fragment what leaves, believe no ICMP about it, and tell of marks.
func (d *ipDriver) configure(fd int, every, shared bool) error {
	on := func(yes bool) int {
		if yes {
			return 1
		}
		return 0
	}
	type option struct {
		level, opt, v int
		name          string
	}
	options := []option{{unix.IPPROTO_UDP, unix.UDP_GRO, 1, "UDP_GRO"},
		{unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_PROBE, "IP_MTU_DISCOVER"},
		{unix.IPPROTO_IP, unix.IP_TOS, d.tos, "IP_TOS"}, {unix.IPPROTO_IP, unix.IP_RECVTOS, 1, "IP_RECVTOS"},
		{unix.SOL_SOCKET, unix.SO_REUSEPORT, on(shared), "SO_REUSEPORT"}}
	if d.wide {
		options = append(options, option{unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, on(!every), "IPV6_V6ONLY"},
			option{unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_PROBE, "IPV6_MTU_DISCOVER"},
			option{unix.IPPROTO_IPV6, unix.IPV6_TCLASS, d.tos, "IPV6_TCLASS"},
			option{unix.IPPROTO_IPV6, unix.IPV6_RECVTCLASS, 1, "IPV6_RECVTCLASS"})
	}
	for _, o := range options {
		if err := setOption(fd, o.level, o.opt, o.v, o.name); err != nil {
			return err
		}
	}
	for _, b := range []struct{ force, opt, bytes int }{{unix.SO_RCVBUFFORCE, unix.SO_RCVBUF, d.room},
		{unix.SO_SNDBUFFORCE, unix.SO_SNDBUF, sndBuf}} {
		if unix.SetsockoptInt(fd, unix.SOL_SOCKET, b.force, b.bytes) == nil {
			continue
		}
		if err := setOption(fd, unix.SOL_SOCKET, b.opt, b.bytes, "socket buffer size"); err != nil {
			return err
		}
	}
	return nil
}

// ipCharge is what the kernel charges a socket for a datagram of so many bytes: the memory that a network device takes
// for it, a power of two with room for headers and the kernel's own, and the descriptor of that.
func ipCharge(bytes int) int {
	const around, descriptor = 64 + 48 + 320, 256
	return 1<<bits.Len(uint(bytes+around-1)) + descriptor
}
