package lab

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Equal paths: the first host has a router of its own, the others share another, and several cables lead from the one
// to the other. Routers choose among them by addresses and ports.

// paths are the cables between the two routers.
type paths struct {
	far   *space // the router of all hosts but the first
	ports []cable
}

// cable is one path: its ends at the router of the first host, and at the other.
type cable struct{ near, far netlink.Link }

// router is the namespace where a host's port is.
func (l *Lab) router(host int) *space {
	if l.paths != nil && host > 0 {
		return l.paths.far
	}
	return l.middle
}

// hop is the address of one end of a path: 1 is the router of the first host, 2 the other.
func (l *Lab) hop(path int, end byte) netip.Prefix {
	if l.spec.IPv6 {
		b := [16]byte{0: 0xfd, 1: 0x78, 3: byte(path), 15: end}
		return netip.PrefixFrom(netip.AddrFrom16(b), 64)
	}
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 99, byte(path), end}), 24)
}

func (l *Lab) layPaths(ctx context.Context) (_ *paths, err error) {
	p := &paths{}
	if p.far, err = newSpace(); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			p.far.close()
		}
	}()
	if err = forward(p.far); err != nil {
		return nil, err
	}
	for _, s := range []*space{l.middle, p.far} {
		err = s.do(func() error { // by ports too; by default they choose by addresses alone
			return errors.Join(os.WriteFile("/proc/sys/net/ipv4/fib_multipath_hash_policy", []byte("1"), 0),
				os.WriteFile("/proc/sys/net/ipv6/fib_multipath_hash_policy", []byte("1"), 0))
		})
		if err != nil {
			return nil, fmt.Errorf("have a router choose paths by ports: %w", err)
		}
	}
	for i := range l.spec.Paths {
		c, err := l.layPath(ctx, p.far, i)
		if err != nil {
			return nil, fmt.Errorf("path %d: %w", i, err)
		}
		p.ports = append(p.ports, c)
	}
	return p, nil
}

func (l *Lab) layPath(ctx context.Context, far *space, i int) (c cable, err error) {
	name := fmt.Sprintf("path%d", i)
	a := netlink.NewLinkAttrs()
	a.Name, a.MTU = name, l.spec.MTU
	v := netlink.NewVeth(a)
	v.PeerName, v.PeerNamespace = name, netlink.NsFd(far.fd)
	if err := l.middle.nl.LinkAdd(v); err != nil {
		return c, explain("make veth pair "+name, err)
	}
	for _, end := range []struct {
		s    *space
		link *netlink.Link
		at   netip.Prefix
	}{{l.middle, &c.near, l.hop(i, 1)}, {far, &c.far, l.hop(i, 2)}} {
		if *end.link, err = end.s.nl.LinkByName(name); err != nil {
			return c, err
		}
		if err := l.addAddress(end.s, *end.link, end.at); err != nil {
			return c, err
		}
		if err := end.s.nl.LinkSetUp(*end.link); err != nil {
			return c, err
		}
	}
	for _, end := range []struct {
		s    *space
		link netlink.Link
	}{{l.middle, c.near}, {far, c.far}} {
		if err := waitUp(ctx, end.s.nl, end.link.Attrs().Index); err != nil {
			return c, err
		}
	}
	return c, nil
}

// routePaths has the router at the other end of the paths send to a host's network by all of them.
func (l *Lab) routePaths(link, host int) error {
	if l.paths == nil {
		return nil
	}
	to := l.gateway(link, host).Masked()
	r := &netlink.Route{Dst: network(to, to.Bits())}
	from, end := l.middle, byte(2)
	if host == 0 {
		from, end = l.paths.far, 1
	}
	for i, c := range l.paths.ports {
		out := c.near
		if host == 0 {
			out = c.far
		}
		r.MultiPath = append(r.MultiPath, &netlink.NexthopInfo{LinkIndex: out.Attrs().Index,
			Gw: l.hop(i, end).Addr().AsSlice()})
	}
	if err := from.nl.RouteReplace(r); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("route to %v by %d paths: %w", to, len(l.paths.ports), err)
	}
	return nil
}

// Blacken has one of several paths swallow whatever leaves for the first host, or for the others, or pass it again.
// Neither router notices.
func (l *Lab) Blacken(path int, toFirst, black bool) error {
	if l.paths == nil || path < 0 || path >= len(l.paths.ports) {
		return fmt.Errorf("lab: there is no path %d: build the lab with Paths", path)
	}
	s, port := l.middle, l.paths.ports[path].near
	if toFirst {
		s, port = l.paths.far, l.paths.ports[path].far
	}
	if black {
		return s.nl.QdiscReplace(blackhole(port))
	}
	all, err := s.nl.QdiscList(port)
	if err != nil {
		return err
	}
	for _, q := range all {
		if q.Attrs().Parent == netlink.HANDLE_ROOT && q.Type() == "blackhole" {
			return s.nl.QdiscDel(q)
		}
	}
	return nil
}

// PathFrames returns how many frames each path carried to the first host, or to the others.
func (l *Lab) PathFrames(toFirst bool) (n []uint64, err error) {
	if l.paths == nil {
		return nil, nil
	}
	for _, c := range l.paths.ports {
		s, port := l.middle, c.near
		if toFirst {
			s, port = l.paths.far, c.far
		}
		st, err := statistics(s.nl, port.Attrs().Index)
		if err != nil {
			return nil, err
		}
		n = append(n, st.TxPackets)
	}
	return n, nil
}
