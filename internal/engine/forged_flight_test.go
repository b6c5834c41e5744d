package engine_test

import (
	"testing"
	"time"

	"multiedge/internal/engine"
	"multiedge/internal/wire"
)

// What somebody forges behind the end of the plaintext flight, while its last piece is computed, is ignored like what
// he forges later (clause 10.2): the handshake goes on.
func TestForgedBehindPlaintextFlight(t *testing.T) {
	r := newRig(t, rigOptions{sealed: true, deferred: true})
	r.settle()
	r.n[1].e.Listen("test")
	if _, err := r.n[0].e.Dial(r.now, "node1", "test", engine.DialOptions{}); err != nil {
		t.Fatal(err)
	}
	var session uint32
	end := 0 // of the flight of node 1
	r.pass = func(from int, f *flight) bool {
		var frame wire.Frame
		var c wire.Crypto
		if from == 1 && typeOf(f.b) == wire.TypeCrypto && frame.Decode(f.b[wire.EthLen:]) == nil &&
			c.Decode(frame.Tail) == nil && c.Level == 0 {
			session, end = frame.Session, max(end, int(c.Offset)+len(c.Data))
		}
		return true
	}
	r.must("the flight arrives", time.Second, func() bool { return end > 0 })
	r.round() // the Step of the first piece is done, that of the rest under way
	c := wire.Crypto{Offset: uint32(end), Data: []byte("nonsense")}
	r.give(0, flight{b: raw(macOf(1, 0), macOf(0, 0), wire.Header{Type: wire.TypeCrypto, Session: session},
		c.AppendTo(nil))})
	r.must("the session opens", 100*time.Millisecond, func() bool {
		return len(r.n[0].e.SessionList()) == 1 && r.n[0].e.SessionList()[0].Open
	})
	if n := r.n[0].e.Count.Trust.HandshakesFailed; n != 0 {
		t.Errorf("%d handshakes failed", n)
	}
}
