package daemon

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"multiedge/internal/mono"

	"golang.org/x/sys/unix"
)

// placer is a shard's engine.Placer: further threads that copy payloads of received frames into place while the shard's own keeps the books. Whoever is
// free takes the next copy, the shard too when it has nothing else to do, so a placer that sleeps or lost its core costs nothing but its help.
type placer struct {
	jobs  [placeJobs]placeJob
	_     [64]byte
	tail  atomic.Uint64 // copies asked for; only the shard changes it
	_     [64]byte
	next  atomic.Uint64 // copies somebody has taken
	_     [64]byte
	done  atomic.Uint64 // copies finished
	_     [64]byte
	base  uint64 // of tail at the latest Wait: all before are finished
	sleep atomic.Int32
	wake  chan struct{}
	quit  chan struct{}
	group sync.WaitGroup

	threads []atomic.Int32 // their numbers for the kernel; 0 before they run
}

type placeJob struct{ dst, src []byte }

const (
	placeJobs    = 256                   // copies that can wait; more are made at once
	leastPlaced  = 2048                  // bytes worth handing to another core; less is copied at once
	placeBacklog = 4                     // copies that wait when a sleeping placer is woken
	placeSpin    = 50 * time.Microsecond // how long a placer without work looks for some
	placeLooks   = 64                    // looks between two readings of the clock
)

func newPlacer() *placer { return &placer{quit: make(chan struct{})} }

// start starts n threads; stop ends them.
func (p *placer) start(n int) {
	p.wake, p.threads = make(chan struct{}, n), make([]atomic.Int32, n)
	for i := range n {
		p.group.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			p.threads[i].Store(int32(unix.Gettid()))
			p.help()
		})
	}
}

// stop ends the threads. The shard has ended.
func (p *placer) stop() {
	close(p.quit)
	p.group.Wait()
}

// Place implements engine.Placer. It does not block and does not allocate.
func (p *placer) Place(dst, src []byte) {
	t := p.tail.Load()
	if t-p.base >= placeJobs || len(src) < leastPlaced {
		copy(dst, src)
		return
	}
	p.jobs[t%placeJobs] = placeJob{dst, src}
	p.tail.Store(t + 1)
	if p.sleep.Load() > 0 && t+1-p.next.Load() >= placeBacklog {
		select {
		case p.wake <- struct{}{}:
		default:
		}
	}
}

// Wait implements engine.Placer: the shard helps, and then waits for who is still copying.
func (p *placer) Wait() {
	t := p.tail.Load()
	if t == p.base {
		return
	}
	for p.step() {
	}
	for looks := 1; p.done.Load() != t; looks++ {
		if looks%placeLooks == 0 {
			yield() // to the placer, if it waits for this core
		}
	}
	p.base = t
}

// step takes one copy and makes it.
func (p *placer) step() bool {
	n := p.next.Load()
	if n == p.tail.Load() {
		return false
	}
	if p.next.CompareAndSwap(n, n+1) {
		j := &p.jobs[n%placeJobs]
		copy(j.dst, j.src)
		p.done.Add(1)
	}
	return true
}

// help makes copies until the placer is stopped.
func (p *placer) help() {
	for {
		for idle, looks := mono.Now(), 1; ; looks++ {
			if p.step() {
				looks = 0
				continue
			}
			if looks%placeLooks != 0 {
				continue
			}
			now := mono.Now()
			if looks == placeLooks {
				idle = now
			}
			if now.Sub(idle) >= placeSpin {
				break
			}
			yield()
		}
		if !p.nap() {
			return
		}
	}
}

// nap sleeps until copies wait. It returns false when there will be none.
func (p *placer) nap() bool {
	p.sleep.Add(1)
	defer p.sleep.Add(-1)
	select {
	case <-p.wake:
		return true
	case <-p.quit:
		return false
	}
}
