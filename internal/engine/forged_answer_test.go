package engine_test

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"multiedge/internal/engine"
	"multiedge/internal/secure"
	"multiedge/internal/wire"
)

// Whoever sees an Init can answer it before the peer does (clause 10.2): that costs a dial nothing.

// answer is an InitAck to node 0 in the name of node 1.
func (r *rig) answer(src [6]byte, from uint32) flight {
	in := wire.Init{Hello: helloOf(1, 0, 1500, 1), Session: from, PeerEpoch: 1}
	return flight{link: 0, b: raw(src, macOf(0, 0), wire.Header{Type: wire.TypeInitAck,
		Session: r.n[0].e.SessionList()[0].Local}, in.AppendTo(nil))}
}

func TestForgedAnswer(t *testing.T) {
	evil := [6]byte{2, 6, 6, 6, 6, 6}
	for _, c := range []struct {
		what   string
		src    func(k int) [6]byte
		times  int
		lost   wire.Type // the first frame of the peer's of this type does not arrive
		within time.Duration
	}{
		{"from another address", func(int) [6]byte { return evil }, 1, 0, time.Millisecond},
		{"from another address, the peer's Retry lost", func(int) [6]byte { return evil }, 1, wire.TypeRetry,
			60 * time.Millisecond},
		{"from another address, the peer's InitAck lost", func(int) [6]byte { return evil }, 1, wire.TypeInitAck,
			60 * time.Millisecond},
		{"from the peer's address", func(int) [6]byte { return macOf(1, 0) }, 1, 0, time.Millisecond},
		{"three times from each", func(k int) [6]byte { return [][6]byte{evil, macOf(1, 0)}[k%2] }, 6, 0,
			time.Millisecond},
		{"from three addresses", func(k int) [6]byte { return [6]byte{2, 6, 6, 6, 6, byte(k)} }, 3, 0,
			time.Millisecond},
	} {
		r := newRig(t, rigOptions{sealed: true})
		r.rest(20 * time.Millisecond)
		forged, lost := false, false
		r.pass = func(from int, f *flight) bool {
			if from == 0 && typeOf(f.b) == wire.TypeInit && !forged {
				forged = true
				for k := range c.times {
					r.give(0, r.answer(c.src(k), uint32(1000+k)))
				}
			}
			if from == 1 && typeOf(f.b) == c.lost && !lost {
				lost = true
				return false
			}
			return true
		}
		t.Run(c.what, func(t *testing.T) {
			r.t = t
			r.connectsWithin(c.within)
			r.rest(4 * time.Second)
			r.oneSession()
		})
		if !forged || lost != (c.lost != 0) {
			t.Errorf("%s: forged %v, lost %v", c.what, forged, lost)
		}
	}
}

