package sim

import (
	"math"
	"reflect"
	"testing"
	"time"

	"multiedge/internal/engine"
)

// The same seed is the same run, to the last frame and its time; another seed is another one.
func TestDeterminism(t *testing.T) {
	hashes := map[uint64]uint64{}
	for seed := uint64(1); seed <= 40; seed++ {
		first, err := Swarm(seed, Watch{Trace: true})
		must(t, err)
		again, err := Swarm(seed, Watch{Trace: true})
		must(t, err)
		if first.Hash != again.Hash || !reflect.DeepEqual(first, again) {
			t.Errorf("seed %d:\n%+v\n%+v\nagain: go test ./internal/sim -run TestSwarm -seed %d", seed, first, again,
				seed)
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
		traced, err := Swarm(seed, Watch{Trace: true})
		must(t, err)
		plain, err := Swarm(seed, Watch{})
		must(t, err)
		if traced.Tally.Sent != plain.Tally.Sent || traced.Virtual != plain.Virtual || traced.Ops != plain.Ops {
			t.Errorf("seed %d: %d frames in %v traced, %d in %v not", seed, traced.Tally.Sent, traced.Virtual,
				plain.Tally.Sent,
				plain.Virtual)
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

// counting runs two nodes, with nothing but the keep-alives and probes of one idle connection, under faults for a while
// and then without.
func counting(t *testing.T, secure bool, f Faults) (w *World, before [2]engine.Counters) {
	t.Helper()
	w = New(Options{Seed: 3, Secure: secure, KeepAlive: 20 * time.Millisecond})
	t.Cleanup(w.Stop)
	if _, _, err := w.Connect(w.Nodes[0], w.Nodes[1], engine.DialOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := w.Rest(4 * time.Second); err != nil { // the handshake is over and forgotten
		t.Fatal(err)
	}
	f.Delay = w.Net[0][0].Delay
	for i, n := range w.Nodes {
		before[i] = n.E.Count
		w.Net[0][i] = f
	}
	must(t, w.Rest(14*time.Second))
	for i := range w.Nodes {
		w.Net[0][i] = Faults{Delay: f.Delay}
	}
	must(t, w.Rest(time.Millisecond))
	return w, before
}

// Corruption never goes unnoticed: every corrupted frame is counted as rejected (faults.md, clause 2.5).
func TestCorruptionCounted(t *testing.T) {
	for _, secure := range []bool{false, true} {
		w, before := counting(t, secure, Faults{Corrupt: 0.3})
		got := uint64(0)
		for i, n := range w.Nodes {
			for _, c := range []struct {
				sign uint64
				*engine.Counters
			}{{1, &n.E.Count}, {^uint64(0), &before[i]}} {
				// A corrupted number in the clear part can name no session, or a packet that was there before.
				got += c.sign * (c.Reject.RejectedMalformed + c.Reject.RejectedHeaderSum + c.Reject.RejectedPayloadSum +
					c.Reject.RejectedVersion +
					c.Reject.RejectedAuth + c.Reject.UnknownSession + c.Loss.FramesDuplicated)
			}
		}
		// A flipped type or epoch makes a sealed frame one that belongs to nothing, or a clear one of a sealed node one
		// that does: those are ignored.
		least := w.Tally.Corrupted
		if secure {
			least = w.Tally.Corrupted * 9 / 10
		}
		if got < least || got > w.Tally.Corrupted || w.Tally.Corrupted < 100 {
			t.Errorf("secure %v: %d frames were corrupted, %d rejected", secure, w.Tally.Corrupted, got)
		}
	}
}

// The duplicate counter equals what was injected (faults.md).
func TestDuplicatesCounted(t *testing.T) {
	for _, secure := range []bool{false, true} {
		w, before := counting(t, secure, Faults{Dup: 0.3})
		got := w.Nodes[0].E.Count.Loss.FramesDuplicated +
			w.Nodes[1].E.Count.Loss.FramesDuplicated - before[0].Loss.FramesDuplicated - before[1].Loss.FramesDuplicated
		if got != w.Tally.DuplicatedData || got < 100 {
			t.Errorf("secure %v: %d data frames were duplicated, %d counted", secure, w.Tally.DuplicatedData, got)
		}
	}
}

// What must not happen is noticed when it does: each tampering is one that a broken engine might do.
func TestOracleNotices(t *testing.T) {
	tampers := map[string]func(w *swarm, a *area) bool{
		"canary": func(w *swarm, a *area) bool { a.buf[0] = 0; return true },
		"data that nobody sent": func(w *swarm, a *area) bool {
			for _, s := range a.slots {
				if s.n > 0 {
					s.bytes()[0] ^= 0x40
					return true
				}
			}
			return false
		},
		"an event of no connection": func(w *swarm, a *area) bool {
			w.event(a.node, &engine.Event{Kind: engine.EvComplete, Conn: 1})
			return true
		},
		"an operation that no peer answers": func(w *swarm, a *area) bool {
			if len(a.slots) == 0 || a.void {
				return false
			}
			a.node.Grants.RevokeRegion(a.region, math.MaxInt)
			return true
		},
	}
	for name, tamper := range tampers {
		noticed, tried := 0, 0
		for seed := uint64(1); seed <= 20; seed++ {
			o, m := drawMix(seed)
			m.crashes, m.revocations, m.endings, m.flaps, m.partitions = 0, 0, 0, 0, 0
			w := &swarm{world: New(o), mix: m, rng: stream(seed, workloadStream), mail: stream(seed, mailStream),
				dice: stream(seed, crashStream)}
			w.world.After(m.duration/2, func() {
				for _, p := range w.pairs {
					if e := p.end[0]; e.state == endOpen && e.other.flow.open > 0 && tamper(w, e.exports[0]) {
						tried++
						return
					}
				}
			})
			was := tried
			if err := w.run(); err != nil && tried > was {
				noticed++
			}
			w.world.Stop()
		}
		if tried == 0 || noticed*2 < tried {
			t.Errorf("%s: tried in %d worlds, noticed in %d", name, tried, noticed)
		}
	}
}
