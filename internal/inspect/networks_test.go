package inspect

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// twoNICs puts the test's goroutine, locked to its thread, into a new network namespace with the NICs a0 and a1, both
// in 10.9.0.0/24, and returns another with a bridge behind them that is 10.9.0.1.
func twoNICs(t *testing.T) (peer netns.NsHandle) {
	t.Helper()
	runtime.LockOSThread()
	old := must(netns.Get())(t)
	far, err := netns.New()
	if errors.Is(err, unix.EPERM) && os.Geteuid() != 0 {
		t.Skip("it lacks the right to make a network namespace")
	}
	must(0, err)(t)
	near := must(netns.New())(t)
	t.Cleanup(func() {
		if err := netns.Set(old); err != nil {
			t.Fatalf("return to the first namespace: %v", err)
		}
		for _, ns := range []netns.NsHandle{near, far, old} {
			ns.Close()
		}
		runtime.UnlockOSThread()
	})
	at := must(netlink.NewHandleAt(far))(t)
	defer at.Close()
	bridge := netlink.NewLinkAttrs()
	bridge.Name = "br0"
	must(0, at.LinkAdd(&netlink.Bridge{LinkAttrs: bridge}))(t)
	br := must(at.LinkByName("br0"))(t)
	must(0, at.AddrAdd(br, must(netlink.ParseAddr("10.9.0.1/24"))(t)))(t)
	must(0, at.LinkSetUp(br))(t)
	for _, n := range []string{"0", "1"} {
		a := netlink.NewLinkAttrs()
		a.Name = "a" + n
		must(0, netlink.LinkAdd(&netlink.Veth{LinkAttrs: a, PeerName: "b" + n, PeerNamespace: netlink.NsFd(far)}))(t)
		b := must(at.LinkByName("b" + n))(t)
		must(0, at.LinkSetMaster(b, br))(t)
		must(0, at.LinkSetUp(b))(t)
		nic := must(netlink.LinkByName("a" + n))(t)
		must(0, netlink.LinkSetUp(nic))(t)
		ip := must(netlink.ParseAddr(map[string]string{"0": "10.9.0.2/24", "1": "10.9.0.3/24"}[n]))(t)
		must(0, netlink.AddrAdd(nic, ip))(t)
		must(0, at.NeighAdd(&netlink.Neigh{LinkIndex: br.Attrs().Index, State: netlink.NUD_PERMANENT, IP: ip.IP,
			HardwareAddr: nic.Attrs().HardwareAddr}))(t)
	}
	return far
}

// must ends the test at an error, and returns what came without one.
func must[T any](v T, err error) func(t *testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// Two NICs in one network: doctor says of which address datagrams leave by the other NIC, and whether what comes is
// dropped, which a datagram shows. What it advises puts that right.
func TestNICsInOneNetwork(t *testing.T) {
	far := twoNICs(t)
	near := must(netns.Get())(t)
	defer near.Close()
	sockets := map[string]*net.UDPConn{}
	for _, at := range []string{"10.9.0.2:9470", "10.9.0.3:9470"} {
		c := must(net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.MustParseAddrPort(at))))(t)
		defer c.Close()
		sockets[at] = c
	}
	must(0, netns.Set(far))(t)
	from := must(net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(10, 9, 0, 1)}))(t)
	defer from.Close()
	must(0, netns.Set(near))(t)
	arrives := func(at string, within time.Duration) bool {
		c, buf := sockets[at], make([]byte, 16)
		for end := time.Now().Add(within); time.Now().Before(end); {
			must(from.WriteToUDPAddrPort([]byte("x"), netip.MustParseAddrPort(at)))(t)
			must(0, c.SetReadDeadline(time.Now().Add(50*time.Millisecond)))(t)
			if _, err := c.Read(buf); err == nil {
				return true
			}
		}
		return false
	}
	doctor := func(listen string) string {
		var f findings
		f.networks([]LinkStatus{{Name: "x", Listen: listen, Up: true}})
		var b strings.Builder
		for _, x := range f {
			b.WriteString(x.Severity + " " + x.About + ": " + x.Text + " -> " + x.Remedy + "\n")
		}
		return b.String()
	}
	reverse := func(v string) {
		for _, name := range []string{"all", "a0", "a1"} {
			must(0, os.WriteFile("/proc/sys/net/ipv4/conf/"+name+"/rp_filter", []byte(v), 0))(t)
		}
	}
	reverse("1")
	if !arrives("10.9.0.2:9470", 30*time.Second) || arrives("10.9.0.3:9470", 200*time.Millisecond) {
		t.Fatal("with rp_filter 1 what comes to the address of the NIC without the route is not dropped alone")
	}
	for listen, want := range map[string]string{":9470": "problem interface a1: ",
		"10.9.0.3:9470": "problem interface a1: ", "10.9.0.2:9470": ""} {
		if said := doctor(listen); !strings.HasPrefix(said, want) || want == "" && said != "" ||
			want != "" && !strings.Contains(said, "rp_filter is 1") || strings.Contains(said, "interface a0") {
			t.Errorf("listening at %s: %q", listen, said)
		}
	}
	reverse("2")
	if said := doctor(":9470"); !strings.HasPrefix(said, "warning interface a1: ") ||
		strings.Contains(said, "dropped") {
		t.Errorf("with rp_filter 2: %q", said)
	}
	reverse("1")
	nic := must(netlink.LinkByName("a1"))(t)
	network := must(netlink.ParseIPNet("10.9.0.0/24"))(t)
	must(0, netlink.RouteAdd(&netlink.Route{LinkIndex: nic.Attrs().Index, Dst: network, Src: net.IPv4(10, 9, 0, 3),
		Table: 101, Scope: netlink.SCOPE_LINK}))(t)
	rule := netlink.NewRule()
	rule.Src, rule.Table = must(netlink.ParseIPNet("10.9.0.3/32"))(t), 101
	must(0, netlink.RuleAdd(rule))(t)
	if !arrives("10.9.0.3:9470", 30*time.Second) {
		t.Error("what doctor advises does not help")
	}
	if said := doctor(":9470"); said != "" {
		t.Errorf("with what doctor advises: %q", said)
	}
}
