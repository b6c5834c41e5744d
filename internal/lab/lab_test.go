package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"multiedge/internal/ethtool"
)

func interfaces(t *testing.T) (names []string) {
	all, err := net.Interfaces()
	must(t, err)
	for _, i := range all {
		names = append(names, i.Name)
	}
	return names
}

// Frames of the full MTU pass over every kind of link, and Close leaves nothing.
func TestBuildAndClose(t *testing.T) {
	build(t, Spec{}).Close() // what the runtime and the libraries open once
	for _, s := range []Spec{
		{Links: 1, MTU: 1500},
		{Links: 2, MTU: 9000},
		{Links: 8, MTU: 65535},
		{Links: 2, MTU: 1500, Rates: []string{"10gbit", "1gbit"}},
		{Links: 1, MTU: 9000, Rates: []string{"1gbit"}},
		{Links: 1, MTU: 65535, Rates: []string{"100mbit"}},
		{Links: 8, MTU: 9000, Medium: Wire},
		{Links: 2, MTU: 65535, Medium: Wire, Rates: []string{"1gbit"}},
		{Links: 1, MTU: 1500, Faults: Faults{Delay: time.Millisecond}},
		{Hosts: 4, Links: 2},
		{Hosts: 3, Links: 2, Medium: Wire},
	} {
		name := fmt.Sprintf("%d hosts %d links mtu %d %v", s.Hosts, s.Links, s.MTU, s.medium(uint64(len(s.Rates))))
		t.Run(name, func(t *testing.T) {
			fds, names := descriptors(t), fmt.Sprint(interfaces(t))
			l, err := New(context.Background(), s)
			must(t, err)
			t.Log(l.Describe())
			for k := range l.Links() {
				for h := 1; h < l.Hosts(); h++ {
					exchange(t, l, k, h-1, h, l.spec.MTU+ethernetHeader)
				}
			}
			must(t, l.Close())
			if err := l.Close(); err != nil {
				t.Error("second Close:", err)
			}
			if now := descriptors(t); now != fds {
				t.Errorf("%d descriptors before, %d after", fds, now)
			}
			if now := fmt.Sprint(interfaces(t)); now != names {
				t.Errorf("interfaces before %v, after %v", names, now)
			}
			if s := strays(t); s != nil {
				t.Errorf("threads left in namespaces: %v", s)
			}
			goleak.VerifyNone(t)
		})
	}
}

func TestSpecErrors(t *testing.T) {
	fds := descriptors(t)
	for _, c := range []struct {
		spec Spec
		says string
	}{
		{Spec{Hosts: 1}, "1 hosts: give 2 to 16"},
		{Spec{Links: 65}, "65 links"},
		{Spec{MTU: 70000}, "MTU 70000"},
		{Spec{Links: 3, Rates: []string{"1gbit", "2gbit"}}, "2 rates for 3 links"},
		{Spec{Rates: []string{"1 gigabit"}}, `"2.5gbit"`},
		{Spec{Rates: []string{"1kbit"}}, "from 100kbit"},
		{Spec{Rates: []string{"nanbit"}}, "nanbit"},
		{Spec{Faults: Faults{Loss: 1.5}}, "between 0 and 1"},
		{Spec{Faults: Faults{Burst: -1}}, "negative"},
		{Spec{Faults: Faults{Delay: -1}}, "negative"},
		{Spec{Medium: Cable, Rates: []string{"1gbit"}}, "Switch or Wire"},
		{Spec{Medium: Switch, Faults: Faults{Loss: .1}}, "choose Wire"},
		{Spec{Medium: 9}, "unknown"},
	} {
		l, err := New(context.Background(), c.spec)
		if err == nil {
			l.Close()
			t.Errorf("%+v was accepted", c.spec)
		} else if !strings.Contains(err.Error(), c.says) {
			t.Errorf("%+v: %v: does not say %q", c.spec, err, c.says)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := New(ctx, Spec{}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	if now := descriptors(t); now != fds {
		t.Errorf("%d descriptors before, %d after", fds, now)
	}
}

// TCP runs over every medium: checksums are complete and super-frames pass or are not made.
func TestTCP(t *testing.T) {
	for _, s := range []Spec{
		{Medium: Cable}, {MTU: 1500, Rates: []string{"2gbit"}}, {MTU: 1500, Medium: Wire}, {MTU: 65535, Medium: Wire},
	} {
		t.Run(fmt.Sprintf("%v mtu %d", s.medium(uint64(len(s.Rates))), s.MTU), func(t *testing.T) {
			l := build(t, s)
			var ln net.Listener
			err := l.Host(1).Do(func() (err error) {
				ln, err = net.Listen("tcp", net.JoinHostPort(l.Host(1).IP(0).String(), "0"))
				return err
			})
			must(t, err)
			defer ln.Close()
			const total = 16 << 20
			got := make(chan int64, 1)
			go func() {
				c, err := ln.Accept()
				if err != nil {
					got <- -1
					return
				}
				defer c.Close()
				n, _ := io.Copy(io.Discard, c)
				got <- n
			}()
			var fd net.Conn
			err = l.Host(0).Do(func() (err error) {
				fd, err = net.DialTimeout("tcp", ln.Addr().String(), 3*time.Second)
				return err
			})
			must(t, err)
			start := time.Now()
			if _, err := fd.Write(make([]byte, total)); err != nil {
				t.Error(err)
			}
			fd.Close()
			if n := <-got; n != total {
				t.Errorf("%d of %d bytes arrived", n, total)
			}
			t.Logf("%.2f Gbit/s", total*8/time.Since(start).Seconds()/1e9)
		})
	}
}

// On a wire, interfaces transmit complete frames with checksums; elsewhere, and in all else, they are as the kernel
// makes them.
func TestPlainFrames(t *testing.T) {
	features := func(m Medium) (f map[string]bool) {
		l := build(t, Spec{Medium: m})
		if err := l.Host(1).Do(func() (err error) {
			f, err = ethtool.Features(l.Host(1).LinkNames()[0])
			return err
		}); err != nil {
			t.Fatal(err)
		}
		return f
	}
	cable, wire := features(Cable), features(Wire)
	for name := range plainFrames {
		if !cable[name] || wire[name] {
			t.Errorf("%s: %v on a cable, %v on a wire", name, cable[name], wire[name])
		}
	}
	for name, on := range cable {
		// which needs checksums
		if _, off := plainFrames[name]; wire[name] != on && !off && name != "tx-udp-segmentation" {
			t.Errorf("%s: %v on a cable, %v on a wire", name, on, wire[name])
		}
	}
}
