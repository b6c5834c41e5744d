// Package frame has the pieces of a frame on its way between the engine and a driver: one type for each direction, so
// that neither copies the other's.
package frame

// Tx is one frame to send, gathered from up to three pieces. Head starts with the Ethernet header and holds at least
// those 14 bytes; Bulk and Tail may be empty. The driver reads the pieces only during Send.
//
// Joined says that the frame is a segment of a UDP datagram (GSO): a driver that can send datagrams puts it into one
// with the Joined frames of the same length, destination and session that follow it; others take no notice.
//
// To is where the frame goes on an IP link, whose header names no address; elsewhere it is none. Capable has it leave
// there with ECT(0), so that routers mark it instead of dropping it (PROTOCOL clause 21.12).
type Tx struct {
	Head, Bulk, Tail []byte
	To               Addr
	Joined           bool
	Capable          bool
}

// ECN is what the IP header of a datagram says of congestion (RFC 3168): the last two bits of its traffic class.
type ECN uint8

// The values of ECN.
const (
	NotECT ECN = iota // routers drop it if they have to
	ECT1              // of another meaning (RFC 9331), for which nothing here asks
	ECT0              // routers may mark it
	CE                // a router has marked it: it was about to be congested
)

// Len returns the length of the frame on the wire in bytes, without padding and checksum.
func (f *Tx) Len() int { return len(f.Head) + len(f.Bulk) + len(f.Tail) }

// AppendTo appends the frame, in one piece, to b.
func (f *Tx) AppendTo(b []byte) []byte {
	return append(append(append(b, f.Head...), f.Bulk...), f.Tail...)
}

// Rx is a received frame. A frame in one piece is all in Head, and Buf is nil.
//
// Of one that was received into a slot (linkdrv.Scatterer) Head is what precedes a bulk payload (less if the frame is
// shorter), Body what landed in the slot, Rest what did not fit there. Where frames arrive at page boundaries Head is
// all that landed in the slot, and Body is empty. Buf is the driver's buffer, which Join uses.
//
// Origin is where a frame of an IP link came from, in the driver's memory; nil: the frame's header says so. ECN is what
// its IP header said; elsewhere NotECT.
type Rx struct {
	Head, Body, Rest, Buf []byte
	Origin                *Addr
	ECN                   ECN
}

// From returns the address that sent the frame, of which Head has HeaderLen bytes.
func (f *Rx) From() Addr {
	if f.Origin != nil {
		return *f.Origin
	}
	return From(f.Head)
}

// Len returns the length of the frame in bytes.
func (f *Rx) Len() int { return len(f.Head) + len(f.Body) + len(f.Rest) }

// Join puts the frame together in the driver's buffer, if it is in pieces, and returns it.
func (f *Rx) Join() []byte {
	if f.Buf != nil {
		at, n := len(f.Head), f.Len()
		copy(f.Buf[at+len(f.Body):], f.Rest)
		copy(f.Buf[at:], f.Body)
		copy(f.Buf, f.Head)
		*f = Rx{Head: f.Buf[:n], Origin: f.Origin, ECN: f.ECN}
	}
	return f.Head
}
