package linkdrv

import (
	"net"

	"multiedge/internal/frame"

	"github.com/mdlayher/ethernet"
)

const (
	// EtherType is the default EtherType of the transport: IEEE 802 Local Experimental 1.
	EtherType ethernet.EtherType = 0x88B5
	// EtherTypeAll receives frames of every EtherType (ETH_P_ALL). For wires and taps, together with
	// Options.Promiscuous.
	EtherTypeAll ethernet.EtherType = 0x0003
)

const (
	// HeaderLen is the length in bytes of an untagged Ethernet header.
	HeaderLen = 14
	// SendBatch is the largest number of frames handed to the kernel by one system call.
	SendBatch = 64
	// RecvBatch is the largest number of frames the mmsg driver returns from one Recv, and a good len(dst) for both
	// drivers.
	RecvBatch = 32
)

// Kinds of driver, for Options.Kind and Info.Kind.
const (
	KindRing = "ring" // memory-mapped TPACKET_V2 receive ring
	KindMmsg = "mmsg" // recvmmsg into buffers of the driver
	// also many frames as one UDP datagram, cut up where the wire begins, to and from those who take them
	KindUDP   = "udp"
	KindAlone = "alone" // in Options: KindRing or KindMmsg, by MTU
)

// TxFrame is one frame to send.
type TxFrame = frame.Tx

// Driver sends and receives Ethernet frames on one interface. No method blocks, and Send and Recv do not allocate.
//
// It serves two goroutines at a time: one calls Recv (also RecvScatter, see Scatterer), the other Send and Stats. They
// may be the same one, and others may take their places. FD and Info are constant, for any goroutine. Close is called
// when nothing else runs.
type Driver interface {
	// Send hands frames to the kernel, up to SendBatch of them per system call, and returns how many it consumed: go on
	// with frames[n:]. All buffers are the caller's again on return. Where the device refuses a frame for long, Send
	// lets a shorter one go first: it swaps the two in frames.
	//
	//   - n < len(frames), err == nil: no room now (socket buffer, device queue, or no carrier); try later.
	//   - ErrRefused (which is also ErrTooLong): as ErrTooLong, because the device refused frames[n-1] for long, though
	//     it took a shorter one, or took nothing at all; longer ones are then offered to it once.
	//   - ErrTooLong, ErrBadFrame: frames[:n-1] were taken and only frames[n-1] was discarded, because it exceeds
	//     the interface's MTU (in datagrams: the one when opened, less Overhead) or is shorter than an Ethernet header;
	//     go on with frames[n:].
	//   - ErrLinkDown: the interface is down and nothing past n was taken; the driver works again once it is up.
	//   - ErrLinkGone (which is also ErrLinkDown): the interface was deleted; close the driver and open the new one.
	Send(frames []TxFrame) (n int, err error)

	// Recv stores up to len(dst) received frames in dst: complete Ethernet frames, contiguous, tag-free when the kernel
	// strips VLAN tags. Their bytes are the driver's, may be overwritten by the caller, and are valid until the next
	// Recv, which takes them back first; Recv(nil) only takes back. 0, nil: nothing now.
	//
	// The ring driver cannot receive into slots the caller holds: keep len(dst) a small part of Info().RxSlots.
	// ErrLinkDown is reported once each time the interface goes down, also if Send hears of it first, ErrLinkGone on
	// every call that finds no frame. One that comes up in the midst of a Send may be reported twice, or not at all if
	// it also went down in the midst of that Send.
	Recv(dst [][]byte) (n int, err error)

	// FD is the descriptor to ppoll: readable when frames wait or an error does. The ring is readable also while the
	// caller holds its newest frame, so poll only after a Recv that returned 0. It is not readable for a time down that
	// was over when Send heard of it.
	FD() int

	// Stats returns what was counted since Open. It costs a system call. The kernel counts in 32 bits from one call to
	// the next.
	Stats() (Stats, error)

	// Info describes the interface as it was when the driver was opened.
	Info() Info

	// Close releases the socket and the ring. Frames returned by Recv must not be touched afterwards.
	Close() error
}

