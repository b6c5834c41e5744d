package engine_test

import (
	"testing"
	"time"

	"multiedge/internal/engine"
	"multiedge/internal/wire"
)

// dialled is a mess in which nodes dial each other and nothing may fail.
type dialled struct {
	*mess
	connected [2]int
	dials     int
}

func newDialled(t *testing.T, o rigOptions, seed uint64) *dialled {
	d := &dialled{mess: newMess(newRig(t, o), seed)}
	d.pick = func(ev *engine.Event, i int) {
		switch ev.Kind {
		case engine.EvConnected:
			d.connected[i]++
		case engine.EvClosed, engine.EvPeerDown:
			t.Errorf("node %d: event %d, %v %s", i, ev.Kind, ev.Status, ev.Text)
		}
	}
	for i := range d.n {
		d.n[i].e.Listen("x")
	}
	return d
}

func (d *dialled) dial(i int) {
	if _, err := d.n[i].e.Dial(d.now, []string{"node1", "node0"}[i], "x",
		engine.DialOptions{Timeout: time.Minute}); err != nil {
		d.t.Fatal(err)
	}
	d.dials++
}

func (d *dialled) done() bool { return d.connected[0] == d.dials && d.connected[1] == d.dials }

// Clauses 4.3, 10.2 and 10.7: each single frame of the set-up may be lost, come twice, late or changed, with one end
// dialling or both. It costs repetitions, and in the end there is one session and nothing else is remembered.
func TestSetupFrameFaults(t *testing.T) {
	for _, both := range []bool{false, true} {
		for _, kind := range []string{"lost", "twice", "late", "very late", "changed",
			"all but the first lost for 300 ms"} {
			for at := 0; ; at++ {
				d := newDialled(t, rigOptions{sealed: true}, 1)
				d.calm(5 * time.Millisecond)
				n := 0
				start := d.now
				d.fault = func(_ int, f *flight) (int, time.Duration) {
					if !setup(f.b) {
						return 1, 0
					}
					n++
					switch {
					case kind[0] == 'a' && n-1 > at && d.now.Sub(start) < 300*time.Millisecond:
						return 0, 0
					case n-1 != at:
					case kind == "lost":
						return 0, 0
					case kind == "twice":
						return 2, 0
					case kind == "late":
						return 1, 3 * time.Millisecond
					case kind == "very late":
						return 1, 500 * time.Millisecond
					case kind == "changed":
						f.b[len(f.b)-1-at%8] ^= 0x10
					}
					return 1, 0
				}
				d.dial(0)
				if both {
					d.dial(1)
				}
				if !d.run(5*time.Second, d.done) {
					t.Fatalf("both %v, frame %d %s: connected %v within 5 s", both, at, kind, d.connected)
				}
				took := d.now.Sub(start)
				d.calm(5 * time.Second)
				d.oneSession()
				if t.Failed() {
					t.Fatalf("both %v, frame %d %s (took %v)", both, at, kind, took)
				}
				if at > n {
					break
				}
			}
		}
	}
}

// Set-up at 30 % loss, and at 30 % of corruption (faults.md): 50 of 50 connections within 60 s.
func TestSetupUnderLoss(t *testing.T) {
	for seed := range uint64(50) {
		for _, change := range []bool{false, true} {
			d := newDialled(t, rigOptions{sealed: true, links: 1 + int(seed%3)}, seed)
			if d.net.Loss = 0.3; change {
				d.net.Loss, d.net.Corrupt = 0, 0.3
			}
			start := d.now
			d.dial(int(seed % 2))
			if !d.run(time.Minute, d.done) || t.Failed() {
				t.Fatalf("seed %d, changed %v: connected %v after %v", seed, change, d.connected, d.now.Sub(start))
			}
			d.net.Loss, d.net.Corrupt = 0, 0
			d.calm(5 * time.Second)
			if d.oneSession(); t.Failed() {
				t.Fatalf("seed %d, changed %v", seed, change)
			}
		}
	}
}

// Once both ends have the handshake's keys, what comes in plaintext behind the first level's end is forged, and
// disturbs nothing.
func TestForgedInHandshake(t *testing.T) {
	r := newRig(t, rigOptions{sealed: true})
	r.rest(20 * time.Millisecond)
	var end [2]int // of the plaintext stream to each node
	forged := 0
	r.pass = func(from int, f *flight) bool {
		var fr wire.Frame
		var c wire.Crypto
		if typeOf(f.b) != wire.TypeCrypto {
			return true
		}
		if fr.Decode(f.b[wire.EthLen:]) == nil && c.Decode(fr.Tail) == nil {
			end[1-from] = max(end[1-from], int(c.Offset)+len(c.Data))
			return true
		}
		to := from // who seals has the keys
		c = wire.Crypto{Offset: uint32(end[to]), Data: []byte{1, 0, 0, 200, 3, 3}}
		r.n[to].handle(r.now, 0, raw(macOf(1-to, 0), macOf(to, 0), wire.Header{Type: wire.TypeCrypto,
			Session: r.n[to].e.SessionList()[0].Local}, c.AppendTo(nil)))
		forged++
		return true
	}
	r.connectsWithin(time.Millisecond)
	if forged == 0 {
		t.Error("nothing was forged")
	}
}

// Clauses 4.3 and 10.2: what is lost after an answer came is said again at the first pace, whatever was lost before it.
func TestSetupPace(t *testing.T) {
	r := newRig(t, rigOptions{sealed: true})
	r.rest(20 * time.Millisecond)
	start := r.now
	inits, retried, flights := 0, r.now, [2]int{}
	r.pass = func(from int, f *flight) bool {
		switch {
		case from == 1 && typeOf(f.b) == wire.TypeRetry:
			retried = r.now
		case from == 0 && typeOf(f.b) == wire.TypeInit:
			inits++
			return r.now.Sub(start) > 300*time.Millisecond && inits != 5 // the first four, and the one with the cookie
		case from == 0 && typeOf(f.b) == wire.TypeCrypto:
			level := 0
			if wire.Sealed(f.b[wire.EthLen:]) {
				level = 1
			}
			flights[level]++
			// the first one for long, then the second once
			return r.now.Sub(retried) > 200*time.Millisecond && (level == 0 || flights[1] > 3)
		}
		return true
	}
	c := r.connect(engine.DialOptions{})
	if inits < 5 || flights[1] < 4 {
		t.Fatalf("%d Inits, %d frames of flights: the test loses nothing", inits, flights)
	}
	if took := r.now.Sub(retried); took > 420*time.Millisecond {
		t.Errorf("%v after the Retry", took)
	}
	r.echoWorks(c)
}
