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

// Limits of the scenarios below, and what is asked for.
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
			Criteria: "typed refusal; nothing half pinned; a client that has its memory goes on", Short: true,
			Run: func(ctx context.Context, t *Trial) error {
				if err := t.cluster.ConfineDaemon(ctx, 0, bench.CommandConfined, fmt.Sprint(limitBytes)); err != nil {
					return err
				}
				return t.besideRefusals(ctx, "memlock")
			},
		},
		{
			Name: "memory limit of a control group", Group: Host,
			Criteria: "typed refusal; nothing half pinned; the kernel kills nobody; other clients go on",
			// By default the quotas follow the group and refuse first.
			Set: func(s *bench.ClusterSpec) { s.Limits += "pinned = \"1GiB\"\npinned_total = \"1GiB\"\n" },
			Run: groupLimit,
		},
		{
			Name: "quota of pinned memory", Group: Host,
			Criteria: "typed refusal; nothing half pinned; a client that has its memory goes on",
			Set:      func(s *bench.ClusterSpec) { s.Limits += fmt.Sprintf("pinned = %d\n", limitBytes) },
			Run:      func(ctx context.Context, t *Trial) error { return t.besideRefusals(ctx, "limit") },
		},
	}
}

// besideRefusals has a client work with little memory while another of the same user is refused more than there may be.
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

// refused registers what fits, then too much, then what fits again, in this process by the control socket of host 0.
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
	_, ok := t.event(ctx, leakTime, func() bool { // those who asked before may still be going
		now, err = t.held(ctx, 0)
		return err == nil && now.Pinned == was.Pinned && now.Locked <= was.Locked &&
			now.Descriptors <= was.Descriptors && now.Regions == was.Regions
	})
	if err != nil {
		return err
	}
	t.check("nothing half pinned", ok, "%v", now.exceeds(was))
	t.row.Measured["pinned MiB"], t.row.Measured["locked MiB"] = float64(now.Pinned)/(1<<20),
		float64(now.Locked)/(1<<20)
	again, err := dev.RegisterContext(ctx, fitsBytes)
	t.check("what fits is still granted", err == nil, "%v", err)
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
	t.check("typed refusal", name == want, "%q (%v), want %q", name, err, want)
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

// spared judges that a client goes on beside what filled a group, of which the kernel kills nobody.
func (t *Trial) spared(ctx context.Context, c *agent, g *lab.MemoryGroup) error {
	w, err := t.mark(ctx, c, "meanwhile")
	if err != nil {
		return err
	}
	t.unfailed(w)
	t.check("the other client goes on", w.Ops > 0, "nothing completes")
	killed, err := g.Killed()
	t.check("the kernel kills nobody", err == nil && killed == 0, "%d killed, %v", killed, err)
	return err
}

// filled has several clients register until each is refused, all at once, in pieces of several sizes, small ones among
// them: there the limit is reached.
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
	t.injected("clients that take what there is", uint64(len(sizes)))
	for _, err := range ends {
		t.typed(err, "memlock")
		t.check("the refusal names the group", err != nil && strings.Contains(err.Error(), g.Dir()), "%v", err)
	}
	after, err := g.Used()
	if err != nil {
		return err
	}
	t.row.Measured["group MiB, full"], t.row.Measured["group MiB, limit"] = float64(after)/(1<<20), groupBytes>>20
	t.check("memory is the group's", after > before && after <= groupBytes, "the group used %d bytes, then %d", before,
		after)
	for _, dev := range devices {
		err = errors.Join(err, dev.Close())
	}
	devices = nil
	return err
}
