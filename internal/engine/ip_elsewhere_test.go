package engine_test

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"multiedge/internal/engine"
	"multiedge/internal/frame"
	"multiedge/internal/secure"
	"multiedge/internal/wire"
)

// Clause 21.5: an Echo counts if it comes from an address that the Probe was sent to. Otherwise a peer, or whoever
// copies its frames, would lead data to somebody who never answered: here all frames of one of the peer's links seem to
// come from such an address.
func TestIPEchoFromElsewhere(t *testing.T) {
	r := newIPNet(t, 2, rigOptions{})
	victim, came := ipAt("198.51.100.66:666"), 0
	r.rig.route = func(from int, f *flight) {
		if from == 1 && f.link == 1 {
			came++
			r.arrive(0, f.to, victim, f.b)
			return
		}
		r.deliver(from, f)
	}
	c := r.connect(engine.DialOptions{})
	r.settle()
	for k := range uint64(5) {
		r.write(0, c, 300000, 1+k, time.Second)
		r.write(1, c, 300000, 101+k, 3*time.Second)
		r.rest(300 * time.Millisecond)
	}
	const most = 4096 // some Probes
	if r.sent[victim] > most || came < 5 {
		t.Errorf("%d bytes were sent to an address that never answered, at most %d should; %d frames seemed to come "+
			"from it", r.sent[victim], most, came)
	}
}

// Clause 4.3: whoever sees the number of a session that is being set up can send Retries for it from any addresses.
// They cause few Inits: 16 in 20 ms.
func TestIPRetriesFromElsewhere(t *testing.T) {
	r := newIPNet(t, 1, rigOptions{})
	r.n[0].e.SetEndpoints(r.now, r.id(1), []frame.Addr{ipAt("192.0.2.1:9470")}) // nobody is there
	session, forged, inits := uint32(0), map[frame.Addr]bool{}, 0
	r.lose = func(_ int, f *flight) bool {
		var in wire.Init
		if typeOf(f.b) == wire.TypeInit && in.Decode(f.b[wire.TailStart:len(f.b)-wire.ProofLen]) == nil {
			session = in.Session
		}
		if forged[f.to] {
			inits++
		}
		return true
	}
	if _, err := r.n[0].e.Dial(r.now, "node1", "test", engine.DialOptions{}); err != nil {
		t.Fatal(err)
	}
	r.must("an Init", time.Second, func() bool { return session != 0 })
	const spans, each = 5, 200
	for span := range spans {
		for k := range each {
			from := frame.IP(netip.AddrPortFrom(netip.AddrFrom4([4]byte{198, 51, 100, byte(k)}), uint16(1000+span)))
			forged[from] = true
			cookie := binary.BigEndian.AppendUint64(make([]byte, 8), uint64(1+span*each+k))
			b := make([]byte, wire.TailStart, wire.TailStart+len(cookie))
			frame.DefaultFraming.PutHeader(b, &r.at[0][0], &r.at[0][0])
			wire.Finish(b[frame.HeaderLen:], &wire.Header{Type: wire.TypeRetry, Session: session}, cookie)
			r.arrive(0, r.at[0][0], from, append(b, cookie...))
		}
		r.rest(21 * time.Millisecond)
	}
	if inits < spans || inits > 16*spans {
		t.Errorf("%d Retries caused %d Inits, at most %d should", spans*each, inits, 16*spans)
	}
}

