package lab

import (
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"multiedge/linkdrv"
)

// patience is for how long a frame is waited for: long if it should come, since the machine may be busy.
func patience(should bool) time.Duration {
	if should {
		return 10 * time.Second
	}
	return 100 * time.Millisecond
}

// passes reports whether a frame sent now arrives at the other end, as it should or should not.
func passes(from, to *station, number int, should bool) bool {
	from.t.Helper()
	from.send(to.host, number, 1, 200)
	found := false
	to.receive(patience(should), func(f []byte) bool { found = found || int(f[21]) == number; return !found })
	return found
}

// A cut swallows frames, in one direction or both, unnoticed by the interfaces; healed, the link works as before, rate
// included.
func TestCut(t *testing.T) {
	for _, s := range []Spec{{Medium: Switch}, {Medium: Switch, Rates: []string{"1gbit"}}, {Medium: Wire},
		{Medium: Wire, Rates: []string{"1gbit"}}} {
		t.Run(s.medium(0).String()+strings.Join(s.Rates, ""), func(t *testing.T) {
			l := build(t, s)
			k := l.Link(0)
			a, b := open(t, l, 0, 0), open(t, l, 0, 1)
			for i, c := range []struct {
				act    func() error
				ab, ba bool
			}{
				{func() error { return nil }, true, true},
				{func() error { return k.CutTowards(1, true) }, false, true},
				{func() error { return k.Cut(true) }, false, false},
				{func() error { return k.CutTowards(1, false) }, true, false},
				{func() error { return k.Cut(false) }, true, true},
			} {
				must(t, c.act())
				if got := passes(a, b, 2*i+1, c.ab); got != c.ab {
					t.Errorf("step %d: frames from 0 to 1 pass: %v", i, got)
				}
				if got := passes(b, a, 2*i+2, c.ba); got != c.ba {
					t.Errorf("step %d: frames from 1 to 0 pass: %v", i, got)
				}
			}
			n, err := k.Counters()
			if err != nil || n.Cut != 4 || n.Received != 10 || n.Delivered != 6 {
				t.Errorf("counters %+v, %v; want 10 received, 4 cut, 6 delivered", n, err)
			}
			if q, err := k.discipline(1); err != nil || (q != nil) != (k.Rate() > 0) {
				t.Errorf("discipline %v, %v after healing a link of rate %d", q, err, k.Rate())
			}
		})
	}
	l := build(t, Spec{})
	if err := l.Link(0).Cut(true); err == nil || !strings.Contains(err.Error(), "lab.Switch or lab.Wire") {
		t.Errorf("cutting a cable: %v", err)
	}
}

// Interfaces go down, up, away and come back under every medium.
func TestInterfaceFates(t *testing.T) {
	for _, m := range []Medium{Cable, Switch, Wire} {
		t.Run(m.String(), func(t *testing.T) {
			l := build(t, Spec{Medium: m, MTU: 1500})
			k := l.Link(0)
			do := func(what string, err error) {
				t.Helper()
				if err != nil {
					t.Fatalf("%s: %v", what, err)
				}
			}
			do("down", k.SetDown(1))
			do("up", k.SetUp(1))
			exchange(t, l, 0, 0, 1, 1514)

			do("rename", k.Rename(1, "renamed0"))
			if n := l.Host(1).LinkNames()[0]; n != "renamed0" {
				t.Errorf("renamed, but called %q", n)
			}
			exchange(t, l, 0, 0, 1, 1514)

			do("MTU", k.SetMTU(1, 1000))
			a, b := open(t, l, 0, 0), open(t, l, 0, 1)
			if n, err := a.drv.Send([]linkdrv.TxFrame{{Head: a.frame(1, 1, 1514)}}); err != nil ||
				n != count(m != Cable) {
				t.Errorf("too long a frame for the other end: sent %d, %v", n, err)
			}
			a.send(1, 2, 1, 1000)
			if !b.receive(patience(true), func(f []byte) bool {
				if n, _ := number(f); n != 2 {
					t.Errorf("frame %d of %d bytes passed an MTU of 1000", n, len(f))
				}
				return false
			}) {
				t.Error("a frame of 1000 bytes did not pass an MTU of 1000")
			}
			do("MTU", k.SetMTU(1, 1500))

			old := l.Host(1).MAC(0).String()
			do("delete", k.Delete(1))
			if l.Host(1).LinkNames()[0] != "" || k.Delete(1) == nil || k.SetUp(1) == nil {
				t.Error("deleted, but still there")
			}
			do("make again", k.Recreate(1))
			if n := l.Host(1).LinkNames()[0]; n != "edge0" || l.Host(1).MAC(0).String() == old {
				t.Errorf("made again as %s, %v; it was %s", n, l.Host(1).MAC(0), old)
			}
			if k.Recreate(1) == nil {
				t.Error("made a second time")
			}
			exchange(t, l, 0, 0, 1, 1514)
			if n, err := k.Counters(); err != nil || n.Received < 7 || n.Delivered < 7 {
				t.Errorf("counters %+v, %v forgot what was before", n, err)
			}
			do("close", l.Close())
			if k.SetUp(1) == nil || k.Recreate(1) == nil || k.Cut(true) == nil {
				t.Error("works after Close")
			}
		})
	}
}