// The one who answered first goes on with a handshake of his own until he would have to prove who he is; another key is
// found out at once.
func TestForgedAnswerGoesOn(t *testing.T) {
	evil := [6]byte{2, 6, 6, 6, 6, 6}
	for _, proves := range []bool{false, true} {
		r := newRig(t, rigOptions{sealed: true})
		r.rest(20 * time.Millisecond)
		peers, err := secure.NewPeers(secure.Peer{Name: "node0", Key: identity(0).Public()})
		if err != nil {
			t.Fatal(err)
		}
		hs := secure.NewNode(identity(2), peers).Answer((&wire.Params{Epoch: 1, Session: 99}).AppendTo(nil))
		defer hs.Close()
		say := func(h wire.Header, c wire.Crypto) {
			h.Type, h.Session = wire.TypeCrypto, r.n[0].e.SessionList()[0].Local
			r.give(0, flight{link: 0, b: raw(evil, macOf(0, 0), h, c.AppendTo(nil))})
		}
		heard := 0
		r.pass = func(from int, f *flight) bool {
			if from == 0 && typeOf(f.b) == wire.TypeInit && heard == 0 {
				r.give(0, r.answer(evil, 99))
				heard++
			}
			var fr wire.Frame
			var c wire.Crypto
			if from == 0 && string(f.b[:6]) == string(evil[:]) && fr.Decode(f.b[wire.EthLen:]) == nil &&
				fr.Type == wire.TypeCrypto && c.Decode(fr.Tail) == nil && len(hs.Out(secure.Initial)) == 0 {
				if err := hs.Receive(secure.Initial, c.Data); err != nil {
					t.Fatal(err)
				}
				if out := hs.Out(secure.Initial); len(out) > 0 {
					heard++
					say(wire.Header{}, wire.Crypto{Data: out})
					if seal, _ := hs.ProtectedKeys(); proves {
						c := wire.Crypto{Level: 1, Data: hs.Out(secure.Protected)}
						h := wire.Header{Type: wire.TypeCrypto, KeyEpoch: seal.Epoch(),
							Session: r.n[0].e.SessionList()[0].Local}
						b := make([]byte, wire.FixedLen, 4096)
						wire.FinishOpen(b, &h, c.AppendTo(nil))
						b = seal.Seal(append(b, c.AppendTo(nil)...), 0, 0)
						r.give(0, flight{link: 0, b: append(raw(evil, macOf(0, 0), h, nil)[:wire.EthLen:wire.EthLen],
							b...)})
					}
				}
			}
			return true
		}
		r.connectsWithin(time.Millisecond)
		if n := r.n[0].e.Count.Trust.StrangersRefused; heard != 2 || (n == 1) != proves {
			t.Errorf("proves %v: got to step %d, %d strangers refused", proves, heard, n)
		}
		r.pass = nil
		r.rest(4 * time.Second)
		r.oneSession()
	}
}

// Very many answers: what they cost is bounded, and when they stop the dial goes on.
func TestAnswerFlood(t *testing.T) {
	before := runtime.NumGoroutine() // a handshake has one
	r := newRig(t, rigOptions{sealed: true})
	r.rest(20 * time.Millisecond)
	up := func() bool { return r.n[0].e.Count.Life.SessionsOpened > 0 }
	if _, err := r.n[0].e.Dial(r.now, "node1", "test", engine.DialOptions{Timeout: 10 * time.Second}); err != nil {
		t.Fatal(err)
	}
	r.pass = func(int, *flight) bool { return false }
	sent := 0
	for k := range 5000 {
		src := macOf(1, 0)
		if k%2 == 0 {
			src = [6]byte{2, 6, 6, 6, byte(k >> 8), byte(k)}
		}
		r.give(0, r.answer(src, uint32(1000+k)))
		if k%50 == 0 {
			sent += len(r.take(0))
		}
		if n := runtime.NumGoroutine() - before; n > 2*engine.MaxTries+2 { // those that ended may not be gone yet
			t.Fatalf("%d handshakes after %d answers", n, k+1)
		}
	}
	if sent > 800 {
		t.Errorf("%d frames were sent for 5,000 answers, want a few hundred", sent)
	}
	r.pass = nil
	r.must("a session", 4*time.Second, up)
	r.rest(4 * time.Second)
	r.oneSession()
}

// A stream of Retry does not put off the Inits that the peer would answer.
func TestForgedRetries(t *testing.T) {
	r := newRig(t, rigOptions{sealed: true})
	r.rest(20 * time.Millisecond)
	start, k := r.now, 0
	r.pass = func(from int, f *flight) bool {
		return r.now.Sub(start) > 500*time.Millisecond || !setup(f.b)
	}
	id, err := r.n[0].e.Dial(r.now, "node1", "test", engine.DialOptions{Timeout: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	r.n[1].e.Listen("test")
	next := r.now
	r.must("a session", 2*time.Second, func() bool {
		if r.now >= next {
			k++
			next = r.now.Add(40 * time.Millisecond)
			b := raw([6]byte{2, 6, 6, 6, 6, 6}, macOf(0, 0), wire.Header{Type: wire.TypeRetry,
				Session: r.n[0].e.SessionList()[0].Local}, fmt.Append(nil, "cookie", k))
			r.give(0, flight{link: 0, b: b})
		}
		return r.n[0].e.Count.Life.SessionsOpened > 0
	})
	if _, over := r.n[0].closed[id]; over || k < 5 {
		t.Errorf("%d retries, closed %v", k, over)
	}
}
