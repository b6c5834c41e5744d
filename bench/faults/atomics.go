package faults

import (
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"multiedge/bench/kit"
	"multiedge/edge"
	"multiedge/edge/atomics"
	"multiedge/edge/named"
	"multiedge/internal/lab"
)

// Atomics are performed exactly once (clause 13). Two clients at host 0, in this process, add one to the same counter
// at host 1, with many additions in flight, and record the value that each addition found. The counter must then equal
// the number of additions, and no two additions may have found the same value.
const (
	adders   = 2
	addDepth = 16 // additions in flight of each
)

func atomicScenarios() []Scenario {
	return []Scenario{
		{Name: "atomics across a path cut", Group: Network, Short: true, Set: twoLinks,
			Criteria: "no addition fails; the counter equals the number of completions; no two found the same value",
			Run:      atomicsCut},
		{Name: "atomics, peer's daemon restarted", Group: Host, Short: true,
			Criteria: "no two additions found the same value; the counter is at least the number of completions, at " +
				"most that of completions and failures, and no longer changes; a new counter counts exactly",
			Run: atomicsRestarted},
	}
}

// counter is memory at host 1 that adders add to.
type counter struct {
	memory []byte     // of the export
	name   string     // of the export
	mu     sync.Mutex // guards the rest
	found  []uint64   // by additions that succeeded
	failed map[string]uint64
}

// newCounter exports a counter that is zero. The name must be new: an export outlives its daemon.
func (t *Trial) newCounter(name string) *counter {
	dev := t.open(1)
	r := kit.Get(dev.RegisterContext(t.ctx, guard))
	exported := kit.Get(named.Export(t.ctx, dev, r, name, edge.RemoteAtomic|edge.RemoteRead))
	r = kit.Get(exported.Region(t.ctx)) // stays mapped after a restart of the daemon
	return &counter{name: name, failed: map[string]uint64{}, memory: r.Bytes()}
}

// value returns the counter. Nothing may be in flight.
func (c *counter) value() uint64 { return binary.NativeEndian.Uint64(c.memory) }

// completions is how many additions have succeeded.
func (c *counter) completions() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return uint64(len(c.found))
}

// add adds one until ctx ends or an addition fails. Each addition may take as long as within.
func (c *counter) add(ctx context.Context, r *edge.RemoteRegion, within time.Duration) {
	for ctx.Err() == nil {
		patient, cancel := context.WithTimeout(context.Background(), within)
		was, err := atomics.Add(patient, r, 0, 1)
		cancel()
		c.mu.Lock()
		if err == nil {
			c.found = append(c.found, was)
		} else {
			name, _ := typeOf(err)
			c.failed[name]++
		}
		c.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// adding has two clients add while during runs, and returns when all additions have ended.
func (t *Trial) adding(c *counter, during func()) {
	ctx, cancel := context.WithCancel(t.ctx)
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	for range adders {
		dev := t.open(0)
		r := kit.Get(named.Import(ctx, dev, "host1", c.name))
		all.Go(func() {
			defer dev.Close()
			var movers sync.WaitGroup
			for range addDepth {
				movers.Go(func() { c.add(ctx, r, deadline(t.dead)) })
			}
			movers.Wait()
		})
	}
	t.counts(c)
	during()
}

// counts waits until additions complete that were posted after the call.
func (t *Trial) counts(c *counter) {
	was := c.completions()
	if took, ok := t.event(goesOnTime, func() bool { return c.completions() > was+adders*addDepth }); !ok {
		kit.Fail("%d additions complete within %v: %s", c.completions()-was, took, words(c.failed,
			func(n uint64) string { return fmt.Sprint(n) }))
	}
}

// exact judges the counter. Whether a failed addition was performed is unknown.
func (t *Trial) exact(c *counter) {
	done, failed, v := uint64(len(c.found)), total(c.failed), c.value()
	t.counted("additions", done)
	t.row.Counted[bytesCompared] += 8 * (done + 1)
	found := slices.Sorted(slices.Values(c.found))
	twice := len(found) - len(slices.Compact(found))
	t.check("no two additions found the same", twice == 0, "%d of %d found what another had found", twice, done)
	most := slices.Max(append(found, 0))
	t.check("the counter equals the completions", v >= done && v <= done+failed && most < max(v, 1),
		"it is %d after %d completions and %d failures, the last found %d", v, done, failed, most)
}

// atomicsCut cuts links one after another, in one direction and in both, then all of them, while clients count. The
// wires also lose and repeat frames, and hold some back until they count as lost. So additions that were performed
// arrive again.
func atomicsCut(t *Trial) {
	c := t.newCounter("counter")
	t.setFaults(badWires)
	was := t.labCounters()
	before := t.daemonCounters()
	t.adding(c, func() {
		t.cuts(func() { t.counts(c) })
	})
	now := t.labCounters()
	t.wasCut(now.Cut - was.Cut)
	t.injected("lost", now.Lost-was.Lost)
	after := t.daemonCounters()
	t.tried("segments that came again", after["segments_duplicated"]-before["segments_duplicated"])
	t.check("no addition fails", len(c.failed) == 0, "%s", counts(c.failed))
	t.exact(c)
	t.setFaults(lab.Faults{})
}

// wasCut enters how many frames were cut, and judges that some were.
func (t *Trial) wasCut(frames uint64) {
	t.injected("cut", frames)
	if frames == 0 {
		t.row.U[3].fail("no frame was cut: the scenario proves nothing")
	}
}

// cuts cuts each of two links in one direction and in both, then both links, one cut after another. It calls healed
// after each.
func (t *Trial) cuts(healed func()) {
	cuts := []func(on bool){
		func(on bool) { t.cut(1, on) }, func(on bool) { t.cut(0, on) },
		func(on bool) { t.cutTowards(0, 0, on) }, func(on bool) { t.cutTowards(1, 1, on) },
		t.cutAll,
		func(on bool) { t.cutTowards(0, 0, on); t.cutTowards(1, 0, on) },
	}
	for i := range t.many(20, len(cuts)) {
		cut := cuts[i%len(cuts)]
		cut(true)
		t.pause(150 * time.Millisecond)
		cut(false)
		healed()
	}
}

// atomicsRestarted kills the daemon that performs additions and starts it again.
func atomicsRestarted(t *Trial) {
	old := t.newCounter("counter")
	t.adding(old, func() {
		t.restarted(1)
	})
	t.counted("additions that failed", total(old.failed))
	want := maps.Clone(old.failed)
	delete(want, "peer-down")
	t.check("additions fail with peer-down", old.failed["peer-down"] > 0 && len(want) == 0, "%s", counts(old.failed))
	t.exact(old)
	v := old.value()
	next := t.newCounter("new counter")
	t.adding(next, func() { t.counts(next) })
	t.check("no addition to a new counter fails", len(next.failed) == 0, "%s", counts(next.failed))
	t.exact(next)
	t.check("the old counter stays", old.value() == v, "it was %d, and is %d", v, old.value())
}
