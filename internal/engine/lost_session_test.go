package engine_test

import (
	"bytes"
	"testing"
	"time"

	"multiedge/internal/engine"
	"multiedge/internal/wire"
)

// Clause 10.8: the peer has lost the session because it heard nothing for the dead time. Once it hears again,
// operations end within a handshake.
func TestDoubtAfterSilence(t *testing.T) {
	r := newRig(t, rigOptions{sealed: true})
	c := r.connect(engine.DialOptions{})
	_, key := r.export(1, c[1], 8, both)
	r.settle()
	r.pass = func(from int, _ *flight) bool { return from == 1 }
	r.must("node 1 gives up", 20*time.Second, func() bool { return len(r.n[1].closed) == 1 })
	if len(r.n[0].closed) != 0 {
		t.Fatal("node 0 gave up as well: it heard pings")
	}
	r.pass = nil
	start := r.now
	r.submit(0, c[0], engine.Op{Kind: engine.OpWrite, Token: 1, Key: key, Local: []byte("abcdefgh")})
	r.must("the operation ends", time.Second, r.all(0, 1))
	if took, most := r.now.Sub(start), 10*r.hop; took > most {
		t.Errorf("after %v, want %v", took, most)
	}
	r.wantStatus(0, 1, engine.StatusPeerDown)
	r.echoWorks(r.connect(engine.DialOptions{}))
	r.rest(4 * time.Second)
	r.oneSession()
}

// The peer is started anew and reached only by a link that it had said is gone, or by one that it did not have before,
// which Hello alone names: its Resets come from there.
func TestDoubtByOtherLinks(t *testing.T) {
	for name, links := range map[string]int{"gone": 2, "new": 1} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, rigOptions{sealed: true, links: links})
			c := r.connect(engine.DialOptions{})
			_, key := r.export(1, c[1], 8, both)
			r.settle()
			if links == 2 {
				r.n[1].e.RemoveLink(r.now, 1)
				r.settle()
			}
			r.boot(1, 2, rigOptions{sealed: true, links: 2})
			r.cable(1, -1)
			start := r.now
			r.submit(0, c[0], engine.Op{Kind: engine.OpWrite, Token: 1, Key: key, Local: []byte("abcdefgh")})
			r.must("the operation ends", 20*time.Second, r.all(0, 1))
			if took := r.now.Sub(start); took > 2*time.Second {
				t.Errorf("after %v", took)
			}
			r.wantStatus(0, 1, engine.StatusPeerDown)
			r.echoWorks(r.connect(engine.DialOptions{}))
		})
	}
}

// The peer still has the session: whoever forges Reset makes the ends ask each other, at most once a second, and
// nothing else happens.
func TestDoubtUnfounded(t *testing.T) {
	r := newRig(t, rigOptions{sealed: true})
	s := newStream(r, r.connect(engine.DialOptions{}))
	s.forTime(300*time.Millisecond, 50*time.Millisecond)
	session := r.n[0].e.SessionList()[0]
	body := wire.Reset{Session: session.Remote, Epoch: 2}
	reset := raw(macOf(1, 0), macOf(0, 0), wire.Header{Type: wire.TypeReset}, body.AppendTo(nil))
	asked := 0
	r.pass = func(from int, f *flight) bool {
		if from == 0 && typeOf(f.b) == wire.TypeInit {
			asked++
		}
		r.n[0].handle(r.now, 0, reset)
		return true
	}
	s.forTime(3*time.Second, 50*time.Millisecond)
	if asked < 2 || asked > 2*4 { // with and without a cookie
		t.Errorf("%d Inits in 3 s of resets, want two a second", asked)
	}
	r.pass = nil
	s.finish()
	r.rest(4 * time.Second)
	r.oneSession()
	if r.n[0].e.SessionList()[0].Local != session.Local || len(r.n[0].closed)+len(r.n[1].closed) != 0 {
		t.Error("it is another session")
	}
	for i := range r.n {
		for _, ev := range r.n[i].events {
			if ev.Kind == engine.EvPeerDown || ev.Kind == engine.EvPeerUp {
				t.Errorf("node %d: %+v", i, ev)
			}
		}
	}
}

