package frame

import (
	"encoding/binary"
	"fmt"
	"net/netip"
)

// Addr is the address of a link on its network: an Ethernet address, or an IP address with a UDP port. Drivers and the
// wire format make and read it; everybody else compares it and passes it on. The zero Addr is none.
type Addr struct {
	b [addrLen]byte // an Ethernet address first, the rest zero; or 16 bytes of an IP address, a port, and the family
}

const (
	addrLen  = 20
	atPort   = 16
	atSocket = addrLen - 2
	atFamily = addrLen - 1 // zero: Ethernet
)

// Which of a lane's sockets reaches an IP address: two flows to one address are two addresses (PROTOCOL clause 21.9).
// Of a link that is no lane there is one socket, number zero.
const (
	SocketAsk   = iota // the one from which the lane asks, and its deputy once another port was drawn
	SocketFront        // the one that all lanes of the link share, at which others ask
	SocketOther        // of Tx.To alone: the deputy
)

// Families of IP addresses. Both is that of a local address alone, which stands for all of its host.
const (
	family4    = 4
	family6    = 6
	familyBoth = family4 | family6<<4
)

// Broadcast reaches everybody on an Ethernet link.
var Broadcast = Ether([6]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff})

// Ether returns the Addr of an Ethernet address.
func Ether(mac [6]byte) (a Addr) {
	copy(a.b[:], mac[:])
	return a
}

// IP returns the Addr of an IP address and a UDP port. An IPv4 address that is written as IPv6 is the IPv4 address.
func IP(at netip.AddrPort) (a Addr) {
	ip, family := at.Addr().As16(), byte(family6)
	if at.Addr().Unmap().Is4() {
		family = family4
	}
	copy(a.b[:], ip[:])
	binary.BigEndian.PutUint16(a.b[atPort:], at.Port())
	a.b[atFamily] = family
	return a
}

// EveryIP returns the local Addr of a port on all IPv4 and IPv6 addresses of the host.
func EveryIP(port uint16) Addr {
	a := IP(netip.AddrPortFrom(netip.IPv6Unspecified(), port))
	a.b[atFamily] = familyBoth
	return a
}

// IsIP reports whether a is an IP address.
func (a *Addr) IsIP() bool { return a.b[atFamily] != 0 }

// IsIPv4 reports whether a is an IPv4 address.
func (a *Addr) IsIPv4() bool { return a.b[atFamily] == family4 }

// AddrPort returns the IP address and the port. a must be an IP address.
func (a *Addr) AddrPort() netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom16([16]byte(a.b[:atPort])).Unmap(), binary.BigEndian.Uint16(a.b[atPort:]))
}

// Reaches reports whether frames from a link of address a may go to address to: both are of one family.
func (a *Addr) Reaches(to *Addr) bool {
	f, t := a.b[atFamily], to.b[atFamily]
	return f == t || f == familyBoth && t != 0
}

// By returns the address as it is reached from one of a lane's sockets.
func (a Addr) By(socket uint8) Addr {
	a.b[atSocket] = socket
	return a
}

// Socket returns which of a lane's sockets reaches the address.
func (a *Addr) Socket() uint8 { return a.b[atSocket] }

// SameHost reports whether two IP addresses differ in their ports at most.
func (a *Addr) SameHost(o *Addr) bool {
	return [atPort]byte(a.b[:]) == [atPort]byte(o.b[:]) && a.b[atFamily] == o.b[atFamily]
}

// In reports whether an IP address is in one of some networks.
func (a *Addr) In(networks []netip.Prefix) bool {
	ip := a.AddrPort().Addr()
	for _, n := range networks {
		if n.Contains(ip) {
			return true
		}
	}
	return false
}

// AppendTo appends what is said of the address to peers (PROTOCOL clause 10.4): of an IP address nothing, since the
// peer sees a better one (clause 21.4).
func (a *Addr) AppendTo(b []byte) []byte {
	if a.IsIP() {
		return append(b, 0, 0, 0, 0, 0, 0)
	}
	return append(b, a.b[:6]...)
}

// AppendPlace appends an IP address and port as an Echo has them (clause 9.3): 4 or 16 bytes and 2.
func (a *Addr) AppendPlace(b []byte) []byte {
	at := a.AddrPort()
	if at.Addr().Is4() {
		b = append(b, a.b[atPort-4:atPort]...)
	} else {
		b = append(b, a.b[:atPort]...)
	}
	return binary.BigEndian.AppendUint16(b, at.Port())
}

// Place returns the Addr that AppendPlace has appended; none if b is nothing of the kind.
func Place(b []byte) Addr {
	ip, ok := netip.AddrFromSlice(b[:max(0, len(b)-2)])
	if !ok {
		return Addr{}
	}
	return IP(netip.AddrPortFrom(ip, binary.BigEndian.Uint16(b[len(b)-2:])))
}

// PlaceLens are the lengths of what AppendPlace appends.
const (
	PlaceLen4 = 4 + 2
	PlaceLen6 = 16 + 2
)

// AppendWhole appends everything that distinguishes the address from others.
func (a *Addr) AppendWhole(b []byte) []byte { return append(b, a.b[:]...) }

// WholeLen is how many bytes AppendWhole appends.
const WholeLen = addrLen

// Known reports whether a is an address.
func (a *Addr) Known() bool { return *a != Addr{} }

// String returns the usual form of the address.
func (a Addr) String() string {
	if a.IsIP() {
		return a.AddrPort().String()
	}
	b := &a.b
	return fmt.Sprintf("%02x:%02x:%02x:%02x:%02x:%02x", b[0], b[1], b[2], b[3], b[4], b[5])
}

// HeaderLen is the length in bytes of what precedes each frame on a link.
const HeaderLen = 14

// Framing is how frames of the transport are told from others on a link.
type Framing struct {
	etherType uint16
}

// DefaultFraming is that of Ethernet frames of the default EtherType, IEEE 802 local experimental 1 (clause 2.1).
var DefaultFraming = EtherFraming(0x88b5)

// EtherFraming is that of Ethernet frames of one EtherType.
func EtherFraming(etherType uint16) Framing { return Framing{etherType} }

// PutHeader writes what precedes a frame into the first HeaderLen bytes of b. On an IP link that names no address
// (clause 21.1): Tx.To does.
func (f Framing) PutHeader(b []byte, from, to *Addr) {
	_ = b[HeaderLen-1]
	if from.IsIP() {
		clear(b[:12])
	} else {
		copy(b, to.b[:6])
		copy(b[6:], from.b[:6])
	}
	binary.BigEndian.PutUint16(b[12:], f.etherType)
}

// Has reports whether b is a frame of the transport, which begins behind its first HeaderLen bytes.
func (f Framing) Has(b []byte) bool {
	return len(b) >= HeaderLen && binary.BigEndian.Uint16(b[12:]) == f.etherType
}

// From returns the address that sent b, of at least HeaderLen bytes, on an Ethernet link.
func From(b []byte) Addr { return Ether([6]byte(b[6:12])) }
