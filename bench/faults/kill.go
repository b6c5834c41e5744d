package faults

import (
	"context"
	"slices"
	"time"
)

// unpinTime is how soon memory of a process that died must be unpinned.
const unpinTime = time.Second

// unpinned waits until a host's daemon has unpinned all registered memory.
func (t *Trial) unpinned(ctx context.Context, host int) {
	took, ok := t.event(ctx, unpinTime, func() bool {
		st, err := t.status(ctx, host)
		return err == nil && st.PinnedBytes == 0
	})
	t.ms("unpinned after", took)
	t.check("unpinned within 1 s", ok, "not after %v", took)
}

// endings returns the ends of connections that a server has seen.
func (a *agent) endings() []Ended {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.ended)
}

// saidWrong returns what a server found that must never happen.
func (a *agent) saidWrong() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.wrongs)
}

// reuse has other clients use the memory that was given back. Their oracle notices every other write to it.
func (t *Trial) reuse(ctx context.Context) error {
	if _, err := t.serve(ctx, 1, "next"); err != nil {
		return err
	}
	c, err := t.work(ctx, "next", MixRandom, 4, 8)
	if err != nil {
		return err
	}
	if err := t.flowing(ctx, c, 10*time.Second); err != nil {
		return err
	}
	w, err := t.measure(ctx, c, "reuse", t.span(time.Second, 300*time.Millisecond))
	if err == nil {
		t.unfailed(w)
	}
	return err
}

func targetKilled(ctx context.Context, t *Trial) error {
	c, err := t.atWork(ctx, MixBulk, 4)
	if err != nil {
		return err
	}
	at := time.Now()
	t.servers[0].kill()
	t.injected("servers killed", 1)
	t.unpinned(ctx, 1)
	w, _, ok := t.until(ctx, c, "killed", 2*time.Second, func(w *Window) bool { return total(w.Errors) > 0 })
	t.ms("peer told after", w.FirstError.Sub(at))
	t.counted("operations that failed", total(w.Errors))
	t.check("the peer gets a typed answer", ok && w.Errors["untyped"] == 0, "%s", counts(w.Errors))
	return t.reuse(ctx)
}

func revoked(ctx context.Context, t *Trial) error {
	c, err := t.atWork(ctx, MixBulk, 2)
	if err != nil {
		return err
	}
	e, err := t.servers[0].ask(ctx, Order{Do: DoRevoke}, func(e *Event) bool { return e.Revoked > 0 })
	if err != nil {
		return err
	}
	t.injected("exports revoked", uint64(e.Revoked))
	w, took, ok := t.until(ctx, c, "revoked", 2*time.Second, func(w *Window) bool {
		return w.Errors["key"] > 0 && w.Reconnects >= uint64(e.Revoked) && w.Ops > 0
	})
	t.ms("anew after", took)
	t.counted("operations that failed", total(w.Errors))
	t.check("operations fail with a key error, clients start anew", ok, "errors %s, %d reconnects", counts(w.Errors),
		w.Reconnects)
	return nil
}
