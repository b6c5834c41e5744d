package daemon

// A shard's iteration, from ring to memory and back (iterate):
//
//  1. receive (link.go): frames that wait in the links' rings go to the engine, which places their payloads.
//  2. drainClients (submit.go): what clients have submitted is checked and given to the engine; the mailbox: what other goroutines ask for.
//  3. handleEvents (events.go), flushClients: completions and notifications to the clients' rings.
//  4. transmit (link.go): what the engine has to send, in batches, to the links; then the events of that.
//
// When there was nothing to do for a while the thread sleeps (waiting.go, sleep.go), or leaves the work to drivers (drive.go).

import (
	"log/slog"
	"runtime"
	"sync/atomic"
	"time"

	"multiedge/internal/engine"
	"multiedge/internal/ipc"
	"multiedge/internal/mono"
	"multiedge/linkdrv"
	"multiedge/regmem"

	"golang.org/x/sys/unix"
)

// shard owns one engine, its links and the rings of its clients. Everything without a comment to the contrary belongs to whoever holds the
// token: the shard's thread, or for an embedded daemon a goroutine inside drive.
type shard struct {
	number    int // of the daemon's shards, from 0
	eng       *engine.Endpoint
	grants    *regmem.Table
	limits    Limits
	window    int // operations in flight per connection, as the clients are told
	log       *slog.Logger
	twin      twin // what is said of a host that claims the node's identity
	box       *mailbox
	wait      waiter
	receivers *receivers        // nil: the shard receives itself
	lends     bool              // links to them
	reopen    func(name string) // asks the watcher for a new driver; any goroutine

	discard func(linkdrv.Driver) // closes a driver

	active       []*link                 // configured links, in order of configuration
	byIndex      [engine.MaxLinks]*link  // the same by engine number
	blockedLinks uint64                  // bit i: link i holds unsent frames
	failedLinks  bool                    // some link failed since reapLinks
	batches      []*txBatch              // free
	clients      []*client               // by slot; holes are nil
	mixed        bool                    // they belong to more than one user
	dying        int                     // clients that are dead but still own memory in use
	conns        map[engine.ConnID]*conn // every connection of every client
	services     map[string]*client      // who listens
	offered      *directory              // the same for all shards, which share it
	placed       int                     // clients that belong here; under the daemon's lock
	touched      []*client               // clients with completions or messages to flush this iteration
	gaveClients  bool                    // there were such clients in the latest iteration
	rang         bool                    // a client's doorbell, and nobody else had this core since
	evictions    uint64
	ev           engine.Event            // scratch of PollEvent
	op           engine.Op               // scratch of submit
	pings        map[engine.ConnID]*ping // dials that measure

	doorbells   int       // epoll of the clients' submit doorbells, edge-triggered
	alarm       alarm     // ends sleeps in time; its fields are the token holder's
	sleepWords  bool      // the clients have been told to ring
	busy        bool      // the latest iteration found something to do: there may be more
	quiet       mono.Time // until when there is nothing to do unless something comes in
	looks       int       // for what comes in, in an iteration while quiet
	pulseAt     mono.Time // when the clients are shown next that the shard runs
	countAt     mono.Time // when the links' counters are read next
	maxFrame    int       // largest MTU seen: what a batch must hold
	batchFrames int       // most of framesPerBatch of the links seen
	bed         bed       // the thread's; prepared under the token, used while it sleeps
	driverBed   bed       // the sleeping driver's, likewise

	tap      *tap      // records the frames of links; nil: nobody traces
	copying  bool      // payloads are never received in their place
	exchange *exchange // of pages; nil: none are exchanged

	token    atomic.Int32           // 1: somebody runs iterations
	wanted   atomic.Bool            // a driver found the token taken: the thread shall step back
	resting  atomic.Bool            // the thread sleeps in its bed and takes what wakes the shard
	dozing   atomic.Bool            // a driver sleeps in drowse and does; never both, or one would take the other's wake-up
	lease    atomic.Int64           // mono.Time until which the thread leaves the work to drivers
	beat     atomic.Int64           // mono.Time of the latest iteration, mono.Never while blocked
	ringing  atomic.Pointer[client] // whose doorbell is being rung; see guard.go
	thread   atomic.Int32           // its number for the kernel; 0 before it runs
	stopping atomic.Bool
	draining bool // no new connections or memory
}

// run is the shard's thread. The caller has locked it. It returns when stop was called and everything is closed down.
//
// The token is held while working and returned for every sleep, so that a driver (see drive) can take over from a sleeping thread.
func (s *shard) run() {
	for !s.stopping.Load() {
		if !s.token.CompareAndSwap(0, 1) {
			s.leaveToDrivers()
			continue
		}
		if s.dozing.Load() {
			s.token.Store(0)
			s.leaveToDrivers()
			continue
		}
		sleep := s.work()
		s.resting.Store(sleep)
		s.token.Store(0)
		if sleep {
			if s.wait.turn.Due(s.wait.asleep) {
				runtime.Gosched()
			}
			if s.sleep(&s.bed) {
				s.wait.spin.Slept(mono.Now().Sub(s.wait.asleep))
			}
			s.resting.Store(false)
		} else {
			s.leaveToDrivers()
		}
	}
	for !s.token.CompareAndSwap(0, 1) { // drivers give way within one iteration; the token is never returned
		yield()
	}
	for s.dozing.Load() { // its sleep uses descriptors that shutdown closes; stop has woken it
		yield()
	}
	s.shutdown()
}

