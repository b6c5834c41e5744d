package lab

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// A Routed link has no Ethernet in common: each host's interface is on a network of its own, and the middle namespace
// is the router between them.

// gateway is the router's address on a host's network.
func (l *Lab) gateway(link, host int) netip.Prefix { return l.routed(link, host, 1) }

// routed is an address on a host's network of a Routed link.
func (l *Lab) routed(link, host int, last byte) netip.Prefix {
	if l.spec.IPv6 {
		b := [16]byte{0: 0xfd, 1: 0x77, 3: byte(host), 5: byte(link), 15: last}
		return netip.PrefixFrom(netip.AddrFrom16(b), 64)
	}
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(100 + host), byte(link), last}), 24)
}

// address is the address of a host's interface on a link.
func (l *Lab) address(link, host int) netip.Prefix {
	if l.links[link].medium == Routed {
		return l.routed(link, host, 2)
	}
	return address(link, host)
}

// forward makes a namespace a router.
func forward(s *space) error {
	return s.do(func() error {
		for _, name := range []string{"ipv4/ip_forward", "ipv6/conf/all/forwarding"} {
			if err := os.WriteFile("/proc/sys/net/"+name, []byte("1"), 0); err != nil {
				return fmt.Errorf("make a router: %w", err)
			}
		}
		return nil
	})
}

// addAddress gives an interface of a namespace an address that is in force at once.
func (l *Lab) addAddress(s *space, link netlink.Link, at netip.Prefix) error {
	if at.Addr().Is6() {
		conf := "/proc/sys/net/ipv6/conf/" + link.Attrs().Name
		err := s.do(func() error { // nobody has the link's other addresses either: they need not be asked for
			return errors.Join(os.WriteFile(conf+"/accept_dad", []byte("0"), 0),
				os.WriteFile(conf+"/disable_ipv6", []byte("0"), 0))
		})
		if err != nil {
			return fmt.Errorf("turn IPv6 on for %s: %w", link.Attrs().Name, err)
		}
	}
	if err := s.nl.AddrAdd(link, &netlink.Addr{IPNet: network(at, at.Bits()), Flags: unix.IFA_F_NODAD}); err != nil {
		return fmt.Errorf("address %v for %s: %w", at, link.Attrs().Name, err)
	}
	return nil
}

func network(at netip.Prefix, ones int) *net.IPNet {
	return &net.IPNet{IP: at.Addr().AsSlice(), Mask: net.CIDRMask(ones, at.Addr().BitLen())}
}

// route connects a host's interface with the router, whose port is up.
func (k *Link) route(host int) error {
	l := k.lab
	if err := l.addAddress(l.router(host), k.ports[host].link, l.gateway(k.index, host)); err != nil {
		return err
	}
	if err := l.routePaths(k.index, host); err != nil {
		return err
	}
	return k.routeHost(host, "")
}

// routeHost has a host send to the others by the router, its TCP with that congestion control; empty: the kernel's.
func (k *Link) routeHost(host int, congestion string) error {
	l := k.lab
	gateway := l.gateway(k.index, host)
	for other := range l.spec.Hosts {
		if other == host {
			continue
		}
		to := l.gateway(k.index, other).Masked()
		err := l.hosts[host].space.nl.RouteReplace(&netlink.Route{LinkIndex: k.nics[host].index,
			Dst: network(to, to.Bits()), Gw: gateway.Addr().AsSlice(), Congctl: congestion})
		if err != nil {
			return fmt.Errorf("route from host %d to %v: %w", host, to, err)
		}
	}
	return nil
}

// SetRouterMTU changes the MTU of the router's port towards a host, of a Routed link: longer frames to that host do not
// pass.
func (k *Link) SetRouterMTU(host, mtu int) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.medium != Routed {
		return fmt.Errorf("lab: link %d is a %v and has no router", k.index, k.medium)
	}
	return k.lab.router(host).nl.LinkSetMTU(k.ports[host].link, mtu)
}

// AtRouter runs fn on a thread inside the namespace of the router next to a host, as Host.Do does inside a host's. The
// link is a Routed one.
func (k *Link) AtRouter(host int, fn func() error) error {
	if k.medium != Routed {
		return fmt.Errorf("lab: link %d is a %v and has no router", k.index, k.medium)
	}
	return k.lab.router(host).do(fn)
}

// Renumber gives a host's interface on a Routed link another address of its network and takes the one it had.
func (k *Link) Renumber(host int, last byte) error {
	return k.change(host, func(nl *netlink.Handle, nic netlink.Link) error {
		family := unix.AF_INET
		if k.lab.spec.IPv6 {
			family = unix.AF_INET6
		}
		had, err := nl.AddrList(nic, family)
		if err != nil {
			return err
		}
		for _, a := range had {
			if a.IP.IsGlobalUnicast() {
				if err := nl.AddrDel(nic, &a); err != nil {
					return err
				}
			}
		}
		// the kernel takes other addresses of the network with the first
		if err := k.lab.addAddress(k.lab.hosts[host].space, nic, k.lab.routed(k.index, host, last)); err != nil {
			return err
		}
		return k.routeHost(host, "")
	})
}
