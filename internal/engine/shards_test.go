package engine_test

import (
	"testing"
	"time"

	"multiedge/internal/engine"
	"multiedge/internal/wire"
	"multiedge/regmem"
)

// A frame that the kernel put into another shard's queue is left alone: a Reset would end a session that the right
// shard has (clause 4.6).
func TestFramesOfOtherShardsAreLeftAlone(t *testing.T) {
	src := counting(1)
	e, err := engine.New(engine.Config{Node: engine.NodeID{1}, Name: "n", Epoch: 1, Grants: regmem.NewTable(&src),
		Shard: 1, Shards: 3})
	if err != nil {
		t.Fatal(err)
	}
	if err := e.SetLink(1, 0, engine.LinkConfig{Name: "edge0", MTU: 1500, RxSlots: 64}); err != nil {
		t.Fatal(err)
	}
	batch := batches(1, 1500)
	resets := func(session uint32) (n int) {
		frame := make([]byte, wire.TailStart)
		copy(frame[12:], []byte{0x88, 0xb5})
		wire.Finish(frame[wire.EthLen:], &wire.Header{Type: wire.TypeData, Session: session, PN: 1}, nil)
		e.Handle(1, 0, engine.Whole(frame))
		for e.PollTransmit(1, batch) > 0 {
			for _, f := range batch.All() {
				if typeOf(f.Head) == wire.TypeReset {
					n++
				}
			}
			batch.Reset()
		}
		return n
	}
	for session := range uint32(9) {
		if n := resets(session); (n > 0) != (session%3 == 1) {
			t.Errorf("%d Resets answer a frame of session %d", n, session)
		}
	}
	if e.Count.Reject.UnknownSession != 9 {
		t.Errorf("%+v", e.Count)
	}
}

// How many shards a peer has is believed from its handshake: a stranger who says that there are more sends no request
// to one that does not exist.
func TestForgedLastShard(t *testing.T) {
	r := newRig(t, rigOptions{sealed: true})
	r.connect(engine.DialOptions{})
	r.settle()
	h := helloOf(1, 0, 1500, 1)
	h.Last = wire.MaxShards - 1
	r.n[0].e.Handle(r.now, 0, engine.Whole(raw(macOf(1, 0), macOf(0, 0), wire.Header{Type: wire.TypeHello},
		h.AppendTo(nil))))
	id, err := r.n[0].e.Dial(r.now, "node1", "no such service", engine.DialOptions{})
	if err != nil {
		t.Fatal(err)
	}
	r.must("an answer", 100*time.Millisecond, func() bool { _, over := r.n[0].closed[id]; return over })
	if ev := r.n[0].closed[id]; ev.Status != engine.StatusNoService {
		t.Errorf("%v: %s", ev.Status, ev.Text)
	}
}

// A peer that comes back with fewer shards is reached over IP, where nobody listens at the ports of the others. A dial
// that nobody answers ends, and the next one asks its first shard (clause 21.11).
func TestPeerComesBackWithFewerShards(t *testing.T) {
	o := rigOptions{sealed: true, shard: [2]int{1, 0}, shards: [2]int{2, 2}}
	r := newIPNet(t, 1, o)
	c := r.connect(engine.DialOptions{})
	r.settle()
	ends := func(id engine.ConnID) {
		t.Helper()
		r.must("the end", time.Minute, func() bool { _, over := r.n[0].closed[id]; return over })
	}
	r.lose = func(int, *flight) bool { return true } // off for so long that its session is forgotten
	ends(c[0])
	r.lose = nil
	o.shards[1] = 1
	r.boot(1, 2, o)
	r.n[1].e.RemoveLink(r.now, 0)
	r.ipLinks(1)
	id, err := r.n[0].e.Dial(r.now, "node1", "test", engine.DialOptions{Timeout: 500 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	ends(id)
	if ev := r.n[0].closed[id]; ev.Status != engine.StatusPeerDown {
		t.Errorf("a dial of a shard that is gone ends with %v: %s", ev.Status, ev.Text)
	}
	r.write(0, r.connect(engine.DialOptions{}), 1000, 1, time.Second)
}
