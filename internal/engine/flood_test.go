package engine_test

import (
	"encoding/binary"
	"runtime"
	"testing"
	"time"

	"multiedge/internal/engine"
	"multiedge/internal/secure"
	"multiedge/internal/wire"
)

// initFrom is an Init of a made-up node at a made-up address.
func initFrom(k int, cookie []byte) (src [6]byte, b []byte) {
	src = [6]byte{2, 9}
	binary.BigEndian.PutUint32(src[2:], uint32(k))
	h := helloOf(0, 0, 1500, 1)
	binary.BigEndian.PutUint32(h.Node[:], uint32(k+1))
	in := wire.Init{Hello: h, Session: uint32(k + 1), Cookie: cookie}
	return src, raw(src, macOf(1, 0), wire.Header{Type: wire.TypeInit}, in.AppendTo(nil))
}

// Inits without a cookie, each from another address: nothing is kept of them, what is answered is bounded, and a real
// peer gets in (faults.md, adversary).
func TestInitFlood(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{sealed: true})
	r.rest(20 * time.Millisecond)
	retries := 0
	for k := range 200_000 {
		var cookie []byte
		if k%2 == 1 {
			cookie = make([]byte, wire.CookieLen)
		}
		_, b := initFrom(k, cookie)
		r.n[1].handle(r.now, 0, b)
		if k%100 == 0 {
			if z := r.n[1].e.TableSizes(); z.Sessions != 0 || z.Numbers != 0 || z.Outbox > 256 {
				t.Fatalf("after %d: %+v", k, z)
			}
			for _, f := range r.take(1) {
				if typeOf(f.b) == wire.TypeRetry {
					retries++
				}
			}
		}
	}
	if retries == 0 || retries > 1000 {
		t.Errorf("%d of 200,000 were answered at once, want a few", retries)
	}
	if n := len(r.n[1].e.Snapshot(r.now).Peers); n > 1 {
		t.Errorf("%d peers are remembered", n)
	}
	r.connectsWithin(time.Millisecond) // it was heard at its address
}

// connectsWithin dials from node 0 to node 1.
func (r *rig) connectsWithin(limit time.Duration) {
	r.t.Helper()
	start := r.now
	c := r.connect(engine.DialOptions{})
	if took := r.now.Sub(start); took > limit {
		r.t.Errorf("connecting took %v, want %v", took, limit)
	}
	r.echoWorks(c)
}

// Inits with good cookies from 10,000 addresses that really receive: the handshakes that wait are bounded at every
// moment, they end, and a real peer gets in within a second.
func TestCookieFlood(t *testing.T) {
	for _, gap := range []time.Duration{0, 20 * time.Microsecond, 500 * time.Microsecond} {
		before := runtime.NumGoroutine() // a handshake has one
		r := newRig(t, rigOptions{sealed: true})
		r.rest(20 * time.Millisecond)
		r.take(1)
		most := 0
		for k := range 10_000 {
			if k%50 == 0 {
				r.now = r.now.Add(21 * time.Millisecond) // of the limit of answers
			}
			src, b := initFrom(k, nil)
			r.n[1].handle(r.now, 0, b)
			var cookie []byte
			for _, f := range r.take(1) {
				var fr wire.Frame
				if string(f.b[:6]) == string(src[:]) && fr.Decode(f.b[wire.EthLen:]) == nil &&
					fr.Type == wire.TypeRetry {
					cookie = fr.Tail
				}
			}
			if cookie == nil {
				t.Fatal("no cookie")
			}
			_, b = initFrom(k, cookie)
			r.n[1].handle(r.now, 0, b)
			if most = max(most, r.n[1].e.Handshakes()); most > engine.MaxPending {
				t.Fatalf("%d handshakes wait", most)
			}
			r.now = r.now.Add(gap)
		}
		if most != engine.MaxPending {
			t.Errorf("%d handshakes waited at most, want %d: the test floods nothing", most, engine.MaxPending)
		}
		if n := r.n[1].e.Count.Reject.RejectedNoRoom; n == 0 && gap < 100*time.Microsecond {
			t.Error("nothing was refused")
		}
		r.connectsWithin(time.Second)
		r.rest(4 * time.Second)
		r.oneSession()
		for end := time.Now().Add(5 * time.Second); runtime.NumGoroutine() > before; runtime.Gosched() {
			if time.Now().After(end) {
				t.Fatalf("%d goroutines, %d before: handshakes are left", runtime.NumGoroutine(), before)
			}
		}
	}
}

