package shard

import (
	"crypto/rand"
	"fmt"
	"testing"
	"time"

	"multiedge/internal/engine"
	"multiedge/internal/frame"
	"multiedge/internal/mono"
	"multiedge/internal/secure"
	"multiedge/internal/wire"
	"multiedge/regmem"
)

// Strangers have what they saved up, then their share; what a step waited for a core is not charged.
func TestHandshakerBudget(t *testing.T) {
	b := budget{left: strangerBurst}
	now, steps := mono.Time(time.Hour), 0
	run := func(d time.Duration) (n int) {
		for end := now.Add(d); now < end; {
			if wait := b.wait(now); wait > 0 {
				now = now.Add(wait)
				continue
			}
			now = now.Add(400 * time.Microsecond)
			b.spend(400 * time.Microsecond)
			n++
		}
		return n
	}
	if steps = run(10 * time.Second); steps < 600 || steps > 660 {
		t.Errorf("%d steps of 400 us in the first 10 s, want 250 at once and 39 a second", steps)
	}
	if steps = run(10 * time.Second); steps < 370 || steps > 400 {
		t.Errorf("%d steps in the next 10 s, want 39 a second", steps)
	}
	b.spend(time.Hour)
	if wait := b.wait(now); wait > 2*strangerShare*strangerStep {
		t.Errorf("a step that waited for a core costs %v", wait)
	}
}

// flooded is an engine to which n strangers have said a first flight each, with a dial of its own under way.
func flooded(t *testing.T, n int) *engine.Endpoint {
	key, far := secure.NewPrivateKey(), secure.NewPrivateKey()
	peers, err := secure.NewPeers(secure.Peer{Name: "far", Key: far.Public()})
	if err != nil {
		t.Fatal(err)
	}
	node := secure.NewNode(key, peers)
	e, err := engine.New(engine.Config{Node: node.Public.Node(), Name: "near", Epoch: 1, Seed: 1,
		Grants: regmem.NewTable(rand.Reader), Secure: node, Deferred: true})
	if err != nil {
		t.Fatal(err)
	}
	now := mono.Time(time.Hour)
	if err := e.SetLink(now, 0, engine.LinkConfig{Name: "l", Addr: frame.Ether([6]byte{2, 1}), MTU: 1500}); err != nil {
		t.Fatal(err)
	}
	var batch engine.Batches
	batch.Set(0, engine.NewBatch(512, 1500))
	frame := func(src [6]byte, kind wire.Type, number uint32, body []byte) []byte {
		b := make([]byte, wire.TailStart)
		copy(b, []byte{2, 1, 0, 0, 0, 0})
		copy(b[6:], src[:])
		b[12], b[13] = wire.EtherType>>8, wire.EtherType&0xff
		wire.Finish(b[wire.EthLen:], &wire.Header{Type: kind, Session: number}, body)
		return append(b, body...)
	}
	answer := func(want wire.Type, number uint32) (f wire.Frame) {
		for batch.Reset(); e.PollTransmit(now, &batch) > 0; batch.Reset() {
			for _, sent := range batch.All() {
				if f.Decode(sent.Head[wire.EthLen:]) == nil && f.Type == want && f.Session == number {
					f.Tail = append([]byte(nil), f.Tail...)
					return f
				}
			}
		}
		return wire.Frame{}
	}
	forger := secure.NewNode(secure.NewPrivateKey(), peers).Dial(secure.Peer{Name: "near", Key: key.Public()}, nil)
	defer forger.Close()
	for k := range n {
		now = now.Add(time.Millisecond)
		src := [6]byte{2, 6, byte(k >> 8), byte(k)}
		in := wire.Init{Hello: wire.Hello{Node: far.Public().Node(), Epoch: 1, Flags: wire.HelloSecure, MTU: 1500,
			RxSlots: 9}, Session: uint32(k + 1)}
		e.Handle(now, 0, engine.Whole(frame(src, wire.TypeInit, 0, in.AppendTo(nil))))
		in.Cookie = answer(wire.TypeRetry, in.Session).Tail
		e.Handle(now, 0, engine.Whole(frame(src, wire.TypeInit, 0, in.AppendTo(nil))))
		var ack wire.Init
		if f := answer(wire.TypeInitAck, in.Session); f.Type != wire.TypeInitAck || ack.Decode(f.Tail) != nil {
			continue // there is no room
		}
		c := wire.Crypto{Data: forger.Out(secure.Initial)}
		e.Handle(now, 0, engine.Whole(frame(src, wire.TypeCrypto, ack.Session, c.AppendTo(nil))))
	}
	return e
}

// However many strangers come back with their cookies, few of their steps wait, none of them before one of ours, and
// all ends when the shard does.
func TestHandshakerFlood(t *testing.T) {
	e := flooded(t, 300)
	if e.Count.Reject.RejectedNoRoom < 280 {
		t.Errorf("%d of 300 strangers were turned away before anything was computed", e.Count.Reject.RejectedNoRoom)
	}
	computed := 0
	k := newHandshaker(func(*engine.Step) error { computed++; return nil })
	k.feed(e)
	if len(k.own) != 0 || len(k.strangers) != cap(k.strangers) || !e.StepWaits(true) {
		t.Fatalf("%d and %d steps are passed on", len(k.own), len(k.strangers))
	}
	k.budget = budget{left: -time.Hour} // spent
	const ours = 16
	done := make(chan *engine.Step, ours+cap(k.strangers))
	k.done = func(st *engine.Step) error { done <- st; return nil }
	mine := map[*engine.Step]bool{}
	for range ours {
		st := &engine.Step{}
		mine[st] = true
		k.own <- st
	}
	k.start()
	for range ours {
		if !mine[<-done] {
			t.Fatal("a stranger's step was computed though their share is spent")
		}
	}
	k.stop(mono.Time(2*time.Hour), e)
	if e.StepWaits(true) || e.StepWaits(false) || computed != 0 {
		t.Error(fmt.Sprint("steps are left after the end; ", computed))
	}
}
