package daemon

// Receiving one connection on several cores. A shard that finds more on its links than it can take lends them, one by one, to threads of their own, its receivers. What a
// frame of a lent link goes through:
//
//  1. the receiver finds it in the link's receive queue and looks at it there (engine.Reader): its checksums are verified, or it is opened;
//  2. the receiver hands the batch to the shard, which judges each frame: is it new, may it be written, where to;
//  3. the shard asks for the payloads' copies (copies.go), which the receiver begins to make while the next frames are judged;
//  4. when all are judged and copied the receiver gives the frames back to the driver and takes the next ones.
//
// Judging costs a tenth of the rest, so one shard keeps several receivers busy. A receiver that finds nothing for a while returns its link, so that lone frames take the
// shortest way. One that has to share its core would only be in the way: it returns its link too, or loses it, and is left alone for a while.

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"multiedge/internal/engine"
	"multiedge/internal/idle"
	"multiedge/internal/mono"
	"multiedge/linkdrv"

	"golang.org/x/sys/unix"
)

// lendAfter is how many full batches in a row a link must have before it is lent. Changed by tests alone.
var lendAfter = 4

const (
	lentIdle   = 50 * time.Microsecond  // without frames, after which a receiver returns its link
	lentSilent = 200 * time.Microsecond // of a receiver, after which it is taken to have lost its core
	sharedCore = 50 * time.Microsecond  // a yield that takes longer found somebody else on it
	judgedMost = 4                      // batches of each receiver that a shard judges before it does other things
	ownFrames  = 16                     // that a shard takes at once from a link of its own while others are lent: their receivers wait for it
)

// lease says whose the link and the batch of a receiver are.
type lease = uint32

const (
	leaseNone   lease = iota // no link is lent: all is the shard's
	leaseLent                // the receiver may take the link, and the shard may take it back
	leaseBusy                // the receiver takes frames from it
	leaseHanded              // the batch is the shard's
)

// receiver is a thread that serves the receive queue of a link that it is lent.
type receiver struct {
	shard  *shard
	reader *engine.Reader
	bell   int // eventfd that ends a sleep
	thread atomic.Int32
	quit   atomic.Bool
	lease  atomic.Uint32
	beat   atomic.Int64 // mono.Time when the receiver last went round, or the shard last left something to it
	shared atomic.Bool  // it found somebody else on its core

	// Whose these are, lease says.
	link     *link
	drv      linkdrv.Driver
	n        int
	err      error // of the driver
	frames   [recvBatch][]byte
	arrivals [recvBatch]engine.Arrival
	copies   copies

	core idle.Contention // the shard's
}

// receivers are a shard's, and the engine's Placer.
type receivers struct {
	all   []*receiver
	group sync.WaitGroup
	judge *receiver // whose frames the shard judges at the moment
	lent  int       // links
}

// start starts n threads that receive for s, which has its engine.
func (rs *receivers) start(s *shard, n int) error {
	for range n {
		bell, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
		if err != nil {
			rs.stop()
			return fmt.Errorf("receiver: eventfd: %w", err)
		}
		r := &receiver{shard: s, reader: s.eng.NewReader(), bell: bell}
		rs.all = append(rs.all, r)
		rs.group.Go(r.run)
	}
	return nil
}

// stop ends the threads, which have no links any more.
func (rs *receivers) stop() {
	for _, r := range rs.all {
		r.quit.Store(true)
		r.ring()
	}
	rs.group.Wait()
	for _, r := range rs.all {
		unix.Close(r.bell)
	}
}

// lend lends a link to a receiver that has none, if there is one that had a core when it was last seen. Like all that follows, the shard calls it.
func (s *shard) lend(now mono.Time, l *link) {
	for _, r := range s.receivers.all {
		if r.lease.Load() != leaseNone || r.link != nil || r.core.At(now) {
			continue
		}
		l.lent, r.link, r.drv = r, l, l.drv
		r.reader.Expect(l.take, l.info.MTU+linkdrv.HeaderLen)
		r.shared.Store(false)
		r.beat.Store(int64(now))
		s.receivers.lent++
		r.lease.Store(leaseLent)
		r.ring()
		return
	}
}

// most is how many frames the shard takes at once from a link of its own.
func (s *shard) most(l *link) int {
	if s.receivers != nil && s.receivers.lent > 0 {
		return min(l.take, ownFrames)
	}
	return l.take
}

// returned reports whether a lent link is the shard's again: because its receiver has returned it, or has not been seen for too long.
func (s *shard) returned(now mono.Time, l *link) bool {
	r := l.lent
	silent := now.Sub(mono.Time(r.beat.Load()))
	if r.lease.Load() != leaseNone && (silent <= lentSilent || !r.copies.over() || !r.lease.CompareAndSwap(leaseLent, leaseNone)) {
		return false
	}
	if r.shared.Load() {
		silent = max(silent, lentSilent+1)
	}
	r.core.Yielded(now, silent)
	s.receivers.over(l)
	return true
}

