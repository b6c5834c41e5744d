package lab

import (
	"net"
	"net/netip"
	"testing"
	"time"
)

// pathProbe is many flows from the first host of a lab to the second.
type pathProbe struct {
	t     *testing.T
	to    *net.UDPConn
	flows []*net.UDPConn
}

func newPathProbe(t *testing.T, l *Lab, flows int) *pathProbe {
	p := &pathProbe{t: t, to: socket(t, l.Host(1), l.Host(1).IP(0))}
	for range flows {
		p.flows = append(p.flows, socket(t, l.Host(0), l.Host(0).IP(0)))
	}
	return p
}

// round sends a datagram by each flow, and an answer to each that arrives. It returns which flows pass, there and back
// again, once want of them do, or nothing has come for a while.
func (p *pathProbe) round(want int) (there, back map[int]bool) {
	there, back = map[int]bool{}, map[int]bool{}
	buf := make([]byte, 8)
	wait := 2 * time.Second
	if want < len(p.flows) {
		wait = 100 * time.Millisecond
	}
	for range 3 { // a router that has yet to find a neighbour may lose one
		for i, c := range p.flows {
			if !back[i] {
				_, _ = c.WriteToUDPAddrPort([]byte{byte(i)}, p.to.LocalAddr().(*net.UDPAddr).AddrPort())
			}
		}
		for len(there) < len(p.flows) {
			_ = p.to.SetReadDeadline(time.Now().Add(wait))
			_, from, err := p.to.ReadFromUDPAddrPort(buf)
			if err != nil {
				break
			}
			there[int(buf[0])] = true
			p.answer(buf[:1], from)
		}
		for i, c := range p.flows {
			_ = c.SetReadDeadline(time.Now().Add(wait / 20))
			if _, err := c.Read(buf); err == nil {
				back[i] = true
			}
		}
		if len(back) >= want {
			break
		}
	}
	return there, back
}

func (p *pathProbe) answer(b []byte, to netip.AddrPort) { _, _ = p.to.WriteToUDPAddrPort(b, to) }

// Flows of several ports take all paths; one whose path is black in one direction stops in that direction alone.
func TestPaths(t *testing.T) {
	for _, v6 := range []bool{false, true} {
		l, err := New(t.Context(), Spec{Medium: Routed, Paths: 4, MTU: 1500, IPv6: v6})
		must(t, err)
		defer l.Close()
		const flows = 48 // the chance that a path is nobody's is one in a quarter of a million
		p := newPathProbe(t, l, flows)
		if _, back := p.round(flows); len(back) != flows {
			t.Fatalf("IPv6 %v: %d of %d flows pass", v6, len(back), flows)
		}
		for _, toFirst := range []bool{false, true} {
			n, err := l.PathFrames(toFirst)
			must(t, err)
			for k := range n {
				if n[k] < 2 {
					t.Errorf("IPv6 %v: path %d of %v carried hardly anything (to the first host: %v)", v6, k, n,
						toFirst)
				}
			}
			must(t, l.Blacken(1, toFirst, true))
			there, back := p.round(0)
			if toFirst && len(there) != flows || len(back) == flows || len(back) < flows/4 {
				t.Errorf("IPv6 %v, black to the first host %v: %d flows arrive, %d answers", v6, toFirst, len(there),
					len(back))
			}
			must(t, l.Blacken(1, toFirst, false))
			if _, back := p.round(flows); len(back) != flows {
				t.Fatalf("IPv6 %v: %d of %d flows pass again", v6, len(back), flows)
			}
		}
	}
	for _, bad := range []Spec{{Paths: 2}, {Medium: Routed, Paths: MaxPaths + 1}} {
		if l, err := New(t.Context(), bad); err == nil {
			l.Close()
			t.Errorf("%+v was built", bad)
		}
	}
	l, err := New(t.Context(), Spec{Medium: Routed})
	must(t, err)
	defer l.Close()
	if l.Blacken(0, true, true) == nil {
		t.Error("a path that does not exist was blackened")
	}
}
