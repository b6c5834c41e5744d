package engine_test

import (
	"encoding/binary"
	"fmt"
	"testing"

	"multiedge/internal/engine"
	"multiedge/internal/wire"
)

// The committed corpus in testdata/fuzz runs with every go test; to search on: go test -fuzz FuzzSealedEndpoint
// ./internal/engine

// FuzzSealedEndpoint gives frames of any content to a node with an open sealed session. The first byte says what is
// made right of the frame: bit 0 the session's number, bit 1 the header's checksum, bit 2 the sender's address. No
// frame may do anything but be counted.
func FuzzSealedEndpoint(f *testing.F) {
	r := newRig(f, rigOptions{sealed: true})
	c := r.connect(engine.DialOptions{})
	mem, _ := r.export(1, c[1], 64, both)
	r.settle()
	number := r.n[1].e.SessionList()[0].Local
	for _, frames := range r.forgeries(1) {
		f.Add(append([]byte{7}, frames[0].b...))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		if len(in) < 1+wire.EthLen || len(in) > 9000 {
			return
		}
		b := append([]byte(nil), in[1:]...)
		body := b[wire.EthLen:]
		b[12], b[13] = wire.EtherType>>8, wire.EtherType&0xff
		if in[0]&1 != 0 && len(body) >= 8 {
			binary.BigEndian.PutUint32(body[4:], number)
		}
		if in[0]&4 != 0 {
			src := macOf(0, 0)
			copy(b[6:], src[:])
		}
		if in[0]&2 != 0 && len(body) >= wire.FixedLen {
			resum(body)
		}
		before, count := r.state(1), r.n[1].e.Count
		r.n[1].handle(r.now, 0, b)
		r.poll(1)
		now := r.n[1].e.Count
		if now.Op.OpsApplied != count.Op.OpsApplied ||
			now.Traffic.DataFramesReceived != count.Traffic.DataFramesReceived ||
			now.Life.SessionsFailed != count.Life.SessionsFailed || now.Life.PathChanges != count.Life.PathChanges {
			t.Errorf("accepted: %+v", now)
		}
		for _, v := range mem {
			if v != 0 {
				t.Fatal("memory changed")
			}
		}
		if len(r.n[1].e.SessionList()) > 1 { // a Reset made it ask
			r.take(1)
			r.now = r.now.Add(10e9)
			r.take(1)
			r.settle()
			before = r.state(1)
		}
		if after := r.state(1); after != before {
			t.Errorf("before %s\nafter  %s", before, after)
		}
		r.take(1)
	})
}

// resum puts the right checksum into a frame in plaintext, as far as its lengths make sense.
func resum(b []byte) {
	tail := int(binary.BigEndian.Uint16(b[20:]))
	head := wire.FixedLen
	at := head
	if b[3]&wire.FlagBulk != 0 {
		head += wire.BulkLen
		if len(b) < head {
			return
		}
		at = head + int(binary.BigEndian.Uint16(b[wire.FixedLen+2:]))
	}
	if len(b) < at+tail {
		return
	}
	sum := wire.Sum(wire.Sum(wire.Sum(0, b[:16]), b[20:head]), b[at:at+tail])
	binary.BigEndian.PutUint32(b[16:], sum)
}

// What TestForgeries and the fuzz target send is well formed: a layout that changes must not turn them into noise.
func TestForgeriesAreWellFormed(t *testing.T) {
	r := newRig(t, rigOptions{sealed: true})
	r.connect(engine.DialOptions{})
	for what, frames := range r.forgeries(1) {
		for _, fl := range frames {
			var fr wire.Frame
			b := append([]byte(nil), fl.b[wire.EthLen:]...)
			if resum(b); b[1] == 0 && fr.Decode(b) != nil {
				t.Fatal(fmt.Sprint(what, ": the frame does not decode after resum"))
			}
		}
	}
}
