package linkdrv

import (
	"errors"
	"net"
	"os"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

func TestOpenRefusals(t *testing.T) {
	namespace(t)
	veth(t, 1500)
	must(t, netlink.LinkSetDown(link(t, "b0")))
	for _, tc := range []struct {
		name, ifname string
		o            Options
		is           error
		says         []string
	}{
		{"unknown", "eth7", Options{}, ErrNoLink, []string{`"eth7"`, "a0", "b0", "lo"}},
		{"down", "b0", Options{}, ErrLinkDown, []string{"ip link set b0 up"}},
		{"loopback", "lo", Options{}, nil, []string{"not an Ethernet interface"}},
		{"kind", "a0", Options{Kind: "xdp"}, nil, []string{"ring", "mmsg", `"xdp"`}},
		{"slots", "a0", Options{RingSlots: -1}, nil, []string{"-1 ring slots"}},
	} {
		d, err := Open(tc.ifname, tc.o) // no subtest: it would run on another thread, in another namespace
		if err == nil {
			d.Close()
			t.Errorf("%s: opened", tc.name)
			continue
		}
		if tc.is != nil && !errors.Is(err, tc.is) {
			t.Errorf("%s: %v is not %v", tc.name, err, tc.is)
		}
		for _, s := range tc.says {
			if !strings.Contains(err.Error(), s) {
				t.Errorf("%s: %q does not say %q", tc.name, err, s)
			}
		}
	}
}

// Without a descriptor to look for it, nothing is said of whether the interface exists.
func TestOpenWithoutDescriptors(t *testing.T) {
	namespace(t)
	veth(t, 1500)
	var was unix.Rlimit
	must(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &was))
	must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Max: was.Max}))
	d, err := Open("a0", Options{})
	must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &was))
	if err == nil {
		d.Close()
	}
	if !errors.Is(err, unix.EMFILE) || errors.Is(err, ErrNoLink) || !strings.Contains(err.Error(), `"a0"`) {
		t.Errorf("opened with %v", err)
	}
}

func TestOpenWithoutCapability(t *testing.T) {
	namespace(t)
	veth(t, 1500)
	here, err := netns.Get()
	must(t, err)
	defer here.Close()
	err = inside(here, func() error {
		if err := dropNetRaw(); err != nil {
			return err
		}
		d, err := Open("a0", Options{})
		if err == nil {
			d.Close()
		}
		return err
	})
	if !errors.Is(err, os.ErrPermission) {
		t.Fatalf("%v is not os.ErrPermission", err)
	}
	for _, s := range []string{"CAP_NET_RAW", "setcap", "AmbientCapabilities"} {
		if !strings.Contains(err.Error(), s) {
			t.Errorf("%q does not say %q", err, s)
		}
	}
}

// dropNetRaw removes CAP_NET_RAW from the calling thread.
func dropNetRaw() error {
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&hdr, &data[0]); err != nil {
		return err
	}
	data[0].Effective &^= 1 << unix.CAP_NET_RAW
	return unix.Capset(&hdr, &data[0])
}

func TestOpenChooses(t *testing.T) {
	namespace(t)
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU = "d0", 9000
	must(t, netlink.LinkAdd(&netlink.Bridge{LinkAttrs: attrs}))
	setUp(t, "d0")
	for _, tc := range []struct {
		name  string
		mtu   int
		o     Options
		kind  string
		slots int
	}{
		// two frames in a datagram gain nothing
		{"a0", 1500, Options{}, KindUDP, 200}, {"a0", 9000, Options{}, KindUDP, 100}, {"a0", 32768, Options{}, KindRing,
			30},
		{"a0", 1500, Options{Qdisc: true}, KindMmsg, 256}, {"a0", 9000, Options{EtherType: EtherTypeAll}, KindRing,
			256},
		{"a0", 1500, Options{Kind: KindAlone}, KindMmsg, 256}, {"a0", 2048, Options{Kind: KindAlone}, KindMmsg, 256},
		{"a0", 9000, Options{Kind: KindAlone}, KindRing, 256},
		{"d0", 9000, Options{}, KindRing, 256},
	} {
		veth(t, tc.mtu)
		d := open(t, tc.name, tc.o)
		if i := d.Info(); i.Kind != tc.kind || i.Name != tc.name || len(i.MAC) != 6 || i.RxSlots < tc.slots {
			t.Errorf("%s of MTU %d, %+v: %+v, want kind %s and at least %d slots", tc.name, tc.mtu, tc.o, i, tc.kind,
				tc.slots)
		}
		must(t, netlink.LinkDel(link(t, "a0")))
	}
}

// As many slots as may be asked for are more bytes than a socket's buffer can have, on an interface of the longest
// frames: the driver then has what it can get.
func TestOpenMostSlots(t *testing.T) {
	namespace(t)
	veth(t, longestMTU)
	few, most := open(t, "a0", Options{Kind: KindMmsg, RingSlots: 10_000}),
		open(t, "a0", Options{Kind: KindMmsg, RingSlots: maxSlots})
	if f, m := few.Info().RxSlots, most.Info().RxSlots; f < 1000 || m < f {
		t.Errorf("%d slots when %d are asked for, %d when 10000 are", m, maxSlots, f)
	}
}

func TestCloseTwice(t *testing.T) {
	namespace(t)
	veth(t, 1500)
	for _, kind := range allKinds {
		d := open(t, "a0", Options{Kind: kind})
		for range 2 {
			if err := d.Close(); err != nil {
				t.Errorf("%s: %v", kind, err)
			}
		}
		if _, err := d.Send([]TxFrame{{Head: make([]byte, 60)}}); !errors.Is(err, net.ErrClosed) {
			t.Errorf("%s: Send after Close: %v", kind, err)
		}
		if _, err := d.Recv(make([][]byte, 1)); !errors.Is(err, net.ErrClosed) {
			t.Errorf("%s: Recv after Close: %v", kind, err)
		}
		if _, err := d.Stats(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("%s: Stats after Close: %v", kind, err)
		}
	}
}
