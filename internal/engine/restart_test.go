package engine_test

import (
	"bytes"
	"runtime"
	"testing"
	"time"

	"multiedge/internal/engine"
	"multiedge/internal/wire"
)

// Clause 4.6: operations on a restarted peer fail within one round trip of contact, nothing of the old epoch reaches
// the new one, and a new connection works.
func TestPeerRestarts(t *testing.T) { inBothForms(t, testPeerRestarts) }

func testPeerRestarts(t *testing.T, sealed bool) {
	contact := time.Duration(2) // a frame and its Reset
	if sealed {
		contact += 8 // and a handshake (clause 10.8)
	}
	for _, links := range []int{1, 2} {
		o := rigOptions{sealed: sealed, links: links}
		r := newRig(t, o)
		c := r.connect(engine.DialOptions{})
		_, key := r.export(1, c[1], 100_000, both)
		r.settle()
		var old []flight
		r.pass = func(from int, f *flight) bool {
			if from == 0 {
				old = append(old, flight{link: f.link, b: bytes.Clone(f.b)})
			}
			return true
		}
		r.submit(0, c[0], engine.Op{Kind: engine.OpWrite, Token: 0, Key: key, Local: pattern(1, 100_000)})
		r.must("a write before the restart", time.Second, r.all(0, 1))
		for i := range 8 {
			r.submit(0, c[0], engine.Op{Kind: engine.OpWrite, Flags: engine.Notify, Token: uint64(1 + i), Key: key,
				Off: uint64(i), Local: []byte{1}})
		}
		r.submit(0, c[0], engine.Op{Kind: engine.OpRead, Token: 9, Key: key, Local: make([]byte, 5000)})

		r.boot(1, 2, o)
		// In the new process memory stands under the very key of the old one, for the very same connection number:
		// worse than chance would have it.
		mem, again := r.export(1, c[1], 100_000, both)
		if again != key {
			t.Fatalf("key %v, want %v again", again, key)
		}
		start := r.now
		r.must("the old operations fail", time.Second, r.all(0, 10))
		if took, most := r.now.Sub(start), contact*r.hop; took > most {
			t.Errorf("%d links: they took %v, want at most %v", links, took, most)
		}
		for i := range 9 {
			r.wantStatus(0, uint64(1+i), engine.StatusPeerDown)
		}
		if ev, over := r.n[0].closed[c[0]]; !over || ev.Status != engine.StatusPeerDown {
			t.Errorf("the connection ended with %v (%v), want %v", ev.Status, over, engine.StatusPeerDown)
		}
		if r.n[0].e.Submit(r.now, c[0], &engine.Op{Kind: engine.OpWrite, Key: key, Local: []byte{1}}) {
			t.Error("the dead connection takes operations")
		}
		c = r.connect(engine.DialOptions{})
		for _, f := range old { // also once a session of the new epoch exists
			if typeOf(f.b) == wire.TypeData {
				r.give(1, f)
			}
		}
		r.rest(10 * time.Millisecond)
		if !bytes.Equal(mem, make([]byte, len(mem))) {
			t.Errorf("%d links: bytes of the old epoch were written", links)
		}
		if len(r.n[0].closed) != 1 || len(r.n[1].closed) != 0 {
			t.Error("frames of the old session ended the new one")
		}
		r.echoWorks(c)
	}
}

// Both ends have operations outstanding when one restarts and dials anew: its Init ends the old session (clause 4.5).
func TestPeerRestartsAndDials(t *testing.T) { inBothForms(t, testPeerRestartsAndDials) }

func testPeerRestartsAndDials(t *testing.T, sealed bool) {
	r := newRig(t, rigOptions{sealed: sealed})
	c := r.connect(engine.DialOptions{})
	_, key := r.export(1, c[1], 8, both)
	cut := true
	r.pass = func(from int, f *flight) bool { return !cut || from != 0 }
	r.submit(0, c[0], engine.Op{Kind: engine.OpWrite, Token: 1, Key: key, Local: []byte("abcdefgh")})
	r.rest(10 * time.Millisecond)
	r.boot(1, 2, rigOptions{sealed: sealed})
	r.n[0].e.Listen("back")
	if _, err := r.n[1].e.Dial(r.now, "node0", "back", engine.DialOptions{}); err != nil {
		t.Fatal(err)
	}
	cut = false
	incoming := false
	r.must("the request of the restarted peer", 2*time.Second, func() bool {
		for _, ev := range r.n[0].events {
			incoming = incoming || ev.Kind == engine.EvIncoming
		}
		return incoming
	})
	r.wantStatus(0, 1, engine.StatusPeerDown)
	up, down := 0, 0
	for _, ev := range r.n[0].events {
		switch ev.Kind {
		case engine.EvPeerDown:
			down++
		case engine.EvPeerUp:
			up++
		}
	}
	if up != 1 || down != 1 {
		t.Errorf("%d peer-up and %d peer-down events, want one each", up, down)
	}
}