// Clause 21.4: the paths of two links to a peer with two lead to both of them: in the first session, in one that begins
// where the one before had good paths, and after one or both of the peer's links were out of reach.
func TestIPLinksLeadApart(t *testing.T) {
	r := newIPNet(t, 2, rigOptions{})
	r.connect(engine.DialOptions{})
	apart := func(what string) {
		t.Helper()
		r.must(what, 20*time.Second, func() bool {
			for i := range r.n {
				p := r.n[i].e.Snapshot(r.now).Peers[0].Paths
				if len(p) != 2 || p[0].State != "good" || p[1].State != "good" || p[0].PeerAddr == p[1].PeerAddr ||
					p[0].PeerLink == p[1].PeerLink {
					return false
				}
			}
			return true
		})
	}
	apart("two paths to two links")
	for i := range r.n {
		r.n[i].e.SetPeers(r.now, new(secure.Peers))
		r.n[i].e.SetPeers(r.now, peersOf(t, 1-i))
	}
	r.n[0].e.SetEndpoints(r.now, r.id(1), r.at[1])
	r.connect(engine.DialOptions{})
	apart("in a later session")
	for k, out := range [][]bool{{true, true}, {false, true}, {true, false}, {false, true}, {true, false}} {
		r.lose = func(from int, f *flight) bool {
			link := f.link
			if from == 0 {
				link = slices.Index(r.at[1], f.to)
			}
			return link < 0 || out[link]
		}
		silent := time.Duration(700+333*k) * time.Millisecond
		if k > 2 {
			silent += 15 * time.Second // for which an address that another path has is passed over
		}
		r.rest(silent)
		r.lose = nil
		apart(fmt.Sprintf("after the peer's links were silent for %v: %v", silent, out))
	}
}

// Clause 21.4: one of the peer's links can be reached from one of ours alone. The other one leads where that does.
func TestIPLinkOutOfReach(t *testing.T) {
	r := newIPNet(t, 2, rigOptions{})
	r.lose = func(from int, f *flight) bool {
		near, far := f.link, slices.Index(r.at[1-from], f.to)
		if from == 1 {
			near, far = far, near
		}
		return near == 1 && far == 1
	}
	r.connect(engine.DialOptions{})
	r.must("two paths", 30*time.Second, func() bool {
		p := r.n[0].e.Snapshot(r.now).Peers[0].Paths
		return len(p) == 2 && p[0].State == "good" && p[1].State == "good"
	})
	if p := r.n[0].e.Snapshot(r.now).Peers[0].Paths; p[0].PeerAddr != r.at[1][0] || p[1].PeerAddr != r.at[1][0] {
		t.Errorf("paths %+v", p)
	}
}

// Clause 21.4: a link of the peer comes within reach after our two paths have shared an address of it for long, which
// both are answered at. One of them finds it, at one end or at both if both know addresses.
func TestIPLinkWithinReach(t *testing.T) {
	for _, c := range []struct {
		both bool
		far  int // the local link of node 0 that never reaches the address; -1: both do
	}{{false, -1}, {true, -1}, {false, 1}} {
		both := c.both
		r := newIPNet(t, 2, rigOptions{})
		if both {
			r.n[1].e.SetEndpoints(r.now, r.id(0), r.at[0])
		}
		r.lose = func(from int, f *flight) bool {
			return from == 1 && f.link == 1 || from == 0 && f.to == r.at[1][1]
		}
		conn := r.connect(engine.DialOptions{})
		paths := func(i int) []engine.PathStatus { return r.n[i].e.Snapshot(r.now).Peers[0].Paths }
		lead := func(i int, apart bool) bool {
			p := paths(i)
			return len(p) == 2 && p[0].State == "good" && p[1].State == "good" &&
				(p[0].PeerAddr != p[1].PeerAddr) == apart && (!apart || p[0].PeerLink != p[1].PeerLink)
		}
		r.must("two paths to one address", 30*time.Second, func() bool { return lead(0, false) })
		r.rest(30 * time.Second)
		r.lose = func(from int, f *flight) bool {
			return from == 0 && f.link == c.far && f.to == r.at[1][1] ||
				from == 1 && f.link == 1 && c.far >= 0 && f.to == r.at[0][c.far]
		}
		r.must("two paths to two addresses", 60*time.Second, func() bool { return lead(0, true) })
		if both {
			r.must("at the other end too", 60*time.Second, func() bool { return lead(1, true) })
		}
		r.write(0, conn, 300000, 1, time.Second)
		r.write(1, conn, 300000, 2, time.Second)
		r.rest(time.Minute)
		if p := paths(0); !lead(0, true) {
			t.Errorf("a minute later %+v", p)
		}
	}
}
