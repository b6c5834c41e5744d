package faults

import (
	"context"
	"fmt"

	"multiedge/bench"
	"multiedge/edge"
)

// Limits of the scenarios below, and what is asked for.
const (
	limitBytes = 8 << 20
	fitsBytes  = 2 << 20
	overBytes  = 32 << 20
)

func memoryScenarios() []Scenario {
	return []Scenario{
		{
			Name: "RLIMIT_MEMLOCK without CAP_IPC_LOCK", Group: Host, Criteria: "typed refusal; nothing half pinned", Short: true,
			Run: func(ctx context.Context, t *Trial) error {
				if err := t.cluster.ConfineDaemon(ctx, 0, fmt.Sprint(limitBytes)); err != nil {
					return err
				}
				return t.refused(ctx, "memlock")
			},
		},
		{
			Name: "quota of pinned memory", Group: Host, Criteria: "typed refusal; nothing half pinned",
			Set: func(s *bench.ClusterSpec) { s.Limits += fmt.Sprintf("pinned = %d\n", limitBytes) },
			Run: func(ctx context.Context, t *Trial) error { return t.refused(ctx, "limit") },
		},
	}
}

// refused registers what fits, then too much, then what fits again, in this process by the control socket of host 0.
func (t *Trial) refused(ctx context.Context, want string) error {
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
		_, err := dev.RegisterContext(ctx, overBytes)
		t.injected("registrations beyond the limit", 1)
		name, _ := typeOf(err)
		if name == want {
			t.counted("typed refusals", 1)
		}
		t.check("typed refusal", name == want, "%q (%v), want %q", name, err, want)
	}
	now, err := t.held(ctx, 0)
	if err != nil {
		return err
	}
	t.check("nothing half pinned", now.Pinned == was.Pinned && now.Locked <= was.Locked && now.Descriptors <= was.Descriptors && now.Regions == was.Regions,
		"%v", now.exceeds(was))
	t.row.Measured["pinned MiB"], t.row.Measured["locked MiB"] = float64(now.Pinned)/(1<<20), float64(now.Locked)/(1<<20)
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
