package faults

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"multiedge/bench/kit"
	"multiedge/internal/lab"
)

// Forged ICMP (PROTOCOL clause 21.6): whoever knows two addresses and ports can say that datagrams between them are too
// long, or that nobody listens. Kernels believe that, and their sockets obey it unless told otherwise.

// icmpEvery is the time between two rounds of messages to each host.
const icmpEvery = 5 * time.Millisecond

// What the messages say that the way carries: the least that Linux believes.
const (
	forgedMTU  = 552
	forgedMTU6 = 1280
)

// icmpMessage is a message of a router about a datagram between two IPv4 sockets: destination unreachable with that
// code, and the MTU that is said to be the next.
func icmpMessage(code byte, mtu uint16, from, to netip.AddrPort) []byte {
	const ip, udp = 20, 8
	b := make([]byte, 8+ip+udp)
	b[0], b[1] = 3, code
	binary.BigEndian.PutUint16(b[6:], mtu)
	inner := b[8:]
	inner[0], inner[6], inner[8], inner[9] = 0x45, 0x40, 60, unix.IPPROTO_UDP
	binary.BigEndian.PutUint16(inner[2:], 1500)
	copy(inner[12:], from.Addr().AsSlice())
	copy(inner[16:], to.Addr().AsSlice())
	binary.BigEndian.PutUint16(inner[10:], sum16(inner[:ip]))
	binary.BigEndian.PutUint16(inner[ip:], from.Port())
	binary.BigEndian.PutUint16(inner[ip+2:], to.Port())
	binary.BigEndian.PutUint16(inner[ip+4:], 1480)
	binary.BigEndian.PutUint16(b[2:], sum16(b))
	return b
}

// icmp6Message is a message of a router about a datagram between two IPv6 sockets: of that type and code, and with the
// MTU that is said to be the next. The kernel adds the checksum.
func icmp6Message(kind, code byte, mtu uint32, from, to netip.AddrPort) []byte {
	const ip, udp = 40, 8
	b := make([]byte, 8+ip+udp)
	b[0], b[1] = kind, code
	binary.BigEndian.PutUint32(b[4:], mtu)
	inner := b[8:]
	inner[0], inner[6], inner[7] = 0x60, unix.IPPROTO_UDP, 60
	binary.BigEndian.PutUint16(inner[4:], 1460)
	copy(inner[8:], from.Addr().AsSlice())
	copy(inner[24:], to.Addr().AsSlice())
	binary.BigEndian.PutUint16(inner[ip:], from.Port())
	binary.BigEndian.PutUint16(inner[ip+2:], to.Port())
	binary.BigEndian.PutUint16(inner[ip+4:], 1460)
	return b
}

// forgeries are messages to a host about a datagram that it sends: too long, and to a port where nobody listens.
func forgeries(from, to netip.AddrPort) [][]byte {
	if from.Addr().Is6() {
		return [][]byte{icmp6Message(2, 0, forgedMTU6, from, to), icmp6Message(1, 4, 0, from, to)}
	}
	return [][]byte{icmpMessage(4, forgedMTU, from, to), icmpMessage(3, 0, from, to)}
}

// sum16 is the checksum of the Internet protocols.
func sum16(b []byte) uint16 {
	sum := uint32(0)
	for i := 0; i+1 < len(b); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}

