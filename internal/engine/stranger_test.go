package engine_test

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"multiedge/internal/engine"
	"multiedge/internal/frame"
	"multiedge/internal/secure"
	"multiedge/internal/wire"
)

// A dial between nodes of which one does not authorise the other ends at once, and says what to do and where (clause
// 10.2).
func TestStrangers(t *testing.T) {
	key := identity(0).Public().String()
	for _, c := range []struct {
		name    string
		o       rigOptions
		within  time.Duration
		mention []string
		peer    string
	}{
		{"not authorised there", rigOptions{sealed: true, strange: [2]bool{true, false}}, 100 * time.Microsecond,
			[]string{"edgectl peers add", key, "node0", "node1"}, "node1"},
		{"not authorised here", rigOptions{sealed: true, strange: [2]bool{false, true}}, 5 * time.Microsecond,
			[]string{"edgectl peers add", "node1"}, "node1"},
		{"nowhere", rigOptions{sealed: true}, 5 * time.Microsecond, []string{"edgectl peers add", "nowhere"},
			"nowhere"},
	} {
		r := newRig(t, c.o)
		r.n[1].e.Listen("test")
		ev, took := r.dialEnds(c.peer, "test", engine.DialOptions{}, time.Second)
		if ev.Status != engine.StatusStranger || took > c.within {
			t.Errorf("%s: %v after %v", c.name, ev.Status, took)
		}
		for _, word := range c.mention {
			if !strings.Contains(ev.Text, word) {
				t.Errorf("%s: the text %q does not mention %q", c.name, ev.Text, word)
			}
		}
		r.rest(4 * time.Second)
		for i := range r.n {
			if z := r.n[i].e.TableSizes(); z.Sessions != 0 || z.Numbers != 0 || z.Live != 0 {
				t.Errorf("%s: node %d keeps %+v", c.name, i, z)
			}
		}
	}
}

// impostor makes node 1 of a rig one with another key that claims the identity of the real one in all it says in
// plaintext.
func impostor(t *testing.T) *rig {
	r := newRig(t, rigOptions{sealed: true})
	peers, err := secure.NewPeers(secure.Peer{Name: "node0", Key: identity(0).Public()})
	if err != nil {
		t.Fatal(err)
	}
	who := secure.NewNode(identity(2), peers)
	n := r.n[1]
	n.e, err = engine.New(engine.Config{Node: who.Public.Node(), Secure: who, Name: "node1", Epoch: 1, Seed: 77,
		Grants: n.grants})
	if err != nil {
		t.Fatal(err)
	}
	n.e.SetLink(r.now, 0, engine.LinkConfig{Name: "edge0", Addr: frame.Ether(macOf(1, 0)), MTU: 1500, RxSlots: 256})
	n.e.Listen("test")
	false_, true_ := identity(2).Public().Node(), idOf(1)
	r.pass = func(from int, f *flight) bool {
		if k := typeOf(f.b); from == 1 && k != wire.TypeData && bytes.Contains(f.b, false_[:]) {
			var fr wire.Frame
			if fr.Decode(f.b[wire.EthLen:]) != nil {
				t.Fatal("a frame of the impostor does not decode")
			}
			tail := bytes.Replace(fr.Tail, false_[:], true_[:], 1)
			f.b = raw(macOf(1, 0), [6]byte(f.b[:6]), fr.Header, tail)
		}
		return true
	}
	return r
}

// Somebody answers in the peer's place, with a key of his own: the dial fails and says so; when the real peer is back,
// a dial that waits connects.
func TestImpostor(t *testing.T) {
	r := impostor(t)
	ev, _ := r.dialEnds("node1", "test", engine.DialOptions{Timeout: time.Second}, 2*time.Second)
	if ev.Status != engine.StatusPeerDown || !strings.Contains(ev.Text, "another key") {
		t.Errorf("%v %q", ev.Status, ev.Text)
	}
	if n := r.n[0].e.Count; n.Trust.StrangersRefused == 0 || n.Trust.HandshakesFailed == 0 ||
		n.Life.SessionsOpened != 0 {
		t.Errorf("%+v", n)
	}

	r = impostor(t)
	id, err := r.n[0].e.Dial(r.now, "node1", "test", engine.DialOptions{})
	if err != nil {
		t.Fatal(err)
	}
	r.rest(500 * time.Millisecond)
	if r.n[0].e.Count.Trust.StrangersRefused == 0 {
		t.Fatal("the impostor did not answer")
	}
	r.pass = nil
	r.boot(1, 1, rigOptions{sealed: true})
	r.n[1].e.Listen("test")
	r.must("the real peer is asked", 2*time.Second, func() bool {
		if ev, over := r.n[0].closed[id]; over {
			t.Fatalf("%v %q", ev.Status, ev.Text)
		}
		return r.n[1].e.Count.Life.SessionsOpened == 1
	})
}

