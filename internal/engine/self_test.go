package engine_test

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"multiedge/internal/engine"
	"multiedge/internal/frame"
	"multiedge/internal/wire"
	"multiedge/regmem"
)

// inside is the link of node 0 to itself.
const inside = engine.MaxLinks - 1

// selfRig is a rig whose node 0 has a connection with itself, and one with node 1.
func selfRig(t *testing.T, sealed bool) (r *rig, out, in engine.ConnID, c [2]engine.ConnID) {
	t.Helper()
	r = newRig(t, rigOptions{sealed: sealed})
	c = r.connect(engine.DialOptions{})
	e := r.n[0].e
	mac := [6]byte{2, 0xff}
	if err := e.SetLink(r.now, inside, engine.LinkConfig{Name: "inside", Addr: frame.Ether(mac), MTU: 9000,
		RxSlots: 256,
		Inside:  true}); err != nil {
		t.Fatal(err)
	}
	if e.HasSelf(0) || !e.IsSelf("node0") || e.IsSelf("node1") {
		t.Fatal("the node does not know itself, or takes itself for the other one")
	}
	asks := e.SelfSession(r.now, 0, frame.Ether(mac), true)
	answers := e.SelfSession(r.now, 0, frame.Ether(mac), false)
	e.OpenSelf(r.now, answers, asks)
	e.OpenSelf(r.now, asks, answers)
	e.Listen("self")
	out, err := e.Dial(r.now, "node0", "self", engine.DialOptions{})
	if err != nil {
		t.Fatal(err)
	}
	all := func(*flight) bool { return true }
	r.loop(all, func() bool { return r.find(0, engine.EvIncoming) != nil })
	ev := r.find(0, engine.EvIncoming)
	if ev.PeerName != "node0" || ev.Token != engine.InsideToken(0, out) {
		t.Fatalf("asked by %q with token %#x, want %#x", ev.PeerName, ev.Token, engine.InsideToken(0, out))
	}
	in = ev.Conn
	if err := e.Accept(r.now, in, nil); err != nil {
		t.Fatal(err)
	}
	r.loop(all, func() bool {
		return slices.ContainsFunc(r.n[0].events, func(ev engine.Event) bool {
			return ev.Kind == engine.EvConnected && ev.Conn == out
		})
	})
	return r, out, in, c
}

// find returns the latest event of a kind of node i.
func (r *rig) find(i int, kind engine.EventKind) *engine.Event {
	for k := len(r.n[i].events) - 1; k >= 0; k-- {
		if ev := &r.n[i].events[k]; ev.Kind == kind {
			return ev
		}
	}
	return nil
}

// loop brings the frames of node 0 back to it that leave by its link inside and pass, those of the other link to node
// 1, and those of node 1 to node 0, until ok.
func (r *rig) loop(pass func(*flight) bool, ok func() bool) {
	r.t.Helper()
	for end := r.now.Add(20 * time.Second); !ok(); {
		if r.now >= end {
			r.t.Fatal("that never happened")
		}
		moved := false
		for i := range r.n {
			for _, f := range r.take(i) {
				moved = true
				if f.link != inside {
					r.give(1-i, f)
				} else if pass(&f) {
					r.n[0].handle(r.now, inside, f.b)
					r.poll(0)
				}
			}
		}
		if r.now = r.now.Add(r.hop); !moved {
			r.now = max(r.now, min(r.n[0].e.NextTimeout(), r.n[1].e.NextTimeout()))
		}
	}
}

// A node's operations on its own memory are as any other's, also when frames are lost.
func TestSelf(t *testing.T) {
	inBothForms(t, func(t *testing.T, sealed bool) {
		r, out, in, _ := selfRig(t, sealed)
		n := r.n[0]
		local := make([]byte, 300_000)
		for i := range local {
			local[i] = byte(i*7) | 1
		}
		mem, key := r.export(0, in, len(local), regmem.RemoteWrite)
		lost := 0
		op := engine.Op{Kind: engine.OpWrite, Token: 77, Key: key, Local: local}
		if !n.e.Submit(r.now, out, &op) {
			t.Fatal("not taken")
		}
		r.loop(func(*flight) bool { lost++; return lost%5 != 0 }, func() bool { _, ok := n.done[77]; return ok })
		if n.done[77] != engine.OK || !bytes.Equal(mem, local) {
			t.Errorf("the write ended with %v, or other bytes were written", n.done[77])
		}
	})
}

// Whoever is on the wire and knows the numbers of a session inside cannot say anything in it, nor can the link inside
// bring frames of a session with a peer.
func TestSelfIsNotReachedFromOutside(t *testing.T) {
	inBothForms(t, func(t *testing.T, sealed bool) {
		r, out, in, c := selfRig(t, sealed)
		n := r.n[0]
		mem, key := r.export(0, in, 4096, regmem.RemoteWrite)
		op := engine.Op{Kind: engine.OpWrite, Token: 78, Key: key, Local: bytes.Repeat([]byte{1}, 3000)}
		n.e.Submit(r.now, out, &op)
		var copies []flight
		r.loop(func(f *flight) bool { copies = append(copies, *f); return false },
			func() bool { return len(copies) > 0 })
		before := n.e.Count.Reject.RejectedAuth
		for _, f := range copies {
			n.handle(r.now, 0, f.b)
			reset := wire.Reset{Session: n.e.SessionList()[1].Remote, Epoch: 1}
			n.handle(r.now, 0, raw([6]byte{2, 0xff}, macOf(0, 0), wire.Header{Type: wire.TypeReset},
				reset.AppendTo(nil)))
		}
		r.poll(0)
		if n.e.Count.Reject.RejectedAuth == before || bytes.IndexByte(mem, 1) >= 0 || !n.e.HasSelf(0) {
			t.Error("a frame from the wire was taken for one from inside")
		}
		r.loop(func(*flight) bool { return true }, func() bool { _, ok := n.done[78]; return ok })
		if n.done[78] != engine.OK {
			t.Errorf("the write ended with %v", n.done[78])
		}

		if sealed {
			return // a frame of the peer's session proves whose it is
		}
		before = n.e.Count.Reject.RejectedAuth
		r.n[1].e.Close(r.now, c[1])
		for _, f := range r.take(1) {
			n.handle(r.now, inside, f.b)
		}
		r.poll(0)
		if _, over := n.closed[c[0]]; over || n.e.Count.Reject.RejectedAuth == before {
			t.Error("a frame from inside was taken for the peer's")
		}
	})
}
