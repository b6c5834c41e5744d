package kit

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
)

// What works together ends together: the first failure ends the others, and is the one that is told.
func TestTogether(t *testing.T) {
	wrong := errors.New("wrong")
	var ended atomic.Bool
	err := Try(func() {
		Together(t.Context(), func(context.Context) { Check(wrong) }, func(ctx context.Context) {
			<-ctx.Done()
			ended.Store(true)
			Check(ctx.Err())
		})
	})
	if !errors.Is(err, wrong) || errors.Is(err, context.Canceled) || !ended.Load() {
		t.Errorf("%v; the other has ended: %v", err, ended.Load())
	}
	if err := Try(func() { Together(t.Context(), func(context.Context) {}, func(context.Context) {}) }); err != nil {
		t.Error(err)
	}
}

// Each number comes once, no more at a time than asked for, and none after a failure or the end of ctx.
func TestEach(t *testing.T) {
	const n, workers = 1000, 4
	var times [n]atomic.Int32
	var now, most atomic.Int32
	err := Try(func() {
		Each(t.Context(), n, workers, func(_ context.Context, i int) {
			for at, m := now.Add(1), most.Load(); at > m && !most.CompareAndSwap(m, at); m = most.Load() {
			}
			times[i].Add(1)
			now.Add(-1)
		})
	})
	for i := range times {
		if times[i].Load() != 1 {
			t.Errorf("%d came %d times", i, times[i].Load())
		}
	}
	if err != nil || most.Load() > workers {
		t.Errorf("%v, %d at a time", err, most.Load())
	}
	var begun atomic.Int32
	err = Try(func() {
		Each(t.Context(), n, 1, func(context.Context, int) { begun.Add(1); Fail("wrong") })
	})
	over, cancel := context.WithCancel(t.Context())
	cancel()
	late := Try(func() { Each(over, n, workers, func(context.Context, int) { begun.Add(1) }) })
	if err == nil || late == nil || begun.Load() != 1 {
		t.Errorf("%v, %v, %d begun", err, late, begun.Load())
	}
}
