package sim

import (
	"reflect"
	"testing"
	"time"

	"multiedge/internal/engine"
)

// The same seed is the same run, to the last frame and its time; another seed is another one.
func TestDeterminism(t *testing.T) {
	hashes := map[uint64]uint64{}
	for seed := uint64(1); seed <= 40; seed++ {
		first, err := Swarm(seed, true)
		if err != nil {
			t.Fatal(err)
		}
		again, err := Swarm(seed, true)
		if err != nil {
			t.Fatal(err)
		}
		if first.Hash != again.Hash || !reflect.DeepEqual(first, again) {
			t.Errorf("seed %d:\n%+v\n%+v\nagain: go test ./internal/sim -run TestSwarm -seed %d", seed, first, again, seed)
		}
		if other, twice := hashes[first.Hash]; twice || first.Hash == 0 {
			t.Errorf("seeds %d and %d have the same trace %x", other, seed, first.Hash)
		}
		hashes[first.Hash] = seed
	}
}

// Tracing itself changes nothing.
func TestTraceDoesNotDisturb(t *testing.T) {
	for seed := uint64(1); seed <= 10; seed++ {
		traced, err := Swarm(seed, true)
		if err != nil {
			t.Fatal(err)
		}
		plain, err := Swarm(seed, false)
		if err != nil {
			t.Fatal(err)
		}
		if traced.Sent != plain.Sent || traced.Virtual != plain.Virtual || traced.Ops != plain.Ops {
			t.Errorf("seed %d: %d frames in %v traced, %d in %v not", seed, traced.Sent, traced.Virtual, plain.Sent, plain.Virtual)
		}
	}
}

// Set-up under heavy loss or corruption: 50 of 50 connections within 60 s (faults.md).
func TestConnectUnderLoss(t *testing.T) {
	for seed := uint64(1); seed <= 50; seed++ {
		for _, f := range []Faults{{Loss: 0.3}, {Corrupt: 0.3}, {Dup: 0.5, Jitter: 20 * time.Millisecond}} {
			w := New(Options{Seed: seed, Links: 1 + int(seed%2), Faults: f})
			start := w.Now
			if _, _, err := w.Connect(w.Nodes[0], w.Nodes[1], engine.DialOptions{Timeout: time.Minute}); err != nil {
				t.Errorf("seed %d, %+v: %v", seed, f, err)
			} else if took := w.Now.Sub(start); took > time.Minute {
				t.Errorf("seed %d, %+v: %v", seed, f, took)
			}
		}
	}
}

// Corruption never goes unnoticed: every corrupted frame is counted as rejected, or harmless because it was for nobody (faults.md, clause 2.5).
func TestCorruptionCounted(t *testing.T) {
	w := New(Options{Seed: 3})
	if _, _, err := w.Connect(w.Nodes[0], w.Nodes[1], engine.DialOptions{}); err != nil {
		t.Fatal(err)
	}
	for i := range w.Nodes {
		w.Net[0][i].Corrupt = 0.3
	}
	count := func() (n uint64) {
		for _, x := range w.Nodes {
			c := &x.E.Count
			n += c.RejectedMalformed + c.RejectedHeaderSum + c.RejectedPayloadSum + c.RejectedVersion
		}
		return n
	}
	before := count()
	end := w.Now.Add(14 * time.Second)
	if err := w.Run(time.Minute, func() bool { return w.Now > end }); err != nil {
		t.Fatal(err)
	}
	w.Net[0][0].Corrupt, w.Net[0][1].Corrupt = 0, 0
	end = w.Now.Add(time.Millisecond)
	w.Run(time.Minute, func() bool { return w.Now > end })
	if got := count() - before; got != w.Corrupted || got == 0 {
		t.Errorf("%d frames were corrupted, %d rejected", w.Corrupted, got)
	}
}