// Somebody who saw a peer's Init says the same from his own address first: the peer's own handshake is not led to him.
func TestInitTakenOver(t *testing.T) {
	r := newRig(t, rigOptions{sealed: true})
	r.rest(20 * time.Millisecond)
	thief := [6]byte{2, 6, 6, 6, 6, 6}
	steal := func(f *flight) (cookie []byte) {
		b := append([]byte(nil), f.b...)
		copy(b[6:], thief[:])
		r.n[1].handle(r.now, f.link, b)
		for _, a := range r.take(1) {
			if typeOf(a.b) == wire.TypeRetry && string(a.b[:6]) == string(thief[:]) {
				cookie = a.b[wire.TailStart:]
			}
		}
		return cookie
	}
	stolen := false
	r.pass = func(from int, f *flight) bool {
		if from == 0 && typeOf(f.b) == wire.TypeInit && !stolen {
			stolen = true
			var fr wire.Frame
			var in wire.Init
			if fr.Decode(f.b[wire.EthLen:]) != nil || in.Decode(fr.Tail) != nil {
				t.Fatal("an Init does not decode")
			}
			in.Cookie = steal(f)
			b := raw(thief, macOf(1, 0), fr.Header, in.AppendTo(nil))
			r.n[1].handle(r.now, f.link, b)
			if r.n[1].e.Handshakes() != 1 {
				t.Fatal("the thief's handshake did not begin")
			}
		}
		return true
	}
	r.connectsWithin(time.Second)
	r.rest(4 * time.Second)
	r.oneSession()
}

// Somebody who receives at very many addresses asks for handshakes as fast as he can and says the first flight of each:
// what is computed for him is bounded, and a real peer gets in.
func TestHandshakeFlood(t *testing.T) {
	r := newRig(t, rigOptions{sealed: true})
	r.rest(20 * time.Millisecond)
	peer, _ := peersOf(t, 1).ByName("node1")
	stranger := secure.NewNode(identity(2), nil).Dial(peer, (&wire.Params{Epoch: 1, Session: 1}).AppendTo(nil))
	defer stranger.Close()
	hello := stranger.Out(secure.Initial)
	answered, start, k := 0, r.now, 0
	flood := func() {
		for range 50 {
			k++
			_, b := initFrom(k, nil)
			r.n[1].handle(r.now, 0, b)
		}
		for {
			out := r.take(1)
			if len(out) == 0 {
				break
			}
			for _, f := range out {
				var fr wire.Frame
				var in wire.Init
				if wire.Sealed(f.b[wire.EthLen:]) || fr.Decode(f.b[wire.EthLen:]) != nil ||
					string(f.b[:2]) != "\x02\x09" {
					continue
				}
				switch {
				case fr.Type == wire.TypeRetry:
					_, b := initFrom(int(fr.Session)-1, fr.Tail)
					r.n[1].handle(r.now, 0, b)
				case fr.Type == wire.TypeInitAck && in.Decode(fr.Tail) == nil:
					answered++
					for off := 0; off < len(hello); off += 500 {
						c := wire.Crypto{Offset: uint32(off), Data: hello[off:min(off+500, len(hello))]}
						r.n[1].handle(r.now, 0, raw([6]byte(f.b[:6]), macOf(1, 0), wire.Header{Type: wire.TypeCrypto,
							Session: in.Session}, c.AppendTo(nil)))
					}
				}
			}
		}
	}
	for r.now.Sub(start) < time.Second {
		flood()
		r.now = r.now.Add(5 * time.Millisecond)
	}
	if answered < 100 || answered > 1000 {
		t.Errorf("%d handshakes were answered in a second, want some hundreds", answered)
	}
	if n := r.n[1].e.Handshakes(); n != engine.MaxPending {
		t.Errorf("%d handshakes wait, want %d", n, engine.MaxPending)
	}
	r.connectsWithin(time.Millisecond)
}