// Clause 4.5: both dial at once, with any frame of the set-up lost; one session results and both connections open.
func TestBothDialAtOnce(t *testing.T) { inBothForms(t, testBothDialAtOnce) }

func testBothDialAtOnce(t *testing.T, sealed bool) {
	for lose := -1; lose < 24; lose++ {
		r := newRig(t, rigOptions{sealed: sealed})
		r.rest(5 * time.Millisecond)
		n := 0
		r.pass = func(_ int, f *flight) bool {
			if setup(f.b) {
				n++
				return n-1 != lose
			}
			return true
		}
		for i := range 2 {
			r.n[i].e.Listen("x")
			if _, err := r.n[i].e.Dial(r.now, []string{"node1", "node0"}[i], "x", engine.DialOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		var up, answered [2]int
		r.must("both connections", 3*time.Second, func() bool {
			for i := range 2 {
				for ; answered[i] < len(r.n[i].events); answered[i]++ {
					switch ev := r.n[i].events[answered[i]]; ev.Kind {
					case engine.EvIncoming:
						r.n[i].e.Accept(r.now, ev.Conn, nil)
					case engine.EvConnected:
						up[i]++
					}
				}
			}
			return up[0] == 2 && up[1] == 2
		})
		r.rest(4 * time.Second) // what the end that did not prevail began is forgotten
		for i := range 2 {
			if z := r.n[i].e.TableSizes(); z.Sessions != 1 || z.Numbers != 1 || len(r.n[i].closed) != 0 {
				t.Errorf("set-up frame %d lost: node %d has %+v", lose, i, z)
			}
		}
	}
}

// Clause 4.6 the other way: a Reset from elsewhere, or for another number, ends nothing.
func TestForgedReset(t *testing.T) {
	r := newRig(t, rigOptions{})
	c := r.connect(engine.DialOptions{})
	var number uint32
	r.pass = func(from int, f *flight) bool {
		var fr wire.Frame
		if from == 0 && fr.Decode(f.b[wire.EthLen:]) == nil && fr.Type == wire.TypeData {
			number = fr.Session
		}
		return true
	}
	r.echoWorks(c)
	forge := func(mac [6]byte, session uint32) {
		b := make([]byte, wire.TailStart)
		dst := macOf(0, 0)
		copy(b, dst[:])
		copy(b[6:], mac[:])
		b[12], b[13] = 0x88, 0xB5
		reset := wire.Reset{Session: session, Epoch: 7}
		tail := reset.AppendTo(nil)
		wire.Finish(b[wire.EthLen:], &wire.Header{Type: wire.TypeReset}, tail)
		r.give(0, flight{link: 0, b: append(b, tail...)})
	}
	forge([6]byte{2, 9, 9, 9, 9, 9}, number)
	forge(macOf(1, 0), number+1)
	if len(r.n[0].closed) != 0 {
		t.Fatal("a reset that does not concern the session ended it")
	}
	r.echoWorks(c)
}

// A million strangers' hellos leave no room in the table of peers; a real peer must connect all the same (faults.md,
// adversary).
func TestHelloFlood(t *testing.T) { inBothForms(t, testHelloFlood) }

func testHelloFlood(t *testing.T, sealed bool) {
	r := newRig(t, rigOptions{sealed: sealed})
	body := wire.Hello{Epoch: 1, RxSlots: 256, MTU: 1500, Name: []byte("stranger")}
	head := make([]byte, wire.TailStart)
	for i := range 6 {
		head[i] = 0xff
	}
	copy(head[6:], []byte{2, 7, 7, 7, 7, 7})
	head[12], head[13] = 0x88, 0xB5
	r.pass = func(int, *flight) bool { return false } // the real peer's first hellos are lost
	r.rest(time.Millisecond)
	for i := range 10_000 {
		body.Node = [8]byte{9, 9, byte(i >> 16), byte(i >> 8), byte(i), 1, 1, 1}
		tail := body.AppendTo(nil)
		wire.Finish(head[wire.EthLen:], &wire.Header{Type: wire.TypeHello}, tail)
		r.n[0].handle(r.now, 0, append(bytes.Clone(head), tail...))
	}
	r.pass = nil
	start := r.now
	r.echoWorks(r.connect(engine.DialOptions{}))
	if took := r.now.Sub(start); took > time.Second {
		t.Errorf("connecting took %v", took)
	}
}

// A session that is over, some hundred kilobytes, is not kept by any table: peers are restarted at any time, and then
// nothing may happen for long.
func TestEndedSessionsAreGivenBack(t *testing.T) {
	inBothForms(t, func(t *testing.T, sealed bool) {
		o := rigOptions{sealed: sealed, links: 2}
		r := newRig(t, o)
		var alive []func() bool
		note := func() { alive = append(alive, r.n[0].e.SessionsAlive()...) }
		for epoch := range uint32(5) {
			if epoch > 0 {
				r.boot(1, uint64(epoch+1), o)
				r.rest(10 * time.Second) // until the silence is noticed
			}
			c := r.connect(engine.DialOptions{})
			_, key := r.export(1, c[1], 100_000, both)
			r.settle()
			r.submit(0, c[0], engine.Op{Kind: engine.OpWrite, Token: uint64(epoch), Key: key,
				Local: pattern(1, 100_000)})
			r.must("a write", time.Second, r.all(0, int(epoch)+1))
			note()
		}
		r.boot(1, 9, o)
		r.rest(10 * time.Second)
		runtime.GC()
		now, kept := len(r.n[0].e.SessionList()), 0
		for _, a := range alive {
			if a() {
				kept++
			}
		}
		if kept > now {
			t.Errorf("%d of %d sessions are in memory, %d in the table", kept, len(alive), now)
		}
	})
}

// In plaintext an Init or an answer that is late, because a node had no processor for a while, makes the asking end ask
// anew (clause 4.3): the session that it never had is replaced without a word, and the late Init does not end the one
// that came of the next.
func TestLateAnswer(t *testing.T) {
	for _, kind := range []wire.Type{wire.TypeInit, wire.TypeInitAck} {
		for _, late := range []time.Duration{20, 60, 120, 180, 400} {
			d := newDialled(t, rigOptions{}, 1) // no end may hear that its peer is down
			d.calm(50 * time.Millisecond)
			n := 0
			d.fault = func(_ int, f *flight) (int, time.Duration) {
				if typeOf(f.b) == kind {
					// the Init with the cookie, or its answer
					if n++; n == 2 && kind == wire.TypeInit || n == 1 && kind == wire.TypeInitAck {
						return 1, late * time.Millisecond
					}
				}
				return 1, 0
			}
			d.dial(0)
			if !d.run(time.Second, func() bool { return d.connected == [2]int{1, 1} }) {
				t.Fatalf("connected %v", d.connected)
			}
			d.calm(time.Second)
			for i := range d.n {
				if n := d.n[i].e.Count; n.Life.SessionsFailed != 0 {
					t.Errorf("type %d late by %d ms: node %d: %d sessions failed", kind, late, i, n.Life.SessionsFailed)
				}
			}
			d.oneSession()
		}
	}
}

// In plaintext too an Init of an old epoch, sent again while its cookie is good, does not end the session of the new
// one.
func TestOldInitAgain(t *testing.T) {
	r := newRig(t, rigOptions{})
	all := record(r)
	r.connect(engine.DialOptions{})
	r.pass = nil
	r.boot(0, 2, rigOptions{})
	r.must("the restart is noticed", 2*time.Second, func() bool { return len(r.n[1].closed) == 1 })
	c := r.connect(engine.DialOptions{})
	sent := 0
	for _, f := range all.frames[0] {
		if typeOf(f.b) == wire.TypeInit {
			r.give(1, f)
			sent++
		}
	}
	r.rest(10 * time.Millisecond)
	if sent < 2 || len(r.n[1].closed) != 1 || len(r.n[0].closed) != 0 {
		t.Errorf("%d Inits ended the new session", sent)
	}
	r.echoWorks(c)
	r.oneSession()
}

// Clause 4.5: a node asks for a session, and its peer answers, in vain, is restarted, and asks in turn. What the peer
// sent in its earlier life then means no session: it would count as received in the new one, with numbers that its
// later frames have.
func TestAnswerOfAnEarlierLife(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.n[0].e.Listen("test")
	r.rest(10 * time.Millisecond)
	var old []flight
	r.pass = func(from int, f *flight) bool {
		if from == 0 && typeOf(f.b) == wire.TypeData {
			old = append(old, *f)
		}
		return from != 0 || typeOf(f.b) == wire.TypeRetry
	}
	if _, err := r.n[1].e.Dial(r.now, "node0", "test", engine.DialOptions{}); err != nil {
		t.Fatal(err)
	}
	r.must("an answer that is lost", 40*time.Millisecond, func() bool { return len(old) > 0 })
	r.pass = nil
	r.boot(0, 2, rigOptions{})
	r.connect(engine.DialOptions{})
	for _, f := range old {
		r.give(1, f)
	}
	if n := r.n[1].e.Count.Reject.UnknownSession; n != uint64(len(old)) {
		t.Errorf("%d frames of the earlier life, %d of no session", len(old), n)
	}
}
