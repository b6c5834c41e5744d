package shard

// Receiving one connection on several cores. A shard that finds more on its links than it can take lends them, one by
// one, to threads of their own, its receivers. The steps of a frame on a lent link:
//
//  1. the receiver, woken while the shard goes on, finds it in the link's receive queue and looks at it there
//     (engine.Reader): its checksums are verified, or it is opened;
//  2. the receiver hands the batch to the shard, which judges each frame: is it new, may it be written, where to;
//  3. the shard asks for the payloads' copies (copies.go), which the receiver begins to make while the next frames are
//     judged;
//  4. when all are judged and copied the receiver gives the frames back to the driver and takes the next ones.
//
// Judging costs a quarter of the rest, so one shard keeps a few receivers busy. A receiver that finds nothing for a
// while returns its link, so that lone frames take the shortest way. One that has to share its core would only be in
// the way: it returns its link too, or loses it, and is left alone for a while.

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

// LendAfter is how many full batches in a row a link must have before it is lent. Changed by tests alone.
var LendAfter = 4

const (
	// that a shard takes at once from a link of its own while others are lent: their receivers wait for it
	ownFrames  = 16
	judgedMost = 2 // batches of each receiver that a shard judges before it does other things
	// without frames, after which a receiver returns its link, unless it shall not poll
	lentIdle = 50 * time.Microsecond
	wakeMost = time.Millisecond // after an offer, until its receiver is up: one that takes longer has no core
	// without a sign of a receiver that has a link, after which it counts as having lost its core
	lentSilent = 200 * time.Microsecond
	slowYield  = 50 * time.Microsecond // a yield that takes longer found somebody else on the core; or an interrupt,
	slowYields = 2                     // so that one is not enough
)

// States of a loan: which side owns a receiver's link and batch. The owner gives them away by storing another state;
// either side may leave loanOffer and loanOut, by compare-and-swap.
const (
	loanNone   uint32 = iota // no link is lent, or it was returned: all is the shard's
	loanShared               // the same; it was returned because somebody else was found on the core
	loanOffer                // the shard serves the link until the receiver is up
	loanReady                // it is
	loanOut                  // the receiver may take the link, and the shard may take it back
	loanBusy                 // the receiver takes frames from it
	loanHanded               // the batch is the shard's
)

// receiver is a thread that serves the receive queue of a link that it is lent.
type receiver struct {
	shard  *Shard
	reader *engine.Reader
	bell   int // eventfd that ends a sleep
	thread atomic.Int32
	quit   atomic.Bool
	loan   atomic.Uint32
	beat   atomic.Int64 // mono.Time when the receiver last went round, or the shard last left something to it

	// Owned by the receiver or the shard, according to loan.
	n        int
	err      error // of the driver
	frames   [recvBatch][]byte
	arrivals [recvBatch]engine.Arrival
	copies   copyQueue

	link *Link           // the shard's word for what is lent: nil once it knows that it was returned
	core idle.Contention // the shard's

	patience time.Duration // without frames
	slow     int           // yields in this loan
}

// receivers are a shard's, and the engine's Placer.
type receivers struct {
	all   []*receiver
	group sync.WaitGroup
	judge *receiver // whose frames the shard judges at the moment
}

