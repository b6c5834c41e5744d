package faults

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"multiedge/edge"
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
	dev    *edge.Device
	region *edge.Region
	name   string     // of the export
	mu     sync.Mutex // guards the rest
	found  []uint64   // by additions that succeeded
	failed map[string]uint64
}

// newCounter exports a counter that is zero. The name must be new: an export outlives its daemon.
func (t *Trial) newCounter(ctx context.Context, name string) (*counter, error) {
	c := &counter{name: name, failed: map[string]uint64{}}
	var err error
	if c.dev, err = edge.Open(ctx, edge.Config{Socket: t.cluster.Socket(1)}); err != nil {
		return nil, err
	}
	if c.region, err = c.dev.RegisterContext(ctx, guard); err == nil {
		_, err = c.dev.Export(ctx, c.region, name, edge.RemoteAtomic|edge.RemoteRead)
	}
	if err != nil {
		c.dev.Close()
		return nil, err
	}
	return c, nil
}

// value returns the counter. Nothing may be in flight.
func (c *counter) value() uint64 { return binary.NativeEndian.Uint64(c.region.Bytes()) }

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
		was, err := r.FetchAdd(patient, 0, 1)
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
func (t *Trial) adding(ctx context.Context, c *counter, during func() error) error {
	ctx, cancel := context.WithCancel(ctx)
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	for range adders {
		dev, err := edge.Open(ctx, edge.Config{Socket: t.cluster.Socket(0)})
		if err != nil {
			return err
		}
		r, err := dev.Import(ctx, "host1", c.name)
		if err != nil {
			dev.Close()
			return err
		}
		all.Go(func() {
			defer dev.Close()
			var movers sync.WaitGroup
			for range addDepth {
				movers.Go(func() { c.add(ctx, r, deadline(t.dead)) })
			}
			movers.Wait()
		})
	}
	if err := t.counts(ctx, c); err != nil {
		return err
	}
	return during()
}

// counts waits until additions complete that were posted after the call.
func (t *Trial) counts(ctx context.Context, c *counter) error {
	was := c.completions()
	if took, ok := t.event(ctx, goesOnTime, func() bool { return c.completions() > was+adders*addDepth }); !ok {
		return fmt.Errorf("%d additions complete within %v: %s", c.completions()-was, took, words(c.failed,
			func(n uint64) string { return fmt.Sprint(n) }))
	}
	return nil
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
func atomicsCut(ctx context.Context, t *Trial) error {
	c, err := t.newCounter(ctx, "counter")
	if err != nil {
		return err
	}
	defer c.dev.Close()
	if err := t.setFaults(badWires); err != nil {
		return err
	}
	was, err := t.labCounters()
	if err != nil {
		return err
	}
	before, err := t.daemonCounters(ctx)
	if err != nil {
		return err
	}
	err = t.adding(ctx, c, func() error { return t.cuts(ctx, func() error { return t.counts(ctx, c) }) })
	if err != nil {
		return err
	}
	now, err := t.labCounters()
	if err != nil {
		return err
	}
	t.wasCut(now.Cut - was.Cut)
	t.injected("lost", now.Lost-was.Lost)
	after, err := t.daemonCounters(ctx)
	if err != nil {
		return err
	}
	t.tried("segments that came again", after["segments_duplicated"]-before["segments_duplicated"])
	t.check("no addition fails", len(c.failed) == 0, "%s", counts(c.failed))
	t.exact(c)
	return t.setFaults(lab.Faults{})
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
func (t *Trial) cuts(ctx context.Context, healed func() error) error {
	l := t.cluster.Lab()
	cuts := []func(on bool) error{
		l.Link(1).Cut, l.Link(0).Cut,
		func(on bool) error { return l.Link(0).CutTowards(0, on) },
		func(on bool) error { return l.Link(1).CutTowards(1, on) },
		t.cutAll,
		func(on bool) error { return errors.Join(l.Link(0).CutTowards(0, on), l.Link(1).CutTowards(0, on)) },
	}
	for i := range t.many(20, len(cuts)) {
		cut := cuts[i%len(cuts)]
		if err := cut(true); err != nil {
			return err
		}
		if !sleep(ctx, 150*time.Millisecond) {
			return ctx.Err()
		}
		if err := cut(false); err != nil {
			return err
		}
		if err := healed(); err != nil {
			return err
		}
	}
	return nil
}

// atomicsRestarted kills the daemon that performs additions and starts it again.
func atomicsRestarted(ctx context.Context, t *Trial) error {
	old, err := t.newCounter(ctx, "counter")
	if err != nil {
		return err
	}
	defer old.dev.Close()
	err = t.adding(ctx, old, func() error {
		t.killDaemon(1)
		t.injected("daemons killed", 1)
		return t.cluster.StartDaemon(ctx, 1)
	})
	if err != nil {
		return err
	}
	t.counted("additions that failed", total(old.failed))
	want := maps.Clone(old.failed)
	delete(want, "peer-down")
	t.check("additions fail with peer-down", old.failed["peer-down"] > 0 && len(want) == 0, "%s", counts(old.failed))
	t.exact(old)
	v := old.value()
	next, err := t.newCounter(ctx, "new counter")
	if err != nil {
		return err
	}
	defer next.dev.Close()
	if err := t.adding(ctx, next, func() error { return t.counts(ctx, next) }); err != nil {
		return err
	}
	t.check("no addition to a new counter fails", len(next.failed) == 0, "%s", counts(next.failed))
	t.exact(next)
	t.check("the old counter stays", old.value() == v, "it was %d, and is %d", v, old.value())
	return nil
}