// Whoever answers first can agree on handshake keys before he proves who he is: what he says with them must not end a
// dial.
func TestRefusalOfAnImpostor(t *testing.T) {
	for _, flags := range []uint8{wire.CryptoRefused, wire.CryptoDone, wire.CryptoKept} {
		r := newRig(t, rigOptions{sealed: true})
		r.rest(20 * time.Millisecond)
		r.pass = func(int, *flight) bool { return false }
		id, err := r.n[0].e.Dial(r.now, "node1", "test", engine.DialOptions{})
		if err != nil {
			t.Fatal(err)
		}
		r.rest(time.Millisecond)
		number := r.n[0].e.SessionList()[0].Local
		h := helloOf(1, 0, 1500, 1)
		in := wire.Init{Hello: h, Session: 99, PeerEpoch: 1}
		r.give(0, flight{link: 0, b: raw(macOf(1, 0), macOf(0, 0), wire.Header{Type: wire.TypeInitAck, Session: number},
			in.AppendTo(nil))})
		hs := secure.NewNode(identity(2), nil).Answer((&wire.Params{Epoch: 1, Session: 99}).AppendTo(nil))
		defer hs.Close()
		for _, f := range r.take(0) {
			var fr wire.Frame
			var c wire.Crypto
			if fr.Decode(f.b[wire.EthLen:]) == nil && fr.Type == wire.TypeCrypto && c.Decode(fr.Tail) == nil {
				if err := hs.Receive(secure.Initial, c.Data); err != nil {
					t.Fatal(err)
				}
			}
		}
		c := wire.Crypto{Data: hs.Out(secure.Initial)}
		r.give(0, flight{link: 0, b: raw(macOf(1, 0), macOf(0, 0), wire.Header{Type: wire.TypeCrypto, Session: number},
			c.AppendTo(nil))})
		seal, _ := hs.ProtectedKeys()
		if seal == nil {
			t.Fatal("no keys were agreed on")
		}
		head := wire.Header{Type: wire.TypeCrypto, KeyEpoch: seal.Epoch(), Session: number}
		word := wire.Crypto{Level: 1, Flags: flags, Status: uint8(engine.StatusStranger)}
		b := make([]byte, wire.FixedLen, 100)
		tail := word.AppendTo(nil)
		wire.FinishOpen(b, &head, tail)
		b = seal.Seal(append(b, tail...), 0, 0)
		r.give(0, flight{link: 0, b: append(bytes.Clone(raw(macOf(1, 0), macOf(0, 0), head, nil)[:wire.EthLen]), b...)})
		if ev, over := r.n[0].closed[id]; over {
			t.Errorf("flags %d: the dial ended with %v %q", flags, ev.Status, ev.Text)
		}
		if n := r.n[0].e.Count; n.Life.SessionsOpened != 0 || len(r.n[0].e.SessionList()) != 1 ||
			n.Reject.RejectedAuth != 0 {
			t.Errorf("flags %d: %+v", flags, n)
		}
	}
}

// peersOf is a table with the nodes of the given numbers.
func peersOf(t *testing.T, nodes ...int) *secure.Peers {
	t.Helper()
	var list []secure.Peer
	for _, i := range nodes {
		list = append(list, secure.Peer{Name: []string{"node0", "node1", "node2"}[i], Key: identity(i).Public()})
	}
	p, err := secure.NewPeers(list...)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// A peer that is taken off the list: the session with it ends at once, at the other end within a handshake, and both
// say why; when it is back it connects.
func TestSetPeers(t *testing.T) {
	r := newRig(t, rigOptions{sealed: true})
	c := r.connect(engine.DialOptions{})
	_, key := r.export(1, c[1], 8, both)
	r.settle()
	r.n[1].e.SetPeers(r.now, peersOf(t, 2))
	r.poll(1)
	if ev, over := r.n[1].closed[c[1]]; !over || ev.Status != engine.StatusStranger {
		t.Errorf("the connection at the node that took the peer off ended with %v (%v)", ev.Status, over)
	}
	r.submit(0, c[0], engine.Op{Kind: engine.OpWrite, Token: 1, Key: key, Local: []byte("abcdefgh")})
	r.must("the operation ends", 10*time.Millisecond, r.all(0, 1))
	r.wantStatus(0, 1, engine.StatusStranger)
	if ev := r.n[0].closed[c[0]]; ev.Status != engine.StatusStranger {
		t.Errorf("the connection at the node that was taken off ended with %v", ev.Status)
	}
	if ev, _ := r.dialEnds("node1", "test", engine.DialOptions{}, time.Second); ev.Status != engine.StatusStranger {
		t.Errorf("a dial meanwhile ended with %v", ev.Status)
	}
	r.rest(4 * time.Second)
	for i := range r.n {
		if z := r.n[i].e.TableSizes(); z.Sessions != 0 || z.Live != 0 {
			t.Errorf("node %d keeps %+v", i, z)
		}
	}
	r.n[1].e.SetPeers(r.now, peersOf(t, 0, 2))
	r.echoWorks(r.connect(engine.DialOptions{}))
	r.rest(4 * time.Second)
	r.oneSession()
}

// A peer that is taken off the list while its handshake runs gets no session.
func TestSetPeersDuringHandshake(t *testing.T) {
	for cut := 0; ; cut++ {
		r := newRig(t, rigOptions{sealed: true})
		r.n[1].e.Listen("test")
		n := 0
		r.pass = func(_ int, f *flight) bool {
			if setup(f.b) {
				if n == cut {
					r.n[1].e.SetPeers(r.now, peersOf(t))
				}
				n++
			}
			return true
		}
		r.rest(5 * time.Millisecond)
		id, err := r.n[0].e.Dial(r.now, "node1", "test", engine.DialOptions{})
		if err != nil {
			t.Fatal(err)
		}
		r.rest(8 * time.Second)
		if n <= cut {
			return
		}
		if ev := r.n[0].closed[id]; ev.Status != engine.StatusStranger && ev.Status != engine.StatusPeerDown {
			t.Errorf("frame %d: the dial ended with %v %q", cut, ev.Status, ev.Text)
		}
		for i := range r.n {
			if s := r.n[i].e.SessionList(); len(s) != 0 {
				t.Errorf("frame %d: node %d has %+v", cut, i, s)
			}
		}
	}
}
