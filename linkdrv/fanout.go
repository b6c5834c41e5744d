package linkdrv

import (
	"errors"
	"fmt"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// Sharing a link among receivers, one for each core that shall serve it: their sockets form a fanout group, and the
// kernel puts each frame into the queue of one of them, in the context in which the frame arrives. A classic BPF
// program loads the session number (PROTOCOL clauses 1.7 and 2.2); the kernel takes it modulo the number of sockets,
// which are numbered in the order of joining.
//
// When the interface goes down the kernel dissolves the group and later forms it anew in an order of its own. So a
// driver of a group that reported ErrLinkDown is of no further use: close all drivers of the group and open them again
// together.

// maxFanout is the most sockets of a group, unless the kernel is asked for more.
const maxFanout = 256

const (
	sessionOffset = 4 // of the session number, behind the Ethernet header
	// SKF_NET_OFF: offsets count from the network header, wherever the data of the skb begins
	netOffset = 0xfff00000
)

// ignoreOutgoing is PACKET_FANOUT_FLAG_IGNORE_OUTGOING of linux/if_packet.h: what PACKET_IGNORE_OUTGOING is for a
// socket without a group. Kernels before 6.2 do not heed it, so the filter of the sockets says it again.
const ignoreOutgoing = 0x4000

// bySession is the fanout program. The frames of a super-frame are of one session, so its first one speaks for all.
var bySession = assemble(
	bpf.LoadExtension{Num: bpf.ExtProto},
	bpf.JumpIf{Cond: bpf.JumpEqual, Val: etherIPv6, SkipTrue: 2},
	bpf.LoadAbsolute{Off: netOffset + sessionOffset, Size: 4},
	bpf.RetA{},
	bpf.LoadAbsolute{Off: netOffset + sessionOffset + udpOverhead, Size: 4},
	bpf.RetA{},
)

// joinGroup makes fanout groups of the drivers' sockets: of the first of each, and so on.
func joinGroup(ifname string, drivers []packetDriver) (err error) {
	for k, first := range drivers[0].sockets() {
		group := 0
		for i, d := range drivers {
			if group, err = d.sockets()[k].join(i == 0, group); err != nil {
				return fmt.Errorf("linkdrv: %s: socket %d of %d joins the fanout group: %w", ifname, i+1, len(drivers),
					explainFanout(err))
			}
		}
		if err = first.setProgram(unix.SOL_PACKET, unix.PACKET_FANOUT_DATA, bySession); err != nil {
			return fmt.Errorf("linkdrv: %s: fanout program: %w", ifname, err)
		}
	}
	return nil
}

// join makes the socket the next member of a group, or the first of a new one that nobody else uses, and returns the
// group's number.
func (s *socket) join(first bool, group int) (int, error) {
	how := unix.PACKET_FANOUT_CBPF | ignoreOutgoing
	if first {
		group, how = 0, how|unix.PACKET_FANOUT_FLAG_UNIQUEID
	}
	if err := unix.SetsockoptInt(s.fd, unix.SOL_PACKET, unix.PACKET_FANOUT, how<<16|group); err != nil {
		return 0, err
	}
	if !first {
		return group, nil
	}
	v, err := unix.GetsockoptInt(s.fd, unix.SOL_PACKET, unix.PACKET_FANOUT)
	return v & 0xffff, err
}

// explainFanout adds what the kernel's errno leaves out.
func explainFanout(err error) error {
	switch {
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENODEV), errors.Is(err, unix.ENETDOWN):
		return fmt.Errorf("%w (the interface went down meanwhile, or this kernel is older than 4.12: use shards = 1)",
			err)
	case errors.Is(err, unix.ENOSPC):
		return fmt.Errorf("%w (too many fanout groups exist)", err)
	}
	return err
}

func (s *socket) setProgram(level, option int, prog []bpf.RawInstruction) error {
	code := make([]unix.SockFilter, len(prog))
	for i, in := range prog {
		code[i] = unix.SockFilter{Code: in.Op, Jt: in.Jt, Jf: in.Jf, K: in.K}
	}
	return unix.SetsockoptSockFprog(s.fd, level, option, &unix.SockFprog{Len: uint16(len(code)), Filter: &code[0]})
}