// Clause 10.7: each end has a session that the other lacks, and both doubt theirs at once, over such a long path that
// each has sent its Finished when the other's comes. One of the requests prevails; else they would go on so for ever.
func TestBothDoubt(t *testing.T) {
	r := newRig(t, rigOptions{sealed: true})
	r.rest(20 * time.Millisecond)
	r.n[1].e.Listen("test")
	id, err := r.n[0].e.Dial(r.now, "node1", "test", engine.DialOptions{})
	if err != nil {
		t.Fatal(err)
	}
	r.pass = func(from int, _ *flight) bool { return from == 0 || r.n[1].e.Count.Life.SessionsOpened == 0 }
	r.must("node 1 opens", time.Second, func() bool { return r.n[1].e.Count.Life.SessionsOpened == 1 })
	r.n[0].e.Abort(r.now, id, engine.StatusAborted)
	r.must("node 0 gives up", 5*time.Second, func() bool { return len(r.n[0].e.SessionList()) == 0 })
	r.pass = func(from int, _ *flight) bool { return from == 1 || r.n[0].e.Count.Life.SessionsOpened == 0 }
	r.must("node 0 opens another", 5*time.Second, func() bool { return r.n[0].e.Count.Life.SessionsOpened == 1 })
	r.must("node 1 gives that up", 5*time.Second, func() bool { return len(r.n[1].e.SessionList()) == 1 })
	r.pass, r.hop = nil, 20*time.Millisecond
	var number [2]uint32
	for i, n := range r.n {
		s := n.e.SessionList()[0]
		number[i] = s.Local
		body := wire.Reset{Session: s.Remote, Epoch: 1}
		n.handle(r.now, 0, raw(macOf(1-i, 0), macOf(i, 0), wire.Header{Type: wire.TypeReset}, body.AppendTo(nil)))
	}
	r.rest(500 * time.Millisecond)
	a, b := r.n[0].e.SessionList(), r.n[1].e.SessionList()
	if len(a) != 1 || len(b) != 1 || a[0].Local != b[0].Remote || b[0].Local != a[0].Remote {
		t.Fatalf("%+v\nand %+v", a, b)
	}
	if a[0].Local == number[0] && b[0].Local == number[1] {
		t.Error("nothing was doubted")
	}
}

// A request that is made to a peer that was started anew, before that is known, is carried over to the new session
// (clause 10.7).
func TestDialOverRestart(t *testing.T) {
	r := newRig(t, rigOptions{sealed: true})
	c := r.connect(engine.DialOptions{})
	r.settle()
	r.boot(1, 2, rigOptions{sealed: true})
	r.echoWorks(r.connect(engine.DialOptions{}))
	if ev := r.n[0].closed[c[0]]; ev.Status != engine.StatusPeerDown {
		t.Errorf("the old connection ended with %v", ev.Status)
	}
}

// A request that is given up while its session is about to be replaced leaves nothing behind.
func TestDialGivenUpInRace(t *testing.T) {
	for stop := range 60 {
		d := newDialled(t, rigOptions{sealed: true}, 1)
		d.calm(5 * time.Millisecond)
		d.pick = nil
		d.net.Loss, d.net.Jitter = 0, 100*time.Microsecond
		id, err := d.n[0].e.Dial(d.now, "node1", "x", engine.DialOptions{})
		if err != nil {
			t.Fatal(err)
		}
		d.dial(1)
		d.calm(time.Duration(stop) * 10 * time.Microsecond)
		d.n[0].e.Abort(d.now, id, engine.StatusAborted)
		d.calm(5 * time.Second)
		for i := range d.n {
			if z := d.n[i].e.TableSizes(); z.Live != 1 || z.Sessions != 1 {
				t.Errorf("given up after %d: node %d: %+v", stop, i, z)
			}
		}
	}
}