// recall takes a link back. What its receiver has handed over is judged first.
func (s *shard) recall(now mono.Time, l *link) {
	r := l.lent
	if r == nil {
		return
	}
	for r.lease.Load() != leaseNone && !r.lease.CompareAndSwap(leaseLent, leaseNone) {
		if !s.judge(now, r) {
			yield()
		}
	}
	s.receivers.Wait()
	s.receivers.over(l)
}

// over notes that a link is lent no more.
func (rs *receivers) over(l *link) {
	l.lent.link, l.lent.drv = nil, nil
	l.lent, l.full = nil, 0
	rs.lent--
}

// judge has the engine handle what a receiver has handed over, if it has, and hands it back.
func (s *shard) judge(now mono.Time, r *receiver) bool {
	if r.lease.Load() != leaseHanded {
		return false
	}
	s.receivers.judge = r
	for i := range r.arrivals[:r.n] {
		s.eng.HandleArrival(now, r.link.index, &r.arrivals[i])
	}
	s.receivers.judge = nil
	if r.err != nil {
		s.linkFailed(r.link, r.err)
	}
	r.beat.Store(int64(now))
	r.lease.Store(leaseLent)
	return true
}

// judgeAll judges what receivers have handed over, and returns when all payloads are in place. While it waits for that it judges what else comes, or helps.
func (s *shard) judgeAll(now mono.Time) (worked bool) {
	rs := s.receivers
	for left, looks := judgedMost*len(rs.all), 1; ; looks++ {
		judged := 0
		for _, r := range rs.all {
			if left > 0 && s.judge(now, r) {
				judged++
			}
		}
		left -= judged
		switch worked = worked || judged > 0; {
		case judged > 0, rs.help():
		case rs.placed():
			return worked
		case looks%copyLooks == 0:
			yield()
		}
	}
}

// waiting reports whether some receiver has frames for the shard.
func (rs *receivers) waiting() bool {
	return slices.ContainsFunc(rs.all, func(r *receiver) bool { return r.lease.Load() == leaseHanded })
}

// Place implements engine.Placer. It does not block and does not allocate.
func (rs *receivers) Place(dst, src []byte) {
	if rs.judge == nil {
		copy(dst, src)
		return
	}
	rs.judge.copies.ask(dst, src)
}

// Wait implements engine.Placer: the shard helps, and then waits for who is still copying.
func (rs *receivers) Wait() {
	for looks := 1; !rs.placed(); looks++ {
		if !rs.help() && looks%copyLooks == 0 {
			yield() // to the receiver, if it waits for this core
		}
	}
}

// help makes one copy, if there is one to make.
func (rs *receivers) help() bool {
	return slices.ContainsFunc(rs.all, func(r *receiver) bool { return r.copies.step() })
}

// placed reports whether nobody has to copy anything, or still does.
func (rs *receivers) placed() bool {
	return !slices.ContainsFunc(rs.all, func(r *receiver) bool { return !r.copies.over() })
}

// run is the receiver's thread: it sleeps until a link is lent, and serves it until that is over.
func (r *receiver) run() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	r.thread.Store(int32(unix.Gettid()))
	for b := [8]byte{}; !r.quit.Load(); unix.Read(r.bell, b[:]) {
		r.serve()
	}
}

// serve takes frames from the link that is lent, until it returns it or has lost it.
func (r *receiver) serve() {
	worked := mono.Now()
	for now := worked; ; now = mono.Now() {
		if !r.lease.CompareAndSwap(leaseLent, leaseBusy) {
			return
		}
		r.beat.Store(int64(now))
		switch r.receive() {
		case true:
			worked = now
		case false:
			r.lease.Store(leaseLent)
		}
		if (r.shared.Load() || now.Sub(worked) >= lentIdle) && r.lease.CompareAndSwap(leaseLent, leaseNone) {
			r.wakeShard() // whose sleep did not watch this link
			return
		}
	}
}

// receive takes what waits on the link all the way.
func (r *receiver) receive() (found bool) {
	n, err := r.drv.Recv(r.frames[:r.link.take])
	if n == 0 && err == nil {
		return false
	}
	r.reader.Read(r.frames[:n], r.arrivals[:n])
	clear(r.frames[:n])
	r.n, r.err = n, err
	r.lease.Store(leaseHanded)
	r.wakeShard()
	for looks := 1; r.lease.Load() == leaseHanded || !r.copies.over(); looks++ {
		if !r.copies.step() && looks%copyLooks == 0 {
			before := mono.Now()
			yield()
			now := mono.Now()
			if now.Sub(before) > sharedCore {
				r.shared.Store(true)
			}
			r.beat.Store(int64(now))
		}
	}
	return true
}

func (r *receiver) wakeShard() {
	if r.shard.box.asleep.Load() {
		r.shard.box.wake()
	}
}

// ring ends a sleep, or the next one at once.
func (r *receiver) ring() { unix.Write(r.bell, eventOne[:]) }
