package linkdrv

import "encoding/binary"

// A super-frame on its way between the driver and the kernel (PROTOCOL clause 12):
//
//	| virtio_net_hdr 10 | Ethernet 14 | IPv6 40 | UDP 8 | frame | frame | ... | last frame |
//	                    '------- outer headers --------'  all of one length, but the last, which may be shorter
//
// The kernel, or the interface, puts a copy of the outer headers before each frame when the wire needs it; the first
// ten bytes tell how. Each of the frames is complete, its own Ethernet header included.

const (
	vnetLen = 10 // struct virtio_net_hdr, in the byte order of the machine
	ipLen   = 40
	udpLen  = 8
	// udpOverhead is what the outer headers take of an interface's MTU beyond the inner Ethernet header's own place.
	udpOverhead = ipLen + udpLen + HeaderLen

	etherIPv6 = 0x86DD
	nextUDP   = 17
	// hopLimit is that of all frames on the wire. Routers lower it, so a frame that has it comes from this link.
	hopLimit = 255

	// superBytes is the most bytes of frames in one super-frame: IPv6's length is 16 bits, and the kernel cuts up what
	// is 64 KiB long with its headers.
	superBytes = 65535 - OuterLen

	vnetNeedsChecksum = 1 // VIRTIO_NET_HDR_F_NEEDS_CSUM
	vnetSingle        = 0 // VIRTIO_NET_HDR_GSO_NONE
	vnetUDP           = 5 // VIRTIO_NET_HDR_GSO_UDP_L4
)

// OuterLen is what stands before the first frame of a datagram on the wire, in bytes.
const OuterLen = HeaderLen + ipLen + udpLen

// InDatagram reports whether an Ethernet frame is a datagram that carries frames.
func InDatagram(frame []byte) bool {
	return len(frame) >= OuterLen && frame[12] == etherIPv6>>8 && frame[13] == etherIPv6&0xff &&
		frame[atNext] == nextUDP &&
		[2]byte(frame[atDestination+8:]) == [2]byte(nodePrefix[8:])
}

// nodePrefix begins the addresses: link-local, and "me" before the six bytes of the hardware address, so that no host
// has one for its own.
var nodePrefix = [10]byte{0xfe, 0x80, 8: 'm', 9: 'e'}

// Offsets in the outer headers.
const (
	atNext        = HeaderLen + 6
	atHops        = HeaderLen + 7
	atSource      = HeaderLen + 8
	atDestination = HeaderLen + 24
	atUDP         = HeaderLen + ipLen
	atSourcePort  = atUDP
	atPort        = atUDP + 2
	atLength      = atUDP + 4
	atChecksum    = atUDP + 6
)

// outer is what precedes the frames of one super-frame.
type outer [vnetLen + OuterLen]byte

// init writes what all super-frames of a driver share.
func (o *outer) init(mac []byte, port uint16) {
	v, h := o[:vnetLen], o[vnetLen:]
	v[0] = vnetNeedsChecksum
	binary.NativeEndian.PutUint16(v[2:], OuterLen)
	binary.NativeEndian.PutUint16(v[6:], atUDP)
	binary.NativeEndian.PutUint16(v[8:], atChecksum-atUDP)

	copy(h[6:], mac)
	binary.BigEndian.PutUint16(h[12:], etherIPv6)
	h[atNext], h[atHops] = nextUDP, hopLimit
	copy(h[atSource:], nodePrefix[:])
	copy(h[atSource+len(nodePrefix):], mac)
	copy(h[atDestination:], nodePrefix[:])
	binary.BigEndian.PutUint16(h[atPort:], port)
}

// flow is what frames of one super-frame have in common: where they go, and their session, by which the receiver's
// kernel chooses the shard.
type flow struct {
	destination [6]byte
	session     uint32
}

// flowOf reads the flow of a frame, which has at least its Ethernet header.
func flowOf(head []byte) (f flow) {
	copy(f.destination[:], head)
	if at := HeaderLen + sessionOffset; len(head) >= at+4 {
		f.session = binary.BigEndian.Uint32(head[at:])
	}
	return f
}

// sameFlow reports whether two frames are of one flow.
func sameFlow(a, b []byte) bool {
	const at = HeaderLen + sessionOffset
	if len(a) < at+4 || len(b) < at+4 {
		return flowOf(a) == flowOf(b)
	}
	return [6]byte(a) == [6]byte(b) && [4]byte(a[at:]) == [4]byte(b[at:])
}

// label and sourcePort together are another pair for each session, so that whoever merges or spreads datagrams keeps
// the frames of a session together and those of two sessions apart.
func (f *flow) label() uint32      { return f.session >> 14 }
func (f *flow) sourcePort() uint16 { return 0xC000 | uint16(f.session&0x3FFF) }

// fill completes the headers of a super-frame: frames of step bytes (but the last) that together have size bytes.
func (o *outer) fill(f *flow, step, size int) {
	v, h := o[:vnetLen], o[vnetLen:]
	v[1] = vnetSingle
	if size > step {
		v[1] = vnetUDP
	}
	binary.NativeEndian.PutUint16(v[4:], uint16(step))

	copy(h, f.destination[:])
	copy(h[atDestination+len(nodePrefix):], f.destination[:])
	length := uint16(udpLen + size)
	binary.BigEndian.PutUint32(h[HeaderLen:], 6<<28|f.label())
	binary.BigEndian.PutUint16(h[HeaderLen+4:], length)
	binary.BigEndian.PutUint16(h[atSourcePort:], f.sourcePort())
	binary.BigEndian.PutUint16(h[atLength:], length)
	binary.BigEndian.PutUint16(h[atChecksum:], pseudoSum(h[atSource:atUDP], length))
}

// pseudoSum is the sum over the pseudo header (RFC 8200, 8.1), to which whoever completes the checksum adds the rest.
func pseudoSum(addresses []byte, length uint16) uint16 {
	sum := uint32(length) + nextUDP
	for ; len(addresses) >= 2; addresses = addresses[2:] {
		sum += uint32(binary.BigEndian.Uint16(addresses))
	}
	for sum > 0xFFFF {
		sum = sum>>16 + sum&0xFFFF
	}
	return uint16(sum)
}

// openSuper returns the frames in a super-frame and the length of each but the last, given the virtio_net_hdr that the
// kernel put before it. It returns nil for what is none. The socket's filter has looked at the addresses.
func openSuper(vnet, super []byte) (frames []byte, step int) {
	if len(vnet) < vnetLen || len(super) < OuterLen+HeaderLen {
		return nil, 0
	}
	frames = super[OuterLen:]
	length := int(binary.BigEndian.Uint16(super[atLength:])) - udpLen
	if length < HeaderLen || length > len(frames) {
		return nil, 0
	}
	frames = frames[:length:length]
	switch vnet[1] {
	case vnetSingle:
		return frames, length
	case vnetUDP:
		if step = int(binary.NativeEndian.Uint16(vnet[4:])); step >= HeaderLen {
			return frames, min(step, length)
		}
	}
	return nil, 0
}
