package faults

import (
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"multiedge/bench/kit"
)

// Spoofed sources (PROTOCOL clause 21.5): somebody on the way puts another address into datagrams, so that the peer
// answers there: to flood it, or to cut the two off from each other.

// victim is the address that is put in, at the router, and what is sent to it.
type victim struct {
	at   netip.AddrPort
	sock *net.UDPConn
	got  atomic.Uint64 // datagrams
	done sync.WaitGroup
}

// newVictim listens at the router's address on the first host's network, at the port of that host's link.
func (t *Trial) newVictim() *victim {
	at := t.cluster.Endpoint(0, 0)
	b := at.Addr().AsSlice()
	b[len(b)-1] = 1
	ip, _ := netip.AddrFromSlice(b)
	v := &victim{at: netip.AddrPortFrom(ip, at.Port())}
	kit.Check(t.cluster.Lab().Link(0).AtRouter(0, func() (err error) {
		v.sock, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(v.at))
		return err
	}))
	v.done.Go(func() {
		buf := make([]byte, 1<<16)
		for {
			if _, err := v.sock.Read(buf); err != nil {
				return
			}
			v.got.Add(1)
		}
	})
	return v
}

func (v *victim) close() {
	v.sock.Close()
	v.done.Wait()
}

// probeSpacing is the least time between two Probes to an address to which a path may move.
const probeSpacing = 20 * time.Millisecond

// spoofedSource has a router put an address of its own into the first host's datagrams under load.
func spoofedSource() Scenario {
	return Scenario{
		Name: "spoofed source: datagrams in another's name", Group: Adversary, Short: true,
		Criteria: "whether some datagrams of a host or all are given another source: no operation fails, data goes " +
			"on to move, no move is followed, and to that address goes at most a Probe in 20 ms",
		Set: routed,
		Run: func(t *Trial) {
			c := t.pair(MixRandom, 2, 8)
			windows := []*Window{t.measure(c, "clean", 300*time.Millisecond)}
			v := t.newVictim()
			defer v.close()
			family, moved := "ip", t.scrape(1)["edge_path_moves_total"]
			if t.isIPv6() {
				family = "ip6"
			}
			set := fmt.Sprintf("%s saddr %v %s saddr set %v", family, t.cluster.Endpoint(0, 0).Addr(), family,
				v.at.Addr())
			for _, share := range []string{"numgen random mod 8 == 0 ", ""} {
				was, start := v.got.Load(), time.Now()
				t.rules(share + set)
				t.injected("rules set", 1)
				what := map[bool]string{true: "all datagrams", false: "some datagrams"}[share == ""]
				t.movesOn(c, "%s have another source", what)
				windows = append(windows, t.measure(c, what, t.span(2*time.Second, 500*time.Millisecond)))
				t.rules()
				sent, most := v.got.Load()-was, uint64(time.Since(start)/probeSpacing)+1
				t.counted("datagrams to the address that was put in, "+what, sent)
				t.check("nothing but Probes goes to that address, "+what, sent <= most,
					"%d datagrams, at most %d Probes", sent, most)
				t.movesOn(c, "%s had another source", what)
			}
			now := t.scrape(1)["edge_path_moves_total"]
			t.check("no move is followed", now == moved, "%v, %v before", now, moved)
			t.unfailed(append(windows, t.drain(c))...)
		},
	}
}
