package linkdrv

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"multiedge/internal/frame"
)

// ipPair opens two IP links at the ends of a veth pair of that MTU, of IPv4 or IPv6, the second in a namespace of its
// own.
func ipPair(t *testing.T, mtu int, v6 bool) (a, b *ipDriver) {
	t.Helper()
	a, b, _ = ipPairIn(t, mtu, v6)
	return a, b
}

func ipPairIn(t *testing.T, mtu int, v6 bool) (a, b *ipDriver, far netns.NsHandle) {
	t.Helper()
	namespace(t)
	veth(t, mtu)
	made := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		ns, err := netns.New()
		far = ns
		made <- err
	}()
	must(t, <-made)
	t.Cleanup(func() { far.Close() })
	must(t, netlink.LinkSetNsFd(link(t, "b0"), int(far)))
	at := []string{"10.9.0.1", "10.9.0.2", "24"}
	if v6 {
		at = []string{"fd09::1", "fd09::2", "64"}
	}
	address := func(name, at string) error {
		addr, err := netlink.ParseAddr(at)
		if err != nil {
			return err
		}
		addr.Flags = unix.IFA_F_NODAD
		l, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		return errors.Join(netlink.LinkSetUp(l), netlink.AddrAdd(l, addr))
	}
	must(t, inside(far, func() (err error) {
		if err = address("b0", at[1]+"/"+at[2]); err != nil {
			return err
		}
		d, err := Open("b", Options{Listen: net.JoinHostPort(at[1], "9470")})
		if err == nil {
			b = d.(*ipDriver)
		}
		return err
	}))
	t.Cleanup(func() { b.Close() })
	must(t, address("a0", at[0]+"/"+at[2]))
	return open(t, "a", Options{Listen: net.JoinHostPort(at[0], "9470")}).(*ipDriver), b, far
}

// ipFrame is a frame of n bytes behind the header, to a driver.
func ipFrame(to Driver, n int, joined bool) TxFrame {
	info := to.Info()
	head := make([]byte, HeaderLen, HeaderLen+n)
	DefaultIPHeader(head)
	body := make([]byte, n)
	for i := range body {
		body[i] = byte(rand.Uint32())
	}
	cut := rand.IntN(n + 1)
	return TxFrame{Head: head, Bulk: body[:cut], Tail: body[cut:], To: info.Local, Joined: joined}
}

// DefaultIPHeader is what precedes a frame on an IP link.
func DefaultIPHeader(b []byte) {
	var from Addr = frame.IP(netip.MustParseAddrPort("10.9.0.1:1"))
	frame.DefaultFraming.PutHeader(b, &from, &from)
}

// Clause 21.1: frames of all lengths arrive whole, in order, with the address that they came from; joined ones too.
func TestIPFrames(t *testing.T) {
	for _, v6 := range []bool{false, true} {
		for _, mtu := range []int{1500, 9000} {
			a, b := ipPair(t, mtu, v6)
			if want := mtu - 28 - HeaderLen; !v6 && a.Info().MTU != want || v6 && a.Info().MTU != want-20 {
				t.Errorf("MTU %d: frames of %d bytes", mtu, a.Info().MTU)
			}
			warm := ipFrame(b, 20, false) // the kernel finds the neighbour, and keeps few frames meanwhile
			if n, err := a.Send([]TxFrame{warm}); n != 1 || err != nil {
				t.Fatal(n, err)
			}
			receiveFrom(t, b, 1, a.Info().Local)
			for range 20 {
				var frames []TxFrame
				var want [][]byte
				long := 700 + rand.IntN(a.Info().MTU-700)
				for i := range SendBatch {
					n := long
					if i%7 == 6 {
						n = rand.IntN(a.Info().MTU + 1)
					}
					f := ipFrame(b, n, i%5 > 0)
					frames, want = append(frames, f), append(want, f.AppendTo(nil))
				}
				if n, err := a.Send(frames); n != len(frames) || err != nil {
					t.Fatalf("sent %d: %v", n, err)
				}
				for i, got := range receiveFrom(t, b, len(frames), a.Info().Local) {
					if !bytes.Equal(got, want[i]) {
						t.Fatalf("MTU %d: frame %d of %d bytes: %d bytes arrived, or they differ", mtu, i, len(want[i]),
							len(got))
					}
				}
			}
			s, err := b.Stats()
			if err != nil || s.Received != 20*SendBatch+1 || s.Dropped+s.Truncated != 0 {
				t.Errorf("receiver: %+v, %v", s, err)
			}
			if s, _ := a.Stats(); s.Sent != 20*SendBatch+1 || s.Refused != 0 || s.SendCalls > s.Sent {
				t.Errorf("sender: %+v", s)
			}
		}
	}
}

