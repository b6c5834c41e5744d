package shard

import (
	"sync"
	"time"

	"multiedge/internal/engine"
	"multiedge/internal/mono"
)

// Handshakes and exchanges of keys are computed by a goroutine of their own beside each shard, which goes on with its
// frames meanwhile. What strangers begin has a share of a core. However many strangers there are, renewals and dials of
// ours do not wait behind them, and the shard's thread and programs lose no more than that share.
const (
	strangerShare = 64                     // one part in so many of a core
	strangerBurst = 100 * time.Millisecond // what was not used of that is saved up
	strangerStep  = time.Millisecond       // what one step is charged at most: it may have waited for a core
)

// handshaker computes the steps of one shard's engine.
type handshaker struct {
	own, strangers chan *engine.Step // the shard fills them and never waits
	done           func(*engine.Step) error
	quit           chan struct{}
	running        sync.WaitGroup
	left           *engine.Step // computed when the shard took no more
	budget         budget
}

// newHandshaker returns one that passes what it has computed to done, on its own goroutine.
func newHandshaker(done func(*engine.Step) error) *handshaker {
	return &handshaker{own: make(chan *engine.Step, 64), strangers: make(chan *engine.Step, 2), done: done,
		quit: make(chan struct{}), budget: budget{left: strangerBurst}}
}

// feed passes on the steps that the engine has, as far as there is room. The shard calls it; when a result comes in
// it does so again.
func (k *handshaker) feed(e *engine.Endpoint) {
	if !e.StepWaits(false) && !e.StepWaits(true) {
		return
	}
	for len(k.own) < cap(k.own) && e.StepWaits(false) {
		k.own <- e.NextStep(false)
	}
	for len(k.strangers) < cap(k.strangers) && e.StepWaits(true) {
		k.strangers <- e.NextStep(true)
	}
}

func (k *handshaker) start() { k.running.Go(k.run) }

func (k *handshaker) run() {
	wait := time.NewTimer(0)
	defer wait.Stop()
	for {
		var strangers chan *engine.Step // nil: they have to wait
		if left := k.budget.wait(mono.Now()); left <= 0 {
			strangers = k.strangers
		} else {
			wait.Reset(left)
		}
		var st *engine.Step
		select {
		case <-k.quit:
			return
		case <-wait.C:
			continue
		case st = <-k.own:
			st.Do()
		case st = <-strangers:
			from := mono.Now()
			st.Do()
			k.budget.spend(mono.Now().Sub(from))
		}
		if k.done(st) != nil {
			k.left = st
			return
		}
	}
}

// stop ends the goroutine, stops the engine, and computes what is left, on the caller's.
func (k *handshaker) stop(now mono.Time, e *engine.Endpoint) {
	close(k.quit)
	k.running.Wait()
	if k.left != nil {
		e.Stepped(now, k.left)
	}
	for _, c := range []chan *engine.Step{k.own, k.strangers} {
		for len(c) > 0 {
			finish(now, e, <-c)
		}
	}
	e.Stop()
	for _, strangers := range []bool{false, true} {
		for e.StepWaits(strangers) {
			finish(now, e, e.NextStep(strangers))
		}
	}
}

func finish(now mono.Time, e *engine.Endpoint, st *engine.Step) {
	st.Do()
	e.Stepped(now, st)
}

// budget is what may still be spent of a share of a core.
type budget struct {
	left time.Duration
	at   mono.Time
}

// wait returns how long it is until something may be spent.
func (b *budget) wait(now mono.Time) time.Duration {
	if b.at != 0 {
		b.left = min(b.left+now.Sub(b.at)/strangerShare, strangerBurst)
	}
	b.at = now
	if b.left > 0 {
		return 0
	}
	return max(strangerShare*(1-b.left), 100*time.Microsecond)
}

func (b *budget) spend(d time.Duration) { b.left -= min(d, strangerStep) }
