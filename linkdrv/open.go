package linkdrv

import (
	"fmt"
	"net"
	"slices"

	"github.com/mdlayher/ethernet"
	"github.com/mdlayher/packet"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// Opening, in order:
//
//  1. the interface is looked up in the calling thread's namespace and must be Ethernet and up;
//  2. mdlayher/packet opens and binds the socket, or both of them, with a filter that rejects everything;
//  3. the descriptor is duplicated and the original closed, see the package comment;
//  4. the socket is configured, the receive side (ring or queue) is set up;
//  5. the real filter replaces the first one: only now can frames arrive, none of them half configured.

// Open opens the interface called ifname for frames of one EtherType.
//
// Errors name the remedy. An unknown interface is ErrNoLink and lists the existing ones, an interface that is down is
// ErrLinkDown, a missing CAP_NET_RAW is os.ErrPermission.
func Open(ifname string, o Options) (Driver, error) {
	drivers, err := OpenShards(ifname, 1, o)
	if err != nil {
		return nil, err
	}
	return drivers[0], nil
}

// OpenShards opens the interface once for each of n shards: frames of session number s arrive at driver s modulo n
// only. With Options.Listen it opens an IP link: shard s has the port that is s above, and a driver for each lane;
// those of one lane stand together. No driver takes a frame before all of them can. The drivers belong
// together, but each may be used and closed by goroutines of its own.
//
// Errors are those of Open.
func OpenShards(ifname string, n int, o Options) ([]Driver, error) {
	if n < 1 || n > maxFanout {
		return nil, fmt.Errorf("linkdrv: %d shards: want 1 to %d", n, maxFanout)
	}
	if o.EtherType == 0 {
		o.EtherType = EtherType
	}
	var ifi *net.Interface // nil: an IP link is none
	if o.Listen != "" {
		o.Kind = KindIP
	} else {
		var err error
		if ifi, err = lookup(ifname); err != nil {
			return nil, err
		}
		o.resolve(ifi)
	}
	open, err := opener(o)
	if err != nil {
		return nil, err
	}
	return open(ifi, n, o)
}

// admit puts the filters in place that pass what the driver is to receive.
func admit(d packetDriver, o Options) error {
	for i, s := range d.sockets() {
		if err := s.setProgram(unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, d.filter(i, o)); err != nil {
			return fmt.Errorf("filter: %w", err)
		}
	}
	return nil
}

// resolve chooses the kind of driver for an interface.
func (o *Options) resolve(ifi *net.Interface) {
	if o.Kind == "" {
		o.Kind = kindFor(ifi, o)
	}
	if o.Kind == KindAlone {
		o.Kind = aloneKind(ifi.MTU)
	}
}

// kindFor chooses the fastest driver. A virtual link hands datagrams over whole and costs nothing by the byte; what
// NICs gain by them was not measured.
func kindFor(ifi *net.Interface, o *Options) string {
	if !o.Qdisc && o.EtherType != EtherTypeAll && o.RingSlots <= ringSlots &&
		superBytes/(ifi.MTU+HeaderLen) >= fewFrames && isVeth(ifi.Name) && superKernel() == nil {
		return KindUDP
	}
	return KindAlone
}

// aloneKind chooses the faster driver of those that send frames alone.
func aloneKind(mtu int) string {
	if mtu <= 2048 {
		return KindMmsg
	}
	return KindRing
}

// isVeth reports whether the interface, of the calling thread's namespace, is one end of a virtual pair.
func isVeth(name string) bool {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	info, err := unix.IoctlGetEthtoolDrvinfo(fd, name)
	return err == nil && unix.ByteSliceToString(info.Driver[:]) == "veth"
}

func lookup(name string) (*net.Interface, error) {
	all, err := net.Interfaces()
	if err != nil {
		return nil, fmt.Errorf("linkdrv: %q: the interfaces cannot be listed: %w", name, err)
	}
	i := slices.IndexFunc(all, func(ifi net.Interface) bool { return ifi.Name == name })
	if i < 0 {
		return nil, unknownLink(name, all)
	}
	ifi := &all[i]
	switch {
	case len(ifi.HardwareAddr) != 6:
		return nil, fmt.Errorf("linkdrv: %s is not an Ethernet interface: it has no 6-byte hardware address", name)
	case ifi.Flags&net.FlagUp == 0:
		return nil, newLinkErrors(Info{Name: name}).down
	}
	return ifi, nil
}

// newSocket opens a socket that no frame reaches yet and configures it for both directions; its receive side is the
// driver's business.
func newSocket(ifi *net.Interface, protocol ethernet.EtherType, o Options) (*socket, error) {
	conn, err := packet.Listen(ifi, packet.Raw, int(protocol), &packet.Config{Filter: rejectAll})
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	rc, err := conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	if o.Promiscuous {
		if err := conn.SetPromiscuous(true); err != nil {
			return nil, err
		}
	}
	fd, dupErr := -1, error(nil)
	if err := rc.Control(func(orig uintptr) { fd, dupErr = unix.FcntlInt(orig, unix.F_DUPFD_CLOEXEC, 0) }); err != nil {
		return nil, err
	}
	if dupErr != nil {
		return nil, fmt.Errorf("duplicate descriptor: %w", dupErr)
	}
	info := Info{Name: ifi.Name, Index: ifi.Index, MAC: ifi.HardwareAddr, MTU: ifi.MTU, Kind: o.Kind,
		Pages: o.Pages}
	s := &socket{fd: fd, info: info, errs: newLinkErrors(info), tx: newSendQueue()}
	if err := s.configure(o); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// sndBuf bounds the bytes that wait in a real NIC's transmit queue; veth never queues.
const sndBuf = 4 << 20

func (s *socket) configure(o Options) error {
	if s.bypass = !o.Qdisc; s.bypass {
		if err := s.setInt(unix.SOL_PACKET, unix.PACKET_QDISC_BYPASS, 1, "PACKET_QDISC_BYPASS"); err != nil {
			return err
		}
	}
	if err := s.setInt(unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1, "PACKET_IGNORE_OUTGOING"); err != nil {
		return err
	}
	return s.setBuffer(unix.SO_SNDBUFFORCE, unix.SO_SNDBUF, sndBuf)
}

func (s *socket) setInt(level, opt, v int, name string) error {
	if err := unix.SetsockoptInt(s.fd, level, opt, v); err != nil {
		return fmt.Errorf("setsockopt %s: %w", name, err)
	}
	return nil
}

// setBuffer sets a buffer size by force, or as far as the system's limit allows without CAP_NET_ADMIN.
func (s *socket) setBuffer(force, opt, bytes int) error {
	if unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, force, bytes) == nil {
		return nil
	}
	return s.setInt(unix.SOL_SOCKET, opt, bytes, "socket buffer size")
}

// rejectAll keeps frames out of a socket that is not configured yet.
var rejectAll = assemble(bpf.RetConstant{Val: 0})

// acceptFilter passes whole frames: those for this host, or all. Frames of this host's own are refused once more, see
// ignoreOutgoing.
func acceptFilter(promiscuous bool) []bpf.RawInstruction {
	const whole = 1 << 18
	if promiscuous {
		return assemble(bpf.RetConstant{Val: whole})
	}
	return assemble(
		bpf.LoadExtension{Num: bpf.ExtType},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.PACKET_OTHERHOST, SkipTrue: 2},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.PACKET_OUTGOING, SkipTrue: 1},
		bpf.RetConstant{Val: whole},
		bpf.RetConstant{Val: 0},
	)
}

func assemble(prog ...bpf.Instruction) []bpf.RawInstruction {
	raw, err := bpf.Assemble(prog)
	if err != nil {
		panic("BUG: linkdrv: filter does not assemble: " + err.Error())
	}
	return raw
}
