package lab

import (
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// congestionOf connects two hosts over a link and returns what TCP_CONGESTION says at both ends.
func congestionOf(t *testing.T, l *Lab) (both [2]string) {
	t.Helper()
	open := func(h *Host) (fd int) {
		must(t, h.Do(func() (err error) {
			family := unix.AF_INET
			if h.IP(0).Is6() {
				family = unix.AF_INET6
			}
			fd, err = unix.Socket(family, unix.SOCK_STREAM, 0)
			return err
		}))
		t.Cleanup(func() { unix.Close(fd) })
		return fd
	}
	server, client := open(l.Host(1)), open(l.Host(0))
	ip, at := l.Host(1).IP(0), unix.Sockaddr(nil)
	if at = (&unix.SockaddrInet6{Addr: ip.As16()}); ip.Is4() {
		at = &unix.SockaddrInet4{Addr: ip.As4()}
	}
	must(t, unix.Bind(server, at))
	must(t, unix.Listen(server, 1))
	to, err := unix.Getsockname(server)
	must(t, err)
	must(t, unix.Connect(client, to))
	accepted, _, err := unix.Accept(server)
	must(t, err)
	defer unix.Close(accepted)
	for i, fd := range []int{client, accepted} {
		both[i], err = unix.GetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION)
		must(t, err)
	}
	return both
}

// Sockets have the congestion control that was set, at both ends, and the next ones have the next; behind a router,
// too.
func TestSetCongestion(t *testing.T) {
	known, err := CongestionControls()
	must(t, err)
	if len(known) < 2 {
		t.Fatalf("this kernel has only %v: nothing to choose", known)
	}
	for _, spec := range []Spec{{}, {Medium: Routed}, {Medium: Routed, IPv6: true}} {
		l, err := New(t.Context(), spec)
		must(t, err)
		for _, name := range known {
			for _, h := range []*Host{l.Host(0), l.Host(1)} {
				must(t, h.SetCongestion(name))
			}
			if got := congestionOf(t, l); got != [2]string{name, name} {
				t.Errorf("%+v: the sockets have %v, want %s", spec, got, name)
			}
		}
		must(t, l.Close())
	}
}

func TestUnknownCongestionIsNamed(t *testing.T) {
	l, err := New(t.Context(), Spec{})
	must(t, err)
	defer l.Close()
	err = l.Host(0).SetCongestion("carrierpigeon")
	if err == nil || !strings.Contains(err.Error(), "modprobe tcp_carrierpigeon") {
		t.Fatalf("%v: want that the kernel has none of this name, and how to load it", err)
	}
}

// Offloads are on at a lab's links unless they are not wanted, and are named.
func TestOffloads(t *testing.T) {
	for _, without := range []bool{false, true} {
		l, err := New(t.Context(), Spec{NoOffloads: without})
		must(t, err)
		on, err := l.Host(1).Offloads()
		must(t, err)
		must(t, l.Close())
		if got := slices.Contains(strings.Split(on, ", "), "TSO"); got == without || (on == "none") != without {
			t.Errorf("without offloads %v: on are %s", without, on)
		}
	}
}