// work runs iterations while there is something to do. It returns true when the thread shall sleep, everything being prepared for it, and
// false when a driver wants the shard or the shard shall stop.
func (s *shard) work() (sleep bool) {
	now := mono.Now()
	for !s.wanted.Load() && !s.stopping.Load() {
		if s.iterate(now) {
			now = mono.Now() // a burst of sealed frames may have taken longer than the patience is, or a slow yield
			s.wait.lastWork = now
			if !s.gaveClients || !s.clientsPoll() {
				continue
			}
			// What was done is for a client that polls, on this core perhaps: it comes first.
		}
		switch s.wait.idle(now, s.clientsPoll(), s.rang || s.gaveClients) {
		case actPoll:
			now = mono.Now()
		case actYield:
			before := now
			yield()
			s.rang = false
			now = mono.Now()
			s.wait.yielded = now
			s.wait.core.Yielded(now, now.Sub(before))
		case actBlock:
			if s.prepareSleep(now, &s.bed) {
				s.wait.asleep = now
				return true
			}
			now = mono.Now()
		}
	}
	return false
}

// iterate does one round of everything and reports whether there was anything to do. It does not block. In the steady state it does not
// allocate.
func (s *shard) iterate(now mono.Time) (worked bool) {
	s.beat.Store(int64(now))
	s.gaveClients = false
	if s.sleepWords {
		s.setAsleep(false)
	}
	if now >= s.pulseAt {
		s.pulse(now)
	}
	for look := 1; ; look++ {
		worked = s.receive(now)
		worked = s.drainClients(now) || worked
		worked = s.box.run(now) || worked
		if worked || now >= s.quiet || s.failedLinks {
			break
		}
		if look >= s.looks {
			s.busy = false
			return false
		}
	}
	if s.eng.NextTimeout() <= now {
		s.eng.HandleTimeout(now)
	}
	s.reapLinks(now)
	worked = s.handleEvents(now) || worked
	s.flushClients() // before the acknowledgements leave: a peer is not told of what the client could still miss if this process died
	worked = s.transmit(now) || worked
	worked = s.handleEvents(now) || worked
	s.flushClients()
	if s.dying > 0 {
		s.reapClients(now)
	}
	s.busy, s.quiet = worked, 0
	if !worked && s.dying == 0 && s.blockedLinks == 0 {
		s.quiet = s.eng.NextTimeout()
	}
	return worked
}

// quietLooks is how often an iteration looks for something that comes in when nothing else can be due: a look at rings costs no more than reading the clock
// does. Where a look is a system call there is one.
const quietLooks = 4

// countTime is how often the kernel's counters are read if nobody asks: they have 32 bits, which a million frames a second fill in an hour.
const countTime = 5 * time.Minute

// pulse shows every client that the shard runs; sleeps are shorter than what makes a client wonder.
func (s *shard) pulse(now mono.Time) {
	s.pulseAt = now.Add(ipc.PulseTime)
	for _, c := range s.clients {
		if c != nil && c.rings != nil {
			c.rings.BeatPulse()
		}
	}
	if now < s.countAt {
		return
	}
	s.countAt = now.Add(countTime)
	for _, l := range s.active {
		if l.drv != nil {
			_, _ = l.drv.Stats() // adds them up
		}
	}
}

// clientsPoll reports whether some client has said that it polls.
func (s *shard) clientsPoll() bool {
	for _, c := range s.clients {
		if c != nil && c.rings != nil && c.rings.ClientPolling() {
			return true
		}
	}
	return false
}

// stop makes run return. It does not wait.
func (s *shard) stop() {
	s.stopping.Store(true)
	s.box.wake()
}

// shutdown tells the peers, closes every link and detaches every client. What clients still own is theirs to release (client.gone is closed).
func (s *shard) shutdown() {
	now := mono.Now()
	s.stopping.Store(true)
	s.box.close(now) // first: a client or a driver that came after the others were let go would be kept for ever
	for _, c := range s.clients {
		if c != nil {
			s.detach(now, c)
		}
	}
	for range 8 { // the frames that say so; nothing waits for answers
		s.handleEvents(now)
		if !s.transmit(now) {
			break
		}
	}
	for _, l := range s.active {
		s.dropDriver(now, l)
	}
	s.handleEvents(now)
	for _, c := range s.clients {
		if c != nil {
			s.free(c)
		}
	}
	s.eng.Stop()
	if s.receivers != nil {
		s.receivers.stop()
	}
	unix.Close(s.doorbells)
	s.alarm.close()
}
