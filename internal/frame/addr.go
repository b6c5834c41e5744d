package frame

import (
	"encoding/binary"
	"fmt"
)

// Addr is the address of a link on its network. Drivers and the wire format make and read it; everybody else compares
// it and passes it on. The zero Addr is none.
type Addr struct {
	b [addrLen]byte // an Ethernet address first; the rest is zero
}

// addrLen leaves room for addresses that are longer than those of Ethernet: 16 bytes, a port and a lane.
const addrLen = 20

// Broadcast reaches everybody on a link.
var Broadcast = Ether([6]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff})

// Ether returns the Addr of an Ethernet address.
func Ether(mac [6]byte) (a Addr) {
	copy(a.b[:], mac[:])
	return a
}

// AppendTo appends what is said of the address to peers (PROTOCOL clauses 4.3 and 10.4).
func (a *Addr) AppendTo(b []byte) []byte { return append(b, a.b[:6]...) }

// Known reports whether a is an address.
func (a *Addr) Known() bool { return *a != Addr{} }

// String returns the usual form of the address.
func (a Addr) String() string {
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

// PutHeader writes what precedes a frame into the first HeaderLen bytes of b.
func (f Framing) PutHeader(b []byte, from, to *Addr) {
	_ = b[HeaderLen-1]
	copy(b, to.b[:6])
	copy(b[6:], from.b[:6])
	binary.BigEndian.PutUint16(b[12:], f.etherType)
}

// Has reports whether b is a frame of the transport, which begins behind its first HeaderLen bytes.
func (f Framing) Has(b []byte) bool {
	return len(b) >= HeaderLen && binary.BigEndian.Uint16(b[12:]) == f.etherType
}

// From returns the address that sent b, of at least HeaderLen bytes.
func From(b []byte) Addr { return Ether([6]byte(b[6:12])) }