// Stats counts frames since the driver was opened.
type Stats struct {
	Received uint64 // accepted into the ring or the socket queue by the kernel
	Dropped  uint64 // dropped by the kernel because the ring or the queue was full; KindUDP: super-frames
	// received longer than a slot, hence discarded: super-frames, or an MTU raised since Open; KindUDP: malformed ones
	Truncated uint64
	Sent      uint64 // taken by the kernel
	Refused   uint64 // discarded by Send: ErrTooLong, ErrBadFrame
	SendCalls uint64 // sendmmsg calls
	RecvCalls uint64 // system calls of Recv: recvmmsg, and questions for a waiting error
	NoRoom    uint64 // sendmmsg calls refused with EAGAIN or ENOBUFS, whose frames are offered again
	Uncut     uint64 // KindIP: calls refused because the kernel does not cut messages up where they leave
}

// Info describes an open driver.
type Info struct {
	Name    string           // of the interface, when opened; Watch reports renames
	Index   int              // interface index, which survives renames
	MAC     net.HardwareAddr // 6 bytes; do not modify; nil of KindIP
	MTU     int              // when opened: the largest frame is MTU+HeaderLen bytes
	RxSlots int              // largest frames the receive side can hold; KindUDP: however they arrive merged
	Kind    string           // KindRing, KindMmsg or KindUDP
	Pages   bool             // as in Options
	Local   Addr             // KindIP: the address that it has; elsewhere none
	// Below is what headers take of the MTUs of interfaces on the way, the 14 bytes of an Ethernet header's place
	// included: 0 but for KindIP.
	Below int
	// Ports: the lane asks from ports of its own, of which another may be drawn (Redrawer). Its address is the front's.
	Ports bool

	// Overhead is what the headers of a datagram take of the MTU: 0 but for KindUDP.
	Overhead int
	// Super is how many bytes of frames can cross in one super-frame, at hardly more than the cost of one frame: 0 but
	// for KindUDP and KindIP.
	Super int
}

// Addr is the address of a link, as others than drivers have it.
type Addr = frame.Addr

// Addr returns the address of the interface.
func (i *Info) Addr() Addr {
	if i.Local.Known() {
		return i.Local
	}
	var mac [6]byte
	copy(mac[:], i.MAC)
	return frame.Ether(mac)
}

// Framing returns how the transport's frames are told from others on links of that EtherType; 0 means EtherType.
func Framing(etherType uint16) frame.Framing {
	if etherType == 0 {
		etherType = uint16(EtherType)
	}
	return frame.EtherFraming(etherType)
}

// Options says how to open an interface. The zero value is the transport's default.
type Options struct {
	// Listen is where a link of KindIP listens, as ParseListen reads it: such a link is no interface. Empty: the link
	// is the interface of the name.
	Listen string
	// ECN has the datagrams of KindIP ask routers for marks of congestion (TxFrame.Capable).
	ECN bool
	// DSCP is the upper six bits of their traffic class.
	DSCP int
	// Lanes is how many lanes a link of KindIP has, up to MaxLanes; 0: one. Each has a driver.
	Lanes int
	// EtherType of the frames to receive; 0 means EtherType, EtherTypeAll every frame.
	EtherType ethernet.EtherType
	// Kind of driver. Empty chooses KindUDP on virtual links (veth) whose MTU lets a datagram hold some frames, unless
	// Qdisc says that their bytes are counted or RingSlots is large, and KindAlone elsewhere: KindMmsg up to an MTU of
	// 2048, KindRing above. All understand each other's frames but those in datagrams.
	Kind string
	// RingSlots is the number of frames the receive side holds; for a ring it is rounded up to whole blocks. 0 means as
	// many as keep the rings in cache (256 for ring up to an MTU of 9000, 120 for udp at 9000 and 210 at 1500) and up
	// to 1024 for mmsg. Without CAP_NET_ADMIN the system's rmem_max limits mmsg to less; Info().RxSlots tells.
	RingSlots int
	// Promiscuous also receives frames that are not addressed to the interface. Without it the kernel discards them
	// before they take a slot, also on interfaces (such as veth) that have no address filter.
	Promiscuous bool
	// Qdisc sends through the interface's queueing discipline, which is otherwise bypassed, by KindUDP unless the
	// kernel has to cut up what it sends. For wires shaped by tc.
	Qdisc bool
	// Pages has every frame received whole from the start of a page on, Ethernet header first, as the paper's NICs do
	// (2.3.2): for senders that put the first payload bytes behind the others. KindMmsg alone can.
	Pages bool
}
