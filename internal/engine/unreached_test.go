package engine_test

import (
	"testing"
	"time"

	"multiedge/internal/engine"
	"multiedge/internal/secure"
)

// Why a peer is not reached is in the snapshot: it was authorised on one side only, or its name has another key here.
func TestSnapshotSaysWhyUnreached(t *testing.T) {
	r := newRig(t, rigOptions{sealed: true})
	r.n[1].e.SetPeers(r.now, peersOf(t, 2)) // does not authorise node 0
	r.dialEnds("node1", "test", engine.DialOptions{}, time.Second)
	if p := r.n[0].e.Snapshot(r.now).Peers; len(p) != 1 || p[0].Trouble != engine.TroubleUnwelcome {
		t.Errorf("authorised here alone: %+v", p)
	}
	r.n[1].e.SetPeers(r.now, peersOf(t, 0, 2))
	c := r.connect(engine.DialOptions{})
	r.echoWorks(c)
	if p := r.n[0].e.Snapshot(r.now).Peers; p[0].Trouble != engine.NoTrouble || p[0].Received == 0 ||
		p[0].Sessions != 1 {
		t.Errorf("once it is open: %+v", p)
	}

	wrong, err := secure.NewPeers(secure.Peer{Name: "node1", Key: identity(2).Public()})
	if err != nil {
		t.Fatal(err)
	}
	r = newRig(t, rigOptions{sealed: true})
	r.n[0].e.SetPeers(r.now, wrong)
	r.rest(3 * time.Second)
	if w := r.n[0].e.Snapshot(r.now).Wrong; len(w) != 1 || w[0].Name != "node1" ||
		w[0].Trouble != engine.TroubleOtherKey {
		t.Errorf("another key for the name: %+v", w)
	}
}

// A key that gets another name is called by it at once, also where a session is open.
func TestRenamedPeerInOpenSession(t *testing.T) {
	r := newRig(t, rigOptions{sealed: true})
	c := r.connect(engine.DialOptions{})
	renamed, err := secure.NewPeers(secure.Peer{Name: "newname", Key: identity(1).Public()})
	if err != nil {
		t.Fatal(err)
	}
	r.n[0].e.SetPeers(r.now, renamed)
	snap := r.n[0].e.Snapshot(r.now)
	if snap.Peers[0].Name != "newname" || !snap.Peers[0].Open || snap.Connections[0].Peer != "newname" {
		t.Errorf("%+v %+v", snap.Peers, snap.Connections)
	}
	r.echoWorks(c)
}

// The bytes of operations are counted at both ends, in both directions.
func TestBytesOfConnection(t *testing.T) {
	r := newRig(t, rigOptions{})
	c := r.connect(engine.DialOptions{})
	_, key := r.export(1, c[1], 5000, both)
	r.submit(0, c[0], engine.Op{Kind: engine.OpWrite, Token: 1, Key: key, Local: make([]byte, 3000)})
	r.must("the write ends", time.Second, r.all(0, 1))
	r.submit(0, c[0], engine.Op{Kind: engine.OpRead, Token: 2, Key: key, Local: make([]byte, 5000)})
	r.must("the read ends", time.Second, r.all(0, 2))
	r.rest(100 * time.Millisecond)
	a, b := r.n[0].e.Snapshot(r.now).Connections[0], r.n[1].e.Snapshot(r.now).Connections[0]
	if a.BytesOut != 3000 || a.BytesIn != 5000 || b.BytesIn != 3000 || b.BytesOut != 5000 {
		t.Errorf("here %d out, %d in; there %d in, %d out", a.BytesOut, a.BytesIn, b.BytesIn, b.BytesOut)
	}
}
