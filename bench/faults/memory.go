package faults

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"multiedge/bench"
	"multiedge/edge"
	"multiedge/internal/lab"
)

// Limits of the scenarios below, and the sizes that clients ask for.
const (
	limitBytes = 8 << 20
	fitsBytes  = 2 << 20
	overBytes  = 32 << 20
	groupBytes = 128 << 20 // of a control group, the daemon's own memory included
)

func memoryScenarios() []Scenario {
	return []Scenario{
		{
			Name: "RLIMIT_MEMLOCK without CAP_IPC_LOCK", Group: Host,
			Criteria: "excess registrations fail with a typed error and leave nothing pinned; a client that already " +
				"has memory goes on", Short: true,
			Run: func(ctx context.Context, t *Trial) error {
				if err := t.cluster.ConfineDaemon(ctx, 0, bench.CommandConfined, fmt.Sprint(limitBytes)); err != nil {
					return err
				}
				return t.besideRefusals(ctx, "memlock")
			},
		},
		{
			Name: "memory limit of a control group", Group: Host,
			Criteria: "excess registrations fail with a typed error and leave nothing pinned; the kernel kills no " +
				"process; other clients go on",
			// By default the quotas follow the group and refuse first.
			Set: func(s *bench.ClusterSpec) { s.Limits += "pinned = \"1GiB\"\npinned_total = \"1GiB\"\n" },
			Run: groupLimit,
		},
		{
			Name: "quota of pinned memory", Group: Host,
			Criteria: "excess registrations fail with a typed error and leave nothing pinned; a client that already " +
				"has memory goes on",
			Set: func(s *bench.ClusterSpec) { s.Limits += fmt.Sprintf("pinned = %d\n", limitBytes) },
			Run: func(ctx context.Context, t *Trial) error { return t.besideRefusals(ctx, "limit") },
		},
	}
}

// besideRefusals runs a client with little memory beside another of the same user, whose registrations beyond the limit
// are refused.
func (t *Trial) besideRefusals(ctx context.Context, want string) error {
	c, err := t.pair(ctx, MixSmall, 2, 8)
	if err != nil {
		return err
	}
	if err := t.refused(ctx, want, overBytes); err != nil {
		return err
	}
	return t.goesOn(ctx, c)
}

// refused registers memory that fits, then too much, then memory that fits again: in this process, over the control
// socket of host 0.
func (t *Trial) refused(ctx context.Context, want string, over int) error {
	dev, err := edge.Open(ctx, edge.Config{Socket: t.cluster.Socket(0)})
	if err != nil {
		return err
	}
	defer dev.Close()
	small, err := dev.RegisterContext(ctx, fitsBytes)
	if err != nil {
		return err
	}
	was, err := t.held(ctx, 0)
	if err != nil {
		return err
	}
	for range 3 {
		_, err := dev.RegisterContext(ctx, over)
		t.injected("registrations beyond the limit", 1)
		t.typed(err, want)
	}
	var now held
	_, ok := t.event(ctx, leakTime, func() bool { // clients that asked before may not have ended yet
		now, err = t.held(ctx, 0)
		return err == nil && now.Pinned == was.Pinned && now.Locked <= was.Locked &&
			now.Descriptors <= was.Descriptors && now.Regions == was.Regions
	})
	if err != nil {
		return err
	}
	t.check("refused registrations leave nothing pinned", ok, "%v", now.exceeds(was))
	t.row.Measured["pinned MiB"], t.row.Measured["locked MiB"] = float64(now.Pinned)/(1<<20),
		float64(now.Locked)/(1<<20)
	again, err := dev.RegisterContext(ctx, fitsBytes)
	t.check("registrations that fit still succeed", err == nil, "%v", err)
	if err == nil {
		err = again.Close()
	}
	if err != nil {
		return err
	}
	return small.Close()
}

func (t *Trial) typed(err error, want string) {
	name, _ := typeOf(err)
	if name == want {
		t.counted("typed refusals", 1)
	}
	t.check("the refusal has its type", name == want, "%q (%v), want %q", name, err, want)
}

// groupLimit runs the daemon of host 0 in a control group, with one client at work while others ask for more memory
// than the group may hold.
func groupLimit(ctx context.Context, t *Trial) error {
	g, c, err := t.grouped(ctx)
	if err != nil {
		return err
	}
	if err := t.refused(ctx, "memlock", 2*groupBytes); err != nil {
		return err
	}
	if err := t.filled(ctx, g); err != nil {
		return err
	}
	return t.spared(ctx, c, g)
}

// grouped runs the daemon of host 0 in a control group, with one client at work.
func (t *Trial) grouped(ctx context.Context) (*lab.MemoryGroup, *agent, error) {
	g, err := lab.NewMemoryGroup(groupBytes)
	if err != nil {
		return nil, nil, err
	}
	t.after = append(t.after, g.Close)
	if err := t.cluster.ConfineDaemon(ctx, 0, bench.CommandGrouped, g.Dir()); err != nil {
		return nil, nil, err
	}
	c, err := t.atWork(ctx, MixRandom, 2)
	return g, c, err
}

// spared judges a client beside others that filled a control group: it goes on, and the kernel kills no process of the
// group.
func (t *Trial) spared(ctx context.Context, c *agent, g *lab.MemoryGroup) error {
	w, err := t.mark(ctx, c, "meanwhile")
	if err != nil {
		return err
	}
	t.unfailed(w)
	t.check("the other client goes on", w.Ops > 0, "nothing completes")
	killed, err := g.Killed()
	t.check("the kernel kills no process", err == nil && killed == 0, "%d killed, %v", killed, err)
	return err
}

// filled has several clients register at once until each is refused. Their pieces differ in size; the small ones reach
// the limit.
func (t *Trial) filled(ctx context.Context, g *lab.MemoryGroup) error {
	before, err := g.Used()
	if err != nil {
		return err
	}
	sizes := []int{64 << 10, 512 << 10, 3 << 20, 20 << 20}
	ends := make([]error, len(sizes)) // how each was refused
	var devices []*edge.Device
	defer func() {
		for _, dev := range devices {
			dev.Close()
		}
	}()
	var all sync.WaitGroup
	for i, size := range sizes {
		dev, err := edge.Open(ctx, edge.Config{Socket: t.cluster.Socket(0)})
		if err != nil {
			return err
		}
		devices = append(devices, dev)
		all.Go(func() {
			for n := 0; n <= groupBytes && ends[i] == nil; n += size {
				_, ends[i] = dev.RegisterContext(ctx, size)
			}
		})
	}
	all.Wait()
	t.injected("clients that register until refused", uint64(len(sizes)))
	for _, err := range ends {
		t.typed(err, "memlock")
		t.check("the refusal names the group", err != nil && strings.Contains(err.Error(), g.Dir()), "%v", err)
	}
	after, err := g.Used()
	if err != nil {
		return err
	}
	t.row.Measured["group MiB, full"], t.row.Measured["group MiB, limit"] = float64(after)/(1<<20), groupBytes>>20
	t.check("the group is charged for the memory", after > before && after <= groupBytes,
		"the group used %d bytes, then %d", before, after)
	for _, dev := range devices {
		err = errors.Join(err, dev.Close())
	}
	devices = nil
	return err
}
