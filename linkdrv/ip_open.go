package linkdrv

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"net"
	"net/netip"
	"os"
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
)

func init() {
	Register(KindIP, func(_ *net.Interface, n int, o Options) ([]Driver, error) {
		if n != 1 {
			return nil, fmt.Errorf("linkdrv: %s: an IP link is one socket, and serves one shard: use shards = 1",
				o.Listen)
		}
		if o.Pages {
			return nil, fmt.Errorf("linkdrv: %s: driver %q cannot receive frames at page boundaries: use %q", o.Listen,
				KindIP, KindMmsg)
		}
		d, err := openIP(o)
		if err != nil {
			return nil, fmt.Errorf("linkdrv: %s: %w", o.Listen, err)
		}
		return []Driver{d}, nil
	})
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

func openIP(o Options) (*ipDriver, error) {
	at, err := ParseListen(o.Listen)
	if err != nil {
		return nil, err
	}
	mtu, err := ListenMTU(at)
	if err != nil {
		return nil, err
	}
	d := &ipDriver{fd: -1, merges: true}
	d.info = Info{Name: o.Listen, MTU: mtu, Kind: KindIP, Super: ipMost, Below: ipHeadersOf(at.Addr()) + HeaderLen}
	d.info.Local = frame.IP(at)
	if at.Addr().IsUnspecified() && at.Addr().Is6() {
		d.info.Local = frame.EveryIP(at.Port())
	}
	if err = d.bind(at); err == nil {
		err = d.configure(o)
	}
	if err != nil {
		d.Close()
		return nil, err
	}
	d.errs = newLinkErrors(d.info)
	d.allocate()
	return d, nil
}

// bind makes the socket. On a host without IPv6, one for all addresses is one for those of IPv4.
func (d *ipDriver) bind(at netip.AddrPort) (err error) {
	const how = unix.SOCK_DGRAM | unix.SOCK_CLOEXEC | unix.SOCK_NONBLOCK
	every := at.Addr().IsUnspecified()
	if !at.Addr().Unmap().Is4() {
		if d.fd, err = unix.Socket(unix.AF_INET6, how, 0); err == nil {
			d.wide = true
			only := 1
			if every {
				only = 0
			}
			if err := d.set(unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, only, "IPV6_V6ONLY"); err != nil {
				return err
			}
			return bindError(unix.Bind(d.fd, &unix.SockaddrInet6{Port: int(at.Port()), Addr: at.Addr().As16()}))
		}
		if !every || !errors.Is(err, unix.EAFNOSUPPORT) {
			return fmt.Errorf("socket: %w", err)
		}
		d.info.Local = frame.IP(netip.AddrPortFrom(netip.IPv4Unspecified(), at.Port()))
	}
	if d.fd, err = unix.Socket(unix.AF_INET, how, 0); err != nil {
		return fmt.Errorf("socket: %w", err)
	}
	sa := &unix.SockaddrInet4{Port: int(at.Port())}
	if !every {
		sa.Addr = at.Addr().Unmap().As4()
	}
	return bindError(unix.Bind(d.fd, sa))
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

func (d *ipDriver) set(level, opt, v int, name string) error {
	if err := unix.SetsockoptInt(d.fd, level, opt, v); err != nil {
		return fmt.Errorf("setsockopt %s: %w", name, err)
	}
	return nil
}

// configure has the kernel merge what arrives, never fragment what leaves, and believe no ICMP about it.
func (d *ipDriver) configure(o Options) error {
	if err := d.set(unix.IPPROTO_UDP, unix.UDP_GRO, 1, "UDP_GRO"); err != nil {
		return err
	}
	if d.wide {
		if err := d.set(unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_PROBE,
			"IPV6_MTU_DISCOVER"); err != nil {
			return err
		}
	}
	if err := d.set(unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_PROBE, "IP_MTU_DISCOVER"); err != nil {
		return err
	}
	charge := ipCharge(d.info.MTU + HeaderLen)
	want := ipBuffer
	if o.RingSlots > 0 {
		want = min(o.RingSlots*charge/2, math.MaxInt32/2)
	}
	for _, b := range []struct{ force, opt, bytes int }{{unix.SO_RCVBUFFORCE, unix.SO_RCVBUF, want},
		{unix.SO_SNDBUFFORCE, unix.SO_SNDBUF, sndBuf}} {
		if unix.SetsockoptInt(d.fd, unix.SOL_SOCKET, b.force, b.bytes) == nil {
			continue
		}
		if err := d.set(unix.SOL_SOCKET, b.opt, b.bytes, "socket buffer size"); err != nil {
			return err
		}
	}
	granted, err := unix.GetsockoptInt(d.fd, unix.SOL_SOCKET, unix.SO_RCVBUF)
	if err != nil {
		return err
	}
	d.info.RxSlots = max(1, granted/charge)
	return nil
}

// ipCharge is what the kernel charges a socket for a datagram of so many bytes: the memory that a network device takes
// for it, a power of two with room for headers and the kernel's own, and the descriptor of that.
func ipCharge(bytes int) int {
	const around, descriptor = 64 + 48 + 320, 256
	return 1<<bits.Len(uint(bytes+around-1)) + descriptor
}