// receiveFrom is receive of frames whose source is known.
func receiveFrom(t *testing.T, d *ipDriver, want int, from Addr) (got [][]byte) {
	t.Helper()
	buf := make([][]byte, RecvBatch)
	for len(got) < want {
		n, err := d.Recv(buf)
		if err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			await(t, d, 2000)
			if n, _ = d.Recv(buf); n == 0 {
				s, _ := d.Stats()
				t.Fatalf("%d of %d frames after 2 s; %+v", len(got), want, s)
			}
		}
		for i, src := range d.Sources() {
			if src != from {
				t.Fatalf("a frame of %v came from %v", from, src)
			}
			got = append(got, bytes.Clone(buf[i]))
		}
		if len(d.Sources()) != n {
			t.Fatalf("%d sources of %d frames", len(d.Sources()), n)
		}
	}
	return got
}

// The kernel takes joined frames of one length as one message, and others apart.
func TestIPJoins(t *testing.T) {
	a, b := ipPair(t, 1500, false)
	var frames []TxFrame
	for range 40 {
		frames = append(frames, ipFrame(b, 1400, true))
	}
	frames = append(frames, ipFrame(b, 100, true), ipFrame(b, 100, true)) // a short one ends the first message
	if hdrs, _ := a.gather(frames); len(hdrs) != 2 || a.out.upto[0] != 41 {
		t.Errorf("%d messages, the first of %d frames", len(hdrs), a.out.upto[0])
	}
	other := ipFrame(b, 1400, true)
	other.To = frame.IP(netip.MustParseAddrPort("10.9.0.2:9471"))
	if hdrs, _ := a.gather([]TxFrame{frames[0], other, frames[1]}); len(hdrs) != 3 {
		t.Errorf("frames to two addresses are %d messages", len(hdrs))
	}
	a.alone = 2
	if hdrs, _ := a.gather(frames); len(hdrs) != len(frames) {
		t.Errorf("without segmentation: %d messages of %d frames", len(hdrs), len(frames))
	}
	for call, want := range []int{1, 1, 41} { // it is asked for again later
		if n, err := a.Send(frames); n != len(frames) || err != nil || a.out.upto[0] != want {
			t.Errorf("call %d: %d frames are sent, %v, the first message of %d", call, n, err, a.out.upto[0])
		}
	}
}

// What one destination refuses is lost; the frames to others leave, and the link lives.
func TestIPRefusals(t *testing.T) {
	a, b := ipPair(t, 1500, false)
	lost := ipFrame(b, 100, false)
	lost.To = frame.IP(netip.MustParseAddrPort("192.0.2.1:9470")) // no route
	six := ipFrame(b, 100, false)
	six.To = frame.IP(netip.MustParseAddrPort("[fd09::2]:9470"))
	none := ipFrame(b, 100, false)
	none.To = Addr{}
	for name, bad := range map[string]struct {
		f    TxFrame
		want error
	}{"no route": {lost, nil}, "another family": {six, ErrBadFrame}, "no address": {none, ErrBadFrame},
		"too long": {ipFrame(b, a.Info().MTU+1, false), ErrTooLong}} {
		frames := []TxFrame{ipFrame(b, 200, false), bad.f, ipFrame(b, 200, false)}
		sent, errs := 0, error(nil)
		for sent < len(frames) {
			n, err := a.Send(frames[sent:])
			if sent += n; err != nil {
				errs = err
			}
		}
		if !errors.Is(errs, bad.want) {
			t.Errorf("%s: %v", name, errs)
		}
		receiveFrom(t, b, 2, a.Info().Local)
	}
	if s, _ := a.Stats(); s.Refused != 4 {
		t.Errorf("%+v", s)
	}
}

// Clause 21.6: an ICMP message that says that only short datagrams pass, which anybody can forge, changes nothing.
func TestIPForgedICMP(t *testing.T) {
	a, b, far := ipPairIn(t, 1500, false)
	long := ipFrame(b, a.Info().MTU, false)
	if n, err := a.Send([]TxFrame{long}); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	receiveFrom(t, b, 1, a.Info().Local)
	must(t, inside(far, func() error {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_ICMP)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		for _, code := range []byte{3, 4} { // port unreachable, fragmentation needed and MTU 576
			message := []byte{3, code, 0, 0, 0, 0, 2, 0x40,
				0x45, 0, 5, 0xdc, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 9, 0, 1, 10, 9, 0, 2, // of a datagram from a to b
				0x24, 0xfe, 0x24, 0xfe, 5, 0xc8, 0, 0}
			binary.BigEndian.PutUint16(message[2:], internetSum(message))
			if err := unix.Sendto(fd, message, 0, &unix.SockaddrInet4{Addr: [4]byte{10, 9, 0, 1}}); err != nil {
				return err
			}
		}
		return nil
	}))
	believed, err := netlink.RouteGet(net.IPv4(10, 9, 0, 2))
	must(t, err)
	if len(believed) != 1 || believed[0].MTU != 576 {
		t.Fatalf("the kernel does not believe the message, so this test shows nothing: %+v", believed)
	}
	for range 3 {
		if n, err := a.Send([]TxFrame{long}); n != 1 || err != nil {
			t.Fatalf("after the message: %d, %v", n, err)
		}
	}
	receiveFrom(t, b, 3, a.Info().Local)
	if s, err := a.Stats(); err != nil || s.Refused != 0 {
		t.Errorf("%+v, %v", s, err)
	}
}

