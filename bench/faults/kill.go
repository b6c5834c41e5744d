package faults

import (
	"slices"
	"time"
)

// unpinTime is how soon memory of a process that died must be unpinned.
const unpinTime = time.Second

// unpinned waits until a host's daemon has unpinned all registered memory.
func (t *Trial) unpinned(host int) {
	took, ok := t.event(unpinTime, func() bool { return t.status(host).PinnedBytes == 0 })
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
func (t *Trial) reuse() {
	t.serve(1, "next")
	c := t.work("next", MixRandom, 4, 8)
	t.flowing(c, 10*time.Second)
	t.unfailed(t.measure(c, "reuse", t.span(time.Second, 300*time.Millisecond)))
}

func targetKilled(t *Trial) {
	c := t.atWork(MixBulk, 4)
	at := time.Now()
	t.servers[0].kill()
	t.injected("servers killed", 1)
	t.unpinned(1)
	w, _, ok := t.until(c, "killed", 2*time.Second, func(w *Window) bool { return total(w.Errors) > 0 })
	t.ms("peer told after", w.FirstError.Sub(at))
	t.counted("operations that failed", total(w.Errors))
	t.check("the peer gets a typed answer", ok && w.Errors["untyped"] == 0, "%s", counts(w.Errors))
	t.reuse()
}

func revoked(t *Trial) {
	c := t.atWork(MixBulk, 2)
	e := t.servers[0].ask(Order{Do: DoRevoke}, func(e *Event) bool { return e.Revoked > 0 })
	t.injected("exports revoked", uint64(e.Revoked))
	w, took, ok := t.until(c, "revoked", 2*time.Second, func(w *Window) bool {
		return w.Errors["key"] > 0 && w.Reconnects >= uint64(e.Revoked) && w.Ops > 0
	})
	t.ms("anew after", took)
	t.counted("operations that failed", total(w.Errors))
	t.check("operations fail with a key error, clients start anew", ok, "errors %s, %d reconnects", counts(w.Errors),
		w.Reconnects)
}
