package linkdrv

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// namespace puts the test's goroutine, locked to its thread, into a new network namespace until the test ends.
func namespace(t testing.TB) {
	t.Helper()
	runtime.LockOSThread()
	old, err := netns.Get()
	if err != nil {
		t.Fatalf("current namespace: %v", err)
	}
	fresh, err := netns.New()
	if err != nil {
		t.Fatalf("new network namespace (needs root): %v", err)
	}
	t.Cleanup(func() {
		if err := netns.Set(old); err != nil {
			t.Fatalf("return to the first namespace: %v", err)
		}
		fresh.Close()
		old.Close()
		runtime.UnlockOSThread()
	})
}

// veth makes the pair a0 - b0 in the current namespace, both up.
func veth(t testing.TB, mtu int) {
	t.Helper()
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU = "a0", mtu
	if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "b0", PeerMTU: uint32(mtu)}); err != nil {
		t.Fatalf("add veth of MTU %d: %v", mtu, err)
	}
	setUp(t, "a0")
	setUp(t, "b0")
}

func link(t testing.TB, name string) netlink.Link {
	t.Helper()
	l, err := netlink.LinkByName(name)
	if err != nil {
		t.Fatalf("link %s: %v", name, err)
	}
	return l
}

func deleteLink(t testing.TB, name string) error { return netlink.LinkDel(link(t, name)) }

func setUp(t testing.TB, name string) {
	t.Helper()
	if err := netlink.LinkSetUp(link(t, name)); err != nil {
		t.Fatalf("set %s up: %v", name, err)
	}
}

func open(t testing.TB, name string, o Options) Driver {
	t.Helper()
	d, err := Open(name, o)
	must(t, err)
	t.Cleanup(func() { d.Close() })
	return d
}

// header is the Ethernet header of a frame from one driver to another, followed by room for n more bytes of Head.
func header(from, to Driver, n int) []byte {
	h := make([]byte, HeaderLen+n)
	copy(h, to.Info().MAC)
	copy(h[6:], from.Info().MAC)
	h[12], h[13] = byte(EtherType>>8), byte(EtherType&0xff)
	return h
}

// await polls until frames wait at d or ms passed.
func await(t testing.TB, d Driver, ms int) {
	t.Helper()
	fds := []unix.PollFd{{Fd: int32(d.FD()), Events: unix.POLLIN}}
	for {
		_, err := unix.Poll(fds, ms)
		if err == nil {
			return
		}
		if err != unix.EINTR {
			t.Fatalf("poll: %v", err)
		}
	}
}

// receive collects exactly want frames as copies.
func receive(t testing.TB, d Driver, want int) [][]byte {
	t.Helper()
	var got [][]byte
	buf := make([][]byte, RecvBatch)
	for len(got) < want {
		n, err := d.Recv(buf[:min(len(buf), want-len(got))])
		if err != nil {
			t.Fatalf("receive after %d of %d frames: %v", len(got), want, err)
		}
		for _, f := range buf[:n] {
			got = append(got, append([]byte(nil), f...))
		}
		if n > 0 {
			continue
		}
		before := len(got)
		await(t, d, 2000)
		if n, err = d.Recv(buf[:1]); n == 0 {
			s, _ := d.Stats()
			t.Fatalf("%d of %d frames after 2 s, then %v; %s %+v", before, want, err, d.Info().Kind, s)
		}
		got = append(got, append([]byte(nil), buf[0]...))
	}
	return got
}

// allKinds are the drivers, frameKinds those that leave frames as they are.
var (
	allKinds   = []string{KindRing, KindMmsg, KindUDP}
	frameKinds = allKinds[:2]
)

// kinds runs f for every kind of driver and interfaces of each MTU.
func kinds(t *testing.T, mtus []int, f func(t *testing.T, kind string, mtu int)) {
	each(t, allKinds, mtus, f)
}

func each(t *testing.T, kinds []string, mtus []int, f func(t *testing.T, kind string, mtu int)) {
	for _, kind := range kinds {
		for _, mtu := range mtus {
			t.Run(fmt.Sprintf("%s/%d", kind, mtu), func(t *testing.T) { f(t, kind, mtu) })
		}
	}
}

// inside runs f on a thread in the given namespace.
func inside(ns netns.NsHandle, f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		if err := netns.Set(ns); err != nil {
			done <- err
			return
		}
		done <- f()
	}()
	return <-done
}

// must ends a test that cannot go on.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
