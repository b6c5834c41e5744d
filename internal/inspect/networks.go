package inspect

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"

	"multiedge/linkdrv"

	"github.com/vishvananda/netlink"
)

// Several NICs in one IP network. The kernel sends to that network by the NIC that its route names, whatever address
// an IP link is bound to, and with rp_filter it drops what comes by any other. Links of raw frames are free of that.

// nicAddress is an address of an interface, with the network that it is in.
type nicAddress struct {
	nic string
	at  netip.Prefix
}

// nicAddresses are those of the interfaces that are up, but for loopback and link-local ones.
func nicAddresses() (list []nicAddress) {
	all, _ := net.Interfaces() // without them nothing is said
	for _, ifi := range all {
		if ifi.Flags&net.FlagUp == 0 || ifi.Flags&net.FlagLoopback != 0 {
			continue
		}
		have, _ := ifi.Addrs()
		for _, a := range have {
			if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().IsGlobalUnicast() && !p.IsSingleIP() {
				list = append(list, nicAddress{ifi.Name, p})
			}
		}
	}
	return list
}

// networks tells of NICs that share a network, of which one takes what IP links send from the addresses of others.
func (f *findings) networks(links []LinkStatus) {
	all := nicAddresses()
	for i := range all {
		a := &all[i]
		shared := slices.ContainsFunc(all, func(b nicAddress) bool {
			return b.nic != a.nic && b.at.Masked() == a.at.Masked()
		})
		if !shared || !listensAt(links, a.at.Addr()) {
			continue
		}
		if by := leavesBy(a, all); by != "" && by != a.nic {
			f.shared(a, by)
		}
	}
}

// shared tells of an address of whose datagrams another NIC takes those that leave.
func (f *findings) shared(a *nicAddress, by string) {
	ip, network := a.at.Addr(), a.at.Masked()
	severity := FindingWarning
	text := fmt.Sprintf("%s and %s are both in %v: datagrams from %v, an address of %s, leave by %s", by, a.nic,
		network, ip, a.nic, by)
	if ip.Is4() && strictReverse(a.nic) {
		severity = FindingProblem
		text += fmt.Sprintf(", and those to it that come by %s are dropped (rp_filter is 1)", a.nic)
	}
	six, arp := " -6", ""
	if ip.Is4() {
		six, arp = "", fmt.Sprintf("; sysctl -w net/ipv4/conf/%s/arp_ignore=1 net/ipv4/conf/%s/arp_announce=2", a.nic,
			a.nic)
	}
	f.add(severity, "interface "+a.nic, text, fmt.Sprintf("give each NIC a network of its own; or ip%s route add %v "+
		"dev %s src %v table 101; ip%s rule add from %v table 101%s, with another number of a table for each NIC", six,
		network, a.nic, ip, six, ip, arp))
}

// listensAt reports whether an IP link that is up uses an address of the host.
func listensAt(links []LinkStatus, ip netip.Addr) bool {
	return slices.ContainsFunc(links, func(l LinkStatus) bool {
		if !l.isIP() || !l.Up {
			return false
		}
		at, err := linkdrv.ParseListen(l.Listen)
		return err == nil && (at.Addr().Unmap() == ip ||
			at.Addr().IsUnspecified() && (at.Addr().Is6() || ip.Is4()))
	})
}

// leavesBy returns the interface by which datagrams from an address to others of its network leave; empty: not known.
func leavesBy(a *nicAddress, all []nicAddress) string {
	to := a.at.Masked().Addr().Next()
	for slices.ContainsFunc(all, func(b nicAddress) bool { return b.at.Addr() == to }) {
		to = to.Next()
	}
	routes, err := netlink.RouteGetWithOptions(to.AsSlice(), &netlink.RouteGetOptions{SrcAddr: a.at.Addr().AsSlice()})
	if err != nil || len(routes) == 0 {
		return ""
	}
	ifi, err := net.InterfaceByIndex(routes[0].LinkIndex)
	if err != nil {
		return ""
	}
	return ifi.Name
}

// strictReverse reports whether the kernel drops what comes by an interface and would be answered by another (RFC 3704,
// strict reverse path forwarding).
func strictReverse(nic string) bool {
	strictest := "0"
	for _, name := range []string{"all", nic} {
		b, _ := os.ReadFile("/proc/sys/net/ipv4/conf/" + name + "/rp_filter")
		strictest = max(strictest, strings.TrimSpace(string(b)))
	}
	return strictest == "1"
}
