package engine_test

import (
	"testing"
	"time"

	"multiedge/internal/engine"
	"multiedge/internal/frame"
)

func newMAC(k int) [6]byte { return [6]byte{2, 1, 1, 1, 1, byte(k)} }

// pathsTo checks that node i reaches the other one's links at the addresses they have, with frames of the size given,
// on as many paths as said.
func (r *rig) pathsTo(what string, i, paths, mtu int) {
	r.t.Helper()
	st := r.n[i].e.Snapshot(r.now).Peers[0]
	if len(st.Paths) != paths {
		r.t.Errorf("%s: node %d has %d paths, want %d", what, i, len(st.Paths), paths)
	}
	for _, p := range st.Paths {
		if p.PeerAddr != frame.Ether(r.macAt(1-i, p.PeerLink)) || p.State != "good" || p.MTU != mtu {
			r.t.Errorf("%s: node %d link %d: %+v", what, i, p.Link, p)
		}
	}
}

// Clause 10.4: addresses and sizes of links change during a session, at either end, one link or all of them: the peer
// follows, and operations go on.
func TestLinkNews(t *testing.T) {
	for links := 1; links <= 2; links++ {
		for who := range 2 {
			r := newRig(t, rigOptions{sealed: true, links: links, mtu: 9000})
			s := newStream(r, r.connect(engine.DialOptions{}))
			r.hop, s.depth = 2*time.Millisecond, 1
			s.forTime(300*time.Millisecond, 100*time.Millisecond)
			r.relink(who, 0, newMAC(1), 9000)
			s.forTime(1200*time.Millisecond, 500*time.Millisecond)
			for i := range r.n {
				r.pathsTo("another address", i, links, 9000)
			}
			r.relink(who, 0, newMAC(2), 4000)
			s.forTime(1200*time.Millisecond, 500*time.Millisecond)
			if got := r.pathMTU(1-who, 0); got != 4000 {
				t.Errorf("%d links: frames of %d bytes to a link of 4000", links, got)
			}
			for l := range links { // each in turn, each before the news of the one before has arrived
				r.relink(who, l, newMAC(10+l), 9000)
			}
			s.forTime(2*time.Second, time.Second)
			for i := range r.n {
				r.pathsTo("all replaced", i, links, 9000)
			}
			if links > 1 {
				r.n[who].e.RemoveLink(r.now, 0)
				s.forTime(1200*time.Millisecond, 500*time.Millisecond)
				for i := range r.n {
					r.pathsTo("one removed", i, links-1, 9000)
				}
				r.relink(who, 0, newMAC(20), 9000)
				s.forTime(1200*time.Millisecond, 500*time.Millisecond)
				for i := range r.n {
					r.pathsTo("one back", i, links, 9000)
				}
			}
			s.finish()
			if len(r.n[0].closed)+len(r.n[1].closed) != 0 {
				t.Errorf("%d links, node %d: the connection was closed", links, who)
			}
			r.oneSession()
		}
	}
}

// A link that changes while the handshake runs, after its description was sent: the peer learns of it when the session
// opens.
func TestLinkNewsDuringHandshake(t *testing.T) {
	for who := range 2 {
		for cut := 0; ; cut++ {
			r := newRig(t, rigOptions{sealed: true, links: 2, mtu: 1500})
			r.rest(20 * time.Millisecond)
			n := 0
			r.pass = func(_ int, f *flight) bool {
				if setup(f.b) {
					if n == cut {
						r.relink(who, 1, newMAC(2), 9000) // the handshake's frames take link 0
					}
					n++
				}
				return true
			}
			c := r.connect(engine.DialOptions{})
			if n <= cut {
				break
			}
			r.rest(5 * time.Second)
			for i := range r.n {
				r.pathsTo("changed during the handshake", i, 2, 1500)
			}
			r.oneSession()
			if r.echoWorks(c); t.Failed() {
				t.Fatalf("node %d, frame %d", who, cut)
			}
		}
	}
}