// start starts n threads that receive for s, which has its engine.
func (rs *receivers) start(s *Shard, n int) error {
	patience := lentIdle
	if s.idle.wait.mode == "block" {
		patience = 0
	}
	for range n {
		bell, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
		if err != nil {
			rs.stop()
			return fmt.Errorf("receiver: eventfd: %w", err)
		}
		r := &receiver{shard: s, reader: s.eng.NewReader(), bell: bell, patience: patience}
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

// expect has receivers that have no link make room for the frames of one.
func (rs *receivers) expect(l *Link) {
	for _, r := range rs.all {
		if r.link == nil {
			r.reader.Expect(l.take, l.info.MTU+linkdrv.HeaderLen)
		}
	}
}

// offer offers a link to a receiver that has none, if there is one that had a core when it was last seen. Like all that
// follows, the shard calls it.
func (s *Shard) offer(now mono.Time, l *Link) {
	for _, r := range s.links.receivers.all {
		if r.link != nil || r.core.At(now) {
			continue
		}
		l.lent, r.link = r, l
		r.beat.Store(int64(now))
		r.loan.Store(loanOffer)
		r.ring()
		return
	}
}

// most is how many frames the shard takes at once from a link of its own.
func (s *Shard) most(l *Link) int {
	if slices.ContainsFunc(s.links.receivers.all, func(r *receiver) bool { return r.link != nil }) {
		return min(l.take, ownFrames)
	}
	return l.take
}

// serves reports whether the shard serves a link that was lent or offered: because its receiver is not up yet, has
// returned it, or has not been seen for too long.
func (s *Shard) serves(now mono.Time, l *Link) bool {
	r := l.lent
	silent := now.Sub(mono.Time(r.beat.Load()))
	switch r.loan.Load() {
	case loanNone:
		r.over()
		return true
	case loanShared:
		silent = lentSilent + 1
	case loanReady:
		if silent <= wakeMost {
			r.beat.Store(int64(mono.Now()))
			r.loan.Store(loanOut)
			return false
		}
		r.loan.Store(loanNone)
	case loanOffer:
		if silent <= wakeMost || !r.loan.CompareAndSwap(loanOffer, loanNone) {
			return true
		}
	default:
		if silent <= lentSilent || !r.loan.CompareAndSwap(loanOut, loanNone) {
			return false
		}
	}
	r.core.Yielded(now, silent)
	r.over()
	return true
}

// recall takes a link back. What its receiver has handed over is judged first.
func (s *Shard) recall(now mono.Time, l *Link) {
	r := l.lent
	if r == nil {
		return
	}
	for !r.gaveUp() && !r.loan.CompareAndSwap(loanOut, loanNone) && !r.loan.CompareAndSwap(loanOffer, loanNone) &&
		!r.loan.CompareAndSwap(loanReady, loanNone) {
		if !s.judge(now, r) {
			yield()
		}
	}
	s.links.receivers.Wait()
	r.over()
}

// gaveUp reports whether the receiver has returned its link.
func (r *receiver) gaveUp() bool {
	loan := r.loan.Load()
	return loan == loanNone || loan == loanShared
}

// over notes that the receiver's link is the shard's again.
func (r *receiver) over() {
	r.link.lent, r.link.full = nil, 0
	r.link = nil
}

// judge has the engine handle what a receiver has handed over, if it has, and hands it back.
func (s *Shard) judge(now mono.Time, r *receiver) bool {
	if r.loan.Load() != loanHanded {
		return false
	}
	s.links.receivers.judge = r
	s.eng.Handle(now, r.link.index, r.arrivals[:r.n]...)
	s.links.receivers.judge = nil
	if r.err != nil {
		s.linkFailed(r.link, r.err)
	}
	r.beat.Store(int64(mono.Now())) // now may be long ago
	r.loan.Store(loanOut)
	return true
}

// judgeAll judges what receivers have handed over, and returns when all payloads are in place. While it waits for that
// it judges what else comes, or helps.
func (s *Shard) judgeAll(now mono.Time) (worked bool) {
	rs := s.links.receivers
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

// waiting reports whether some receiver waits for the shard, or has returned a link of which the shard does not know.
func (rs *receivers) waiting() bool {
	return slices.ContainsFunc(rs.all, func(r *receiver) bool {
		loan := r.loan.Load()
		return loan == loanHanded || loan == loanReady || r.link != nil && r.gaveUp()
	})
}

// Place implements engine.Placer. It does not block and does not allocate.
func (rs *receivers) Place(dst, src []byte) {
	if rs.judge == nil {
		copy(dst, src)
		return
	}
	rs.judge.copies.ask(dst, src)
}

// Wait implements engine.Placer: the shard helps, and then waits for the threads that are still copying.
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

// run is the receiver's thread: it sleeps until a link is offered, and serves it until that is over.
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
	if !r.loan.CompareAndSwap(loanOffer, loanReady) {
		return
	}
	r.wakeShard()
	for looks := 1; r.loan.Load() == loanReady; looks++ {
		if looks%copyLooks == 0 {
			yield()
		}
	}
	r.slow = 0
	now := mono.Now()
	for worked := now; r.loan.CompareAndSwap(loanOut, loanBusy); {
		r.beat.Store(int64(now))
		found := r.receive()
		now = mono.Now()
		why := loanNone
		switch {
		case found && r.slow >= slowYields:
			why = loanShared
		case found:
			worked = now
			continue
		default:
			r.loan.Store(loanOut)
			if now.Sub(worked) < r.patience {
				continue
			}
		}
		if r.loan.CompareAndSwap(loanOut, why) {
			r.wakeShard() // whose sleep does not watch this link
		}
		return
	}
}

// receive takes what waits on the link all the way. If there is anything, the link is left as loanOut, or
// as the shard left it meanwhile.
func (r *receiver) receive() (found bool) {
	l := r.link
	n, err := l.drv.Recv(r.frames[:l.take])
	if n == 0 && err == nil {
		return false
	}
	r.reader.Read(r.frames[:n], r.arrivals[:n])
	clear(r.frames[:n])
	r.n, r.err = n, err
	r.loan.Store(loanHanded)
	r.wakeShard()
	for looks := 1; r.loan.Load() == loanHanded || !r.copies.over(); looks++ {
		if !r.copies.step() && looks%copyLooks == 0 {
			before := mono.Now()
			yield()
			now := mono.Now()
			if now.Sub(before) > slowYield {
				r.slow++
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