// forge sends messages to both hosts, about what each sends to the other, until the returned function is called, which
// says how many there were.
func (t *Trial) forge() (stop func() uint64) {
	l, sent := t.cluster.Lab(), uint64(0)
	ctx, cancel := context.WithCancel(t.ctx)
	var done sync.WaitGroup
	var failed error
	fd, family, protocol := -1, unix.AF_INET, unix.IPPROTO_ICMP
	if t.isIPv6() {
		family, protocol = unix.AF_INET6, unix.IPPROTO_ICMPV6
	}
	kit.Check(l.Link(0).AtRouter(0, func() (err error) {
		fd, err = unix.Socket(family, unix.SOCK_RAW|unix.SOCK_CLOEXEC, protocol)
		return err
	}))
	var messages [2][][]byte
	var hosts [2]unix.Sockaddr
	for h := range messages {
		messages[h] = forgeries(t.cluster.Endpoint(h, 0), t.cluster.Endpoint(1-h, 0))
		if hosts[h] = (&unix.SockaddrInet6{Addr: l.Host(h).IP(0).As16()}); !t.isIPv6() {
			hosts[h] = &unix.SockaddrInet4{Addr: l.Host(h).IP(0).As4()}
		}
	}
	done.Go(func() {
		defer unix.Close(fd)
		tick := time.NewTicker(icmpEvery)
		defer tick.Stop()
		for ctx.Err() == nil && failed == nil {
			for h, ms := range messages {
				for _, m := range ms {
					failed = errors.Join(failed, unix.Sendto(fd, m, 0, hosts[h]))
					sent++
				}
			}
			<-tick.C
		}
	})
	return func() uint64 {
		cancel()
		done.Wait()
		kit.Check(failed)
		return sent
	}
}

// unreachable is how many ICMP messages of these kinds a host's kernel has taken.
func unreachable(h *lab.Host) (n uint64) {
	kit.Check(h.Do(func() error {
		v4, err := os.ReadFile("/proc/thread-self/net/snmp")
		if err != nil {
			return err
		}
		v6, err := os.ReadFile("/proc/thread-self/net/snmp6")
		if err != nil {
			return err
		}
		var names []string
		for line := range strings.Lines(string(v4)) {
			words := strings.Fields(line)
			if len(words) == 0 || words[0] != "Icmp:" {
				continue
			}
			for i, name := range names {
				if name == "InDestUnreachs" && i < len(words) {
					n, err = strconv.ParseUint(words[i], 10, 64)
				}
			}
			names = words
		}
		for line := range strings.Lines(string(v6)) {
			var name string
			var count uint64
			if _, bad := fmt.Sscan(line, &name, &count); bad == nil && (name == "Icmp6InDestUnreachs" ||
				name == "Icmp6InPktTooBigs") {
				n += count
			}
		}
		return err
	}))
	return n
}

// forgedICMP forges messages of the router about the hosts' datagrams while data flow.
func forgedICMP() Scenario {
	return Scenario{
		Name: "forged icmp: datagrams too long, nobody listens", Group: Adversary, Short: true,
		Criteria: "no operation fails, no frame is refused by a socket, and frames stay as long; the median turn has " +
			"at least 70 % of the goodput",
		Set: routed,
		Run: func(t *Trial) {
			l := t.cluster.Lab()
			c := t.pair(MixBulk, 2, 8)
			before := t.present(0)
			took, was := unreachable(l.Host(0))+unreachable(l.Host(1)), t.daemonCounters()["send_discards"]
			var x turns
			for range t.many(turnsJudged, 2) {
				stop := func() uint64 { return 0 }
				t.turn(c, &x, t.span(time.Second, 400*time.Millisecond), func() { stop = t.forge() })
				t.injected("messages forged", stop())
			}
			taken := unreachable(l.Host(0)) + unreachable(l.Host(1)) - took
			t.counted("messages that the kernels took", taken)
			t.agrees("messages that the kernels took", taken, t.row.Injected["messages forged"], 0)
			now := t.path(0, "edge0", "host1")
			t.check("frames stay as long", now != nil && now.MTU == before.MTU && now.State == "good",
				"%+v, before %+v", now, before)
			refused := t.daemonCounters()["send_discards"] - was
			t.check("sockets refuse nothing", refused == 0, "%d frames", refused)
			t.unfailed(append(x.all(), t.drain(c))...)
			t.share("goodput beside messages", "goodput at least 70 %", x.ratio(), 0.7)
		},
	}
}
