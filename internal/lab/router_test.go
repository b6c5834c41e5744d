package lab

import (
	"errors"
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Hosts of a routed lab have no network in common; what the router does to their datagrams is what was asked for.
func TestRouted(t *testing.T) {
	for _, v6 := range []bool{false, true} {
		l, err := New(t.Context(), Spec{Medium: Routed, Links: 2, MTU: 1500, IPv6: v6})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		for link := range 2 {
			a, b := l.Host(0), l.Host(1)
			if a.IP(link).Is6() != v6 || l.address(link, 0).Masked().Contains(b.IP(link)) {
				t.Fatalf("addresses %v and %v", a.IP(link), b.IP(link))
			}
			from, to := socket(t, a, a.IP(link)), socket(t, b, b.IP(link))
			at := to.LocalAddr().(*net.UDPAddr).AddrPort()
			number, buf := byte(0), make([]byte, 2000)
			passes := func(n int, want bool) {
				t.Helper()
				number++ // one that was late is another's
				message := make([]byte, n)
				message[0] = number
				wait := 2 * time.Second
				if !want {
					wait = 50 * time.Millisecond
				}
				for range 3 { // a router that has to find a neighbour, or has changed its mind, may lose one
					if _, err := from.WriteToUDPAddrPort(message, at); err != nil {
						continue // an ICMP message has come
					}
					_ = to.SetReadDeadline(time.Now().Add(wait))
					got, err := to.Read(buf)
					for err == nil && buf[0] != number {
						got, err = to.Read(buf)
					}
					if err == nil && got == n {
						if !want {
							t.Errorf("IPv6 %v, link %d: %d bytes pass", v6, link, n)
						}
						return
					}
				}
				if want {
					t.Errorf("IPv6 %v, link %d: %d bytes do not pass", v6, link, n)
				}
			}
			k := l.Link(link)
			passes(1400, true)
			must(t, k.SetRouterMTU(1, 1300))
			passes(1400, false)
			passes(1200, true)
			must(t, k.SetRouterMTU(1, 1500))
			must(t, k.CutTowards(1, true))
			passes(100, false)
			must(t, k.CutTowards(1, false))
			passes(100, true)
			must(t, k.Renumber(1, 9))
			passes(100, false)
			if again := socket(t, b, k.lab.routed(link, 1, 9).Addr()); again.Close() != nil {
				t.Error("the new address is not the host's")
			}
			from.Close()
			to.Close()
		}
	}
	for _, bad := range []Spec{{IPv6: true}, {Medium: Routed, Faults: Faults{Loss: 0.1}}} {
		if l, err := New(t.Context(), bad); err == nil {
			l.Close()
			t.Errorf("%+v was built", bad)
		}
	}
}

// socket is a UDP socket of a host at an address, whose datagrams are not fragmented.
func socket(t *testing.T, h *Host, at netip.Addr) *net.UDPConn {
	t.Helper()
	var c *net.UDPConn
	must(t, h.Do(func() (err error) {
		if c, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(at, 0))); err != nil {
			return err
		}
		raw, err := c.SyscallConn()
		if err != nil {
			return err
		}
		var set error
		err = raw.Control(func(fd uintptr) {
			if at.Is6() {
				set = unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_PROBE)
			} else {
				set = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_PROBE)
			}
		})
		return errors.Join(err, set)
	}))
	return c
}
