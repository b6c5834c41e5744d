package daemon

import (
	"strings"
	"testing"
	"time"

	"multiedge/internal/config"
	"multiedge/internal/engine"
	"multiedge/internal/inspect"
	"multiedge/internal/mono"
	"multiedge/internal/wire"
)

// ownHello is a Hello of another host with the identity of d.
func ownHello(d *Daemon) []byte {
	h := wire.Hello{Node: d.node, Epoch: d.epoch + 2, RxSlots: 7, MTU: 1500, Name: []byte("copy")}
	tail := h.AppendTo(nil)
	b := make([]byte, wire.TailStart)
	copy(b, []byte{255, 255, 255, 255, 255, 255, 2, 6, 6, 6, 6, 6, wire.EtherType >> 8, wire.EtherType & 0xff})
	wire.Finish(b[wire.EthLen:], &wire.Header{Type: wire.TypeHello}, tail)
	return append(b, tail...)
}

// A host with this one's identity is in the log, in the counters and in what doctor says, with where it is and what to
// do.
func TestAnotherHostOfThisIdentity(t *testing.T) {
	for security, want := range map[string][]string{
		config.Encrypted: {"claims", "copy of this node's key", "not authenticated", "edgectl key new "},
		config.Plaintext: {"claims", "node_id", "machine id"},
	} {
		t.Run(security, func(t *testing.T) {
			start, log := starter(t)
			cfg := plaintext(config.Config{Name: "alpha"})
			if security == config.Encrypted {
				cfg = keyed(t, cfg)
				want = append(want, cfg.KeyFile)
			}
			d, err := start(cfg)
			must(t, err)
			doctor := func() string { return about(d.shown.inspector.Facts(snapshot(t, d)), "identity") }
			if said := doctor(); said != "" {
				t.Errorf("doctor says of a node that is alone: %s", said)
			}
			log.take()
			if err := d.shard.Do(func(now mono.Time) {
				now = now.Add(time.Minute) // nothing of an earlier run is under way any more
				for range 100 {
					d.shard.Engine().Handle(now, 0, engine.Whole(ownHello(d)))
				}
			}); err != nil {
				t.Fatal(err)
			}
			d.shard.Do(func(mono.Time) {}) // another iteration: the event of the first has been handled
			said, advice := log.take(), doctor()
			for _, word := range append(want, "02:06:06:06:06:06", "mem") {
				if !strings.Contains(said, word) || !strings.Contains(advice, word) {
					t.Errorf("%q is not said\nlog: %s\ndoctor: %s", word, said, advice)
				}
			}
			if strings.Count(said, "claims") != 1 || !strings.Contains(said, "level=WARN") || !strings.HasPrefix(advice,
				inspect.FindingProblem) {
				t.Errorf("log: %s\ndoctor: %s", said, advice)
			}
			if snap, err := d.Snapshot(); err != nil || snap.Counters.Trust.IdentityClaims != 100 {
				t.Errorf("%+v, %v", snap.Counters, err)
			}
		})
	}
}