// internetSum is the checksum of ICMP.
func internetSum(b []byte) uint16 {
	sum := uint32(0)
	for i := 0; i < len(b); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	return ^uint16(sum>>16 + sum)
}

// One socket for all addresses speaks to IPv4 and IPv6 peers, and sees their addresses as they are.
func TestIPBothFamilies(t *testing.T) {
	for _, v6 := range []bool{false, true} {
		a, b, far := ipPairIn(t, 1500, v6)
		var all *ipDriver
		must(t, inside(far, func() error {
			d, err := Open("all", Options{Listen: ":9471"})
			if err == nil {
				all = d.(*ipDriver)
			}
			return err
		}))
		defer all.Close()
		local := b.Info().Local
		at := local.AddrPort()
		to := ipFrame(a, 300, false)
		to.To = frame.IP(netip.AddrPortFrom(at.Addr(), 9471))
		if n, err := a.Send([]TxFrame{to}); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		receiveFrom(t, all, 1, a.Info().Local)
		back := ipFrame(a, 300, false)
		if n, err := all.Send([]TxFrame{back}); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		receiveFrom(t, a, 1, to.To)
	}
}

// Addresses that cannot be listened at are refused with what to do.
func TestIPListen(t *testing.T) {
	namespace(t)
	for text, want := range map[string]string{"9470": "ADDRESS:PORT", "eth0:9470": "address", ":0": "port",
		":70000": "port", ":4791": "port 4791", ":65330": "port 65330",
		"[fe80::1%a0]:9470": "address", "224.0.0.1:9470": "address"} {
		if _, err := Open("x", Options{Listen: text}); !errors.Is(err, ErrListen) ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
	if _, err := Open("x", Options{Listen: "10.9.0.77:9470"}); !errors.Is(err, ErrNoLink) {
		t.Errorf("an address of no interface: %v", err)
	}
	must(t, netlink.LinkSetUp(link(t, "lo")))
	if _, err := OpenShards("x", 2, Options{Listen: ":65535"}); err == nil || !strings.Contains(err.Error(), "shards") {
		t.Errorf("a shard without a port: %v", err)
	}
	if _, err := OpenShards("x", 2, Options{Listen: ":4790"}); !errors.Is(err, ErrListen) {
		t.Errorf("a shard at the port of RoCE: %v", err)
	}
	shards, err := OpenShards("x", 2, Options{Listen: "127.0.0.1:9470", Lanes: 3})
	must(t, err)
	for i, d := range shards { // both shards' drivers of one lane, then those of the next
		at := frame.IP(netip.MustParseAddrPort([]string{"127.0.0.1:9470", "127.0.0.1:9471"}[i%2]))
		if len(shards) != 6 || d.Info().Local != at {
			t.Errorf("driver %d of %d is at %v", i, len(shards), d.Info().Local)
		}
		must(t, d.Close())
	}
	taken := open(t, "x", Options{Listen: "127.0.0.1:9471"})
	if _, err := OpenShards("x", 2, Options{Listen: "127.0.0.1:9470"}); err == nil || !strings.Contains(err.Error(),
		"port 9471, of shard 1") {
		t.Errorf("the port of a shard is taken: %v", err)
	}
	must(t, taken.Close())
	d := open(t, "x", Options{Listen: "127.0.0.1:9470"})
	if _, err := Open("x", Options{Listen: "127.0.0.1:9470"}); err == nil ||
		!strings.Contains(err.Error(), "ss -ulpn") {
		t.Errorf("a port that is taken: %v", err)
	}
	must(t, d.Close())
	if _, err := d.Send([]TxFrame{ipFrame(d, 1, false)}); !errors.Is(err, net.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

// Sending and receiving allocate nothing.
func TestIPAllocatesNothing(t *testing.T) {
	a, b := ipPair(t, 1500, false)
	frames := []TxFrame{ipFrame(b, 1400, true), ipFrame(b, 1400, true), ipFrame(b, 20, false)}
	dst := make([][]byte, RecvBatch)
	got := 0
	if n := testing.AllocsPerRun(100, func() {
		a.Send(frames)
		n, _ := b.Recv(dst)
		got += n
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if got < 100 {
		t.Errorf("%d frames arrived", got)
	}
}

// IP links need no capability.
func TestIPWithoutCapabilities(t *testing.T) {
	namespace(t)
	veth(t, 1500)
	must(t, netlink.LinkSetUp(link(t, "lo")))
	ns, err := netns.Get()
	must(t, err)
	defer ns.Close()
	err = inside(ns, func() error { // the thread ends, and with it what it gave up
		header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var none [2]unix.CapUserData
		if err := unix.Capset(&header, &none[0]); err != nil {
			return err
		}
		if _, err := Open("a0", Options{}); !errors.Is(err, os.ErrPermission) {
			return fmt.Errorf("a packet socket without capabilities: %v", err)
		}
		d, err := Open("x", Options{Listen: "127.0.0.1:9470"})
		if err == nil {
			defer d.Close()
			_, err = d.Send([]TxFrame{ipFrame(d, 100, false)})
		}
		return err
	})
	must(t, err)
}