// Faults can be changed while a wire runs.
func TestSetFaults(t *testing.T) {
	l := build(t, Spec{Medium: Wire})
	a, b := open(t, l, 0, 0), open(t, l, 0, 1)
	for i, f := range []Faults{{Loss: 1}, {}, {Loss: 1}, {Delay: time.Millisecond}} {
		must(t, l.Link(0).SetFaults(f))
		if got := passes(a, b, i+1, f.Loss == 0); got != (f.Loss == 0) {
			t.Errorf("%+v: passes %v", f, got)
		}
	}
	if err := l.Link(0).SetFaults(Faults{Loss: 2}); err == nil {
		t.Error("a loss of 200 % was accepted")
	}
	if err := build(t, Spec{}).Link(0).SetFaults(Faults{}); err == nil {
		t.Error("a cable with faults")
	}
}

// Two cables of a host change places at their switches, and back: frames go where the cables lead, and no interface
// loses its carrier.
func TestSwap(t *testing.T) {
	l := build(t, Spec{Links: 2, Medium: Switch, Rates: []string{"1gbit", ""}, MTU: 1500})
	var st [2][2]*station // by host and link
	for host := range 2 {
		for link := range 2 {
			st[host][link] = open(t, l, link, host)
		}
	}
	for k := range 3 {
		for from := range 2 {
			for to := range 2 {
				f := st[0][from].frame(1, uint64(8*k+2*from+to+1), 200)
				copy(f, l.Link(to).MAC(1))
				if n, err := st[0][from].drv.Send([]linkdrv.TxFrame{{Head: f}}); n != 1 || err != nil {
					t.Fatal(err)
				}
				got, want := false, (from == to) == (k%2 == 0)
				st[1][to].receive(patience(want),
					func(b []byte) bool { got = string(b[:30]) == string(f[:30]); return !got })
				if got != want {
					t.Errorf("after %d swaps a frame from link %d arrives on link %d: %v", k, from, to, got)
				}
			}
		}
		must(t, l.Swap(1, 0, 1))
		for host := range 2 {
			for link := range 2 {
				n, err := l.hosts[host].space.nl.LinkByIndex(l.links[link].nics[host].index)
				if err != nil || n.Attrs().OperState != netlink.OperUp {
					t.Errorf("link %d of host %d: %v, %v", link, host, n.Attrs().OperState, err)
				}
			}
		}
	}
	for _, s := range []Spec{{Links: 2, Medium: Cable}, {Links: 2, Medium: Wire}} {
		if err := build(t, s).Swap(1, 0, 1); err == nil || !strings.Contains(err.Error(), "lab.Switch") {
			t.Errorf("%v: %v", s.Medium, err)
		}
	}
}
