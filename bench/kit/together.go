package kit

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// Together runs functions, which may end by Check, at the same time. The ctx that they get ends when one of them fails.
// When all have returned it ends by Check with the first failure, if there was one.
func Together(ctx context.Context, work ...func(ctx context.Context)) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var all sync.WaitGroup
	var once sync.Once
	var first error
	for _, f := range work {
		all.Go(func() {
			if err := Try(func() { f(ctx) }); err != nil {
				once.Do(func() { first = err; cancel() })
			}
		})
	}
	all.Wait()
	Check(first)
}

// Each runs f for 0 to n-1, so many at a time, as Together does. None is begun once ctx has ended, which is a failure.
func Each(ctx context.Context, n, workers int, f func(ctx context.Context, i int)) {
	var next atomic.Int64
	var work []func(context.Context)
	for range min(n, workers) {
		work = append(work, func(ctx context.Context) {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				Check(ctx.Err())
				f(ctx, i)
			}
		})
	}
	Together(ctx, work...)
}

// Rest lets time pass, or ends by Check if ctx ends first.
func Rest(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
		Check(ctx.Err())
	}
}
