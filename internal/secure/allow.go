package secure

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// MaxAllowed is how many networks a peer can be confined to.
const MaxAllowed = 16

// parseAllow reads networks of IP addresses, joined by commas. An address alone is a network of one.
func parseAllow(joined string) (list []netip.Prefix, err error) {
	if joined == "" {
		return nil, nil
	}
	for text := range strings.SplitSeq(joined, ",") {
		n, err := netip.ParsePrefix(text)
		if ip, single := netip.ParseAddr(text); err != nil && single == nil && ip.Zone() == "" {
			n, err = netip.PrefixFrom(ip, ip.BitLen()), nil
		}
		switch {
		case err != nil:
			return nil, fmt.Errorf("allow %.80q: want a network of IP addresses, such as 10.0.0.0/8 or 2001:db8::/32",
				text)
		case n.Addr().Is4In6():
			return nil, fmt.Errorf("allow %.80q: write IPv4 addresses as such, as in 10.0.0.0/8", text)
		case n != n.Masked():
			return nil, fmt.Errorf("allow %.80q: bits behind the first %d are set; did you mean %v?", text, n.Bits(),
				n.Masked())
		}
		list = append(list, n)
	}
	if len(list) > MaxAllowed {
		return nil, fmt.Errorf("allow: %d networks: a peer can have %d", len(list), MaxAllowed)
	}
	return list, nil
}

// checkAllow says what is wrong with the networks that a peer is confined to, and with endpoints outside them.
func (p *Peer) checkAllow() ([]netip.Prefix, error) {
	list, err := parseAllow(p.Allow)
	if err != nil || list == nil {
		return nil, err
	}
	for text := range strings.SplitSeq(p.Endpoints, ",") {
		at, err := netip.ParseAddrPort(text)
		within := func(n netip.Prefix) bool { return n.Contains(at.Addr().Unmap()) }
		if err == nil && !slices.ContainsFunc(list, within) {
			return nil, fmt.Errorf("peer %q: its endpoint %s is in none of the networks of allow", p.Name, text)
		}
	}
	return list, nil
}

// Allow returns the networks in which the IP addresses of the node of that identity must be; none: it may be anywhere.
// The caller must not change them.
func (p *Peers) Allow(id [8]byte) []netip.Prefix {
	if p == nil {
		return nil
	}
	return p.allow[id]
}
