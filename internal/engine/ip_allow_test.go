package engine_test

import (
	"testing"
	"time"

	"multiedge/internal/engine"
	"multiedge/internal/frame"
	"multiedge/internal/secure"
	"multiedge/internal/wire"
)

// allow confines node 0 to networks, at node 1.
func (r *ipNet) allow(networks string) {
	r.t.Helper()
	peers, err := secure.NewPeers(secure.Peer{Name: "node0", Key: identity(0).Public(), Allow: networks})
	if err != nil {
		r.t.Fatal(err)
	}
	r.n[1].e.SetPeers(r.now, peers)
}

// silent has node 0 try for a while, and requires that node 1 sends nothing and counts what came.
func (r *ipNet) silent(what string, d time.Duration) {
	r.t.Helper()
	said, was := 0, r.n[1].e.Count.Reject.RejectedPlace
	r.eyes = func(from int, f *flight) {
		if from == 1 && !r.inside(f.to) {
			said++
		}
	}
	r.rest(d)
	if n := r.n[1].e.Count.Reject.RejectedPlace - was; said > 0 || n == 0 {
		r.t.Errorf("%s: %d frames in answer, %d were rejected for where they came from", what, said, n)
	}
	r.eyes = nil
}

func (r *ipNet) inside(at frame.Addr) bool { return at.AddrPort().Addr().As4()[0] == 10 }

// Clause 21.10: a peer that is confined to a network is answered nothing from elsewhere, whether it asks for a session,
// moves in the midst of one, or is confined when it is outside already. Inside, it moves as before.
func TestIPAllow(t *testing.T) {
	r := newIPNet(t, 1, rigOptions{})
	outside, inside := ipAt("203.0.113.1:40000"), ipAt("10.9.0.1:40000")
	r.allow("10.0.0.0/8,2001:db8::/32")
	r.seen[r.at[0][0]] = outside
	r.n[1].e.Listen("early")
	if _, err := r.n[0].e.Dial(r.now, "node1", "early", engine.DialOptions{}); err != nil {
		t.Fatal(err)
	}
	r.silent("asking from outside", time.Second)

	r.seen[r.at[0][0]] = inside
	c := r.connect(engine.DialOptions{})
	r.settle()
	r.write(0, c, 100000, 1, time.Second)
	r.seen[r.at[0][0]] = outside
	mem, key := r.export(1, c[1], 1000, both)
	r.submit(0, c[0], engine.Op{Kind: engine.OpWrite, Token: 2, Local: pattern(2, 1000), Key: key})
	r.silent("moving outside", time.Second)
	if mem[5] != 0 {
		t.Error("bytes from outside were written")
	}
	if p := r.n[1].e.Snapshot(r.now).Peers[0].Paths[0]; p.PeerAddr != inside || r.n[1].e.Count.Life.PathMoves != 0 {
		t.Errorf("the move was followed: %+v", p)
	}
	moved := ipAt("10.9.0.2:40001")
	r.seen[r.at[0][0]] = moved
	r.must("back inside", 5*time.Second, func() bool { _, ok := r.n[0].done[2]; return ok })
	r.wantStatus(0, 2, engine.OK)

	// Now the session is outside, and so is the endpoint: endpoints change after the list of peers.
	r.n[1].e.SetEndpoints(r.now, identity(0).Public().Node(), []frame.Addr{moved})
	r.allow("10.200.0.0/16")
	r.submit(0, c[0], engine.Op{Kind: engine.OpWrite, Token: 3, Local: pattern(3, 1000), Key: key})
	said := 0
	r.eyes = func(from int, _ *flight) {
		if from == 1 {
			said++
		}
	}
	r.rest(time.Second)
	if _, done := r.n[0].done[3]; done || said > 0 {
		t.Errorf("done %v, %d frames to an address that is not allowed any more", done, said)
	}
	r.eyes = nil
	r.seen[r.at[0][0]] = ipAt("10.200.0.1:40000")
	r.must("inside again", 5*time.Second, func() bool { _, ok := r.n[0].done[3]; return ok })
	r.wantStatus(0, 3, engine.OK)
}

// A node gets no session if it asks in the name of a peer that may be at its address, and proves to be another that may
// not.
func TestIPAllowByProof(t *testing.T) {
	r := newIPNet(t, 1, rigOptions{})
	other := secure.NewPrivateKey().Public()
	peers, err := secure.NewPeers(secure.Peer{Name: "node0", Key: identity(0).Public(), Allow: "192.0.2.0/24"},
		secure.Peer{Name: "other", Key: other})
	if err != nil {
		t.Fatal(err)
	}
	r.n[1].e.SetPeers(r.now, peers)
	r.rig.pass = func(from int, f *flight) bool {
		if from != 0 || typeOf(f.b) != wire.TypeInit {
			return true
		}
		b := f.b[frame.HeaderLen:]
		var w wire.Frame
		if err := w.Decode(b); err != nil {
			t.Fatal(err)
		}
		body := append([]byte(nil), w.Tail[:len(w.Tail)-wire.ProofLen]...)
		id := other.Node()
		copy(body, id[:])
		body = append(body, engine.InitProof(identity(1).Public(), body)...)
		out := append(append([]byte(nil), f.b[:wire.TailStart]...), body...)
		wire.Finish(out[frame.HeaderLen:], &wire.Header{Type: wire.TypeInit, Session: w.Session}, body)
		f.b = out
		return true
	}
	r.n[1].e.Listen("test")
	if _, err := r.n[0].e.Dial(r.now, "node1", "test", engine.DialOptions{}); err != nil {
		t.Fatal(err)
	}
	r.rest(2 * time.Second)
	if n := r.n[1].e.Count.Life.SessionsOpened; n != 0 || r.n[1].e.Count.Reject.RejectedPlace == 0 {
		t.Errorf("%d sessions, rejected %+v", n, r.n[1].e.Count.Reject)
	}
}

// Clause 9.3: a node learns as which address the peer sees it, behind a translator of addresses and without one.
func TestIPSeenAs(t *testing.T) {
	r := newIPNet(t, 1, rigOptions{})
	outside := ipAt("203.0.113.1:40000")
	r.seen[r.at[0][0]] = outside
	r.connect(engine.DialOptions{})
	r.settle()
	for i, want := range []frame.Addr{outside, r.at[1][0]} {
		if p := r.n[i].e.Snapshot(r.now).Peers[0].Paths[0]; p.SeenAs != want {
			t.Errorf("node %d is seen as %v, and believes %v", i, want, p.SeenAs)
		}
	}
}