// The answering end opened a session of which the asking end never heard, and gave up a request on it: the session that
// takes its place leaves nothing of that.
func TestUnservedSessionReplaced(t *testing.T) {
	r := newRig(t, rigOptions{sealed: true})
	r.rest(20 * time.Millisecond)
	for i := range r.n {
		r.n[i].e.Listen("test")
	}
	if _, err := r.n[0].e.Dial(r.now, "node1", "test", engine.DialOptions{Timeout: time.Minute}); err != nil {
		t.Fatal(err)
	}
	r.pass = func(from int, _ *flight) bool { return from == 0 || r.n[1].e.Count.Life.SessionsOpened == 0 }
	r.must("node 1 opens", time.Second, func() bool { return r.n[1].e.Count.Life.SessionsOpened == 1 })
	number := r.n[0].e.SessionList()[0].Local
	kept, err := r.n[1].e.Dial(r.now, "node0", "test", engine.DialOptions{Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	given, _ := r.n[1].e.Dial(r.now, "node0", "test", engine.DialOptions{Timeout: time.Minute})
	r.rest(10 * time.Millisecond)
	r.n[1].e.Abort(r.now, given, engine.StatusAborted)
	r.must("node 0 begins anew", 4*time.Second, func() bool { return r.n[0].e.SessionList()[0].Local != number })
	r.pass = nil
	r.must("both requests arrive", time.Second, func() bool {
		n := 0
		for i := range r.n {
			for _, ev := range r.n[i].events {
				if ev.Kind == engine.EvIncoming {
					n++
				}
			}
		}
		return n == 2
	})
	r.rest(4 * time.Second)
	r.poll(1)
	if _, over := r.n[1].closed[kept]; over {
		t.Error("the request that waited was ended")
	}
	for i := range r.n {
		if z := r.n[i].e.TableSizes(); z.Live != 2 || z.Sessions != 1 {
			t.Errorf("node %d: %+v, want two connections on one session", i, z)
		}
	}
	up := 0
	for _, ev := range r.n[1].events {
		switch ev.Kind {
		case engine.EvPeerUp:
			up++
		case engine.EvPeerDown:
			up--
		}
	}
	if up != 1 {
		t.Errorf("%d more peer-up than peer-down events, want one", up)
	}
}

// Clause 9.2: what a lost frame carried is not sent again in a frame above the preferred length, whatever new
// operations could share it.
func TestResentFramesAreNotStretched(t *testing.T) {
	const size = 4096
	for _, lost := range []int{size, 1000} { // sent again as the payload, and as a part that is copied
		r := newRig(t, rigOptions{mtu: 9000, checksum: engine.ChecksumHeader})
		c := r.connect(engine.DialOptions{})
		_, key := r.export(1, c[1], 256*2*size, both)
		r.rest(time.Second) // the path grows to 9000
		fresh := size
		if lost < size {
			fresh = 8200 - lost // as a payload, a little too long beside it
		}
		first := pattern(1, lost)
		r.submit(0, c[0], engine.Op{Kind: engine.OpWrite, Key: key, Local: first})
		r.take(0) // lost
		again := false
		for i := 1; i < 250 && !again; i++ {
			r.submit(0, c[0], engine.Op{Kind: engine.OpWrite, Token: uint64(i), Key: key, Off: uint64(i * 2 * size),
				Local: pattern(100+i, fresh)})
			for _, f := range r.take(0) {
				if bytes.Contains(f.b, first[:64]) {
					if again = true; len(f.b) > wire.EthLen+8192 {
						t.Errorf("%d bytes were sent again in a frame of %d bytes", lost, len(f.b)-wire.EthLen)
					}
				}
				r.give(1, f)
			}
			for _, f := range r.take(1) {
				r.give(0, f)
			}
			r.now = r.now.Add(50 * time.Microsecond)
		}
		if !again {
			t.Fatalf("%d bytes that were lost were not sent again", lost)
		}
	}
}
