package shard

// A shard's iteration, from ring to memory and back (Iterate):
//
//  1. receive (link.go): frames that wait in the links' rings go to the engine, which places their payloads.
//  2. drainClients (submit.go): what clients have submitted is checked and given to the engine; the mailbox: what other
//     goroutines ask for.
//  3. handleEvents (events.go), flushClients: completions and notifications to the clients' rings.
//     Handshakes that the engine wants computed go to the handshaker (handshaker.go), and come back by the mailbox.
//  4. transmit (link.go): what the engine has to send, in batches, to the links; then the events of that.
//  5. ringBells (wake.go): clients that sleep on this core are woken, one at a time.
//
// When there was nothing to do for a while the thread sleeps (waiting.go, sleep.go), or leaves the work to drivers
// (drive.go).

import (
	"log/slog"
	"math"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"multiedge/internal/config"
	"multiedge/internal/engine"
	"multiedge/internal/ipc"
	"multiedge/internal/mono"
	"multiedge/linkdrv"
	"multiedge/regmem"

	"golang.org/x/sys/unix"
)

// Shard owns one engine, its links and the rings of its clients. Everything without a comment to the contrary belongs
// to the goroutine that holds the token: the shard's thread, or for an embedded daemon a goroutine inside drive.
type Shard struct {
	number     int // of the daemon's shards, from 0
	eng        *engine.Endpoint
	grants     *regmem.Table
	limits     config.Limits
	window     int // operations in flight per connection, as the clients are told
	log        *slog.Logger
	twin       Twin         // what is said of a host that claims the node's identity
	tell       func(Notice) // what happens, for those who watch; any goroutine
	box        *mailbox
	handshaker *handshaker

	links   linkSet
	clients clientSet
	spaces  spaceSet
	idle    idleness
	runner  runner

	ev        engine.Event            // scratch of PollEvent
	op        engine.Op               // scratch of submit
	idleLists []*engine.Pieces        // of operations in pieces, to be used again
	idleBytes []*inlineBytes          // likewise, of operations with bytes in entries before them
	pings     map[engine.ConnID]*Ping // dials that measure
	garbage   garbage
	copying   bool        // payloads are never received in their place
	exchange  *Exchange   // of pages; nil: none are exchanged
	draining  bool        // no new connections or memory
	starting  sync.Mutex  // held by the goroutine that is the shard before its thread is started
	running   atomic.Bool // the thread was started: functions reach the shard by the mailbox
	stopping  atomic.Bool
}

// garbage is memory that idle connections gave back.
type garbage struct {
	bytes      int         // bytes since the last collection
	collecting atomic.Bool // another thread collects it
	embedded   bool        // the heap is the program's
}

// linkSet are the links, and the frames that wait for them (link.go, receiver.go).
type linkSet struct {
	active       []*Link                // configured links, in order of configuration
	byIndex      [engine.MaxLinks]*Link // the same by engine number
	blockedLinks uint64                 // bit i: link i holds unsent frames
	failedLinks  bool                   // some link failed since reapLinks
	batches      engine.Batches         // of the links; the engine fills them
	countAt      mono.Time              // when the links' counters are read next
	receivers    *receivers             // nil: the shard receives itself
	lends        bool                   // links to them
	wrap         Wrap                   // around the links' drivers; nil: nothing
	reopen       func(name string)      // asks the keeper for a new driver; any goroutine
	closeDriver  func(linkdrv.Driver)   // on another goroutine: the kernel may take its time
}

// clientSet are the clients, and what is due to them (client.go, submit.go, events.go).
type clientSet struct {
	list      []*Client               // by slot; holes are nil
	tenants   []*tenant               // the same by user
	mixed     bool                    // there is more than one of these
	dying     int                     // clients that are dead but still own memory in use
	conns     map[engine.ConnID]*Conn // every connection of every client
	services  map[string]*Client      // who listens
	offered   *Services               // the same for all shards, which share it
	slow      debt                    // of long rings
	touched   []*Client               // clients with completions or messages to flush this iteration
	bells     []*Client               // clients to be woken once frames have left (ringBells)
	due       []*Client               // clients that have to run: wake.go
	held      heldSet                 // clients that wait for more than they have: alone.go
	told      bool                    // in the latest iteration a client that polls was sent messages
	evictions uint64
	reapFirst int               // which slot's client ends first in this iteration
	mayRevoke int               // keys of connections that end, in what is left of this iteration
	ending    map[*User][]*Conn // connections that have ended and have keys left; each user has a piece queued
	revoked   [][]byte          // memory of grants that ended, while frames that may refer to it wait for links
	pulseAt   mono.Time         // when the clients are shown next that the shard runs
}

// idleness is what the shard does when there is nothing to do (waiting.go, sleep.go).
type idleness struct {
	wait       waiter
	doorbells  int       // epoll of the clients' submit doorbells, edge-triggered
	alarm      alarm     // ends sleeps in time; its fields are the token holder's
	sleepWords bool      // the clients have been told to ring
	hurries    bool      // the thread has a short slice
	busy       bool      // the latest iteration found something to do: there may be more
	quiet      mono.Time // when the next timer is due; until then only arrivals make work
	looks      int       // how often an iteration looks for arrivals while quiet
	passed     bool      // the latest iteration did not look at the links
	calls      Calls     // the token holder's
	threadSet  pollSet   // the thread's; prepared under the token, used while it sleeps
	driverSet  pollSet   // the sleeping driver's, likewise
}

// runner is which goroutine runs the shard (drive.go). Any goroutine may use it.
type runner struct {
	token        atomic.Int32 // 1: somebody runs iterations
	wanted       atomic.Bool  // a driver found the token taken: the thread shall step back
	threadSleeps atomic.Bool  // the thread sleeps in its poll set and takes what wakes the shard
	// a driver sleeps in DriverSleep and does; never both, or one would take the other's wake-up
	driverSleeps atomic.Bool
	lease        atomic.Int64 // mono.Time until which the thread leaves the work to drivers
	beat         atomic.Int64 // mono.Time of the latest iteration, mono.Never while blocked
	thread       atomic.Int32 // its number for the kernel; 0 before it runs
}

// Hold takes the token, if nobody has it: the caller runs iterations until it releases it.
func (s *Shard) Hold() bool { return s.runner.token.CompareAndSwap(0, 1) }

// Release gives the token back.
func (s *Shard) Release() { s.runner.token.Store(0) }

// run is the shard's thread. The caller has locked it. It returns when Stop was called and everything is closed down.
//
// The token is held while working and returned for every sleep, so that a driver (see drive) can take over from a
// sleeping thread.
func (s *Shard) run() {
	s.handshaker.start()
	mayNap := s.mayNap()
	defer nappers.Add(-1)
	for !s.stopping.Load() {
		if !s.Hold() {
			s.leaveToDrivers()
			continue
		}
		if s.runner.driverSleeps.Load() {
			s.Release()
			s.leaveToDrivers()
			continue
		}
		sleep := s.work()
		naps := 0
		if w := &s.idle.wait; sleep && mayNap && runtime.GOMAXPROCS(0) > OtherProcs {
			naps = int((keepTime - w.asleep.Sub(w.lastWork)) / napTime)
		}
		s.runner.threadSleeps.Store(sleep)
		s.Release()
		if sleep {
			if s.idle.wait.turn.Due(s.idle.wait.asleep) {
				runtime.Gosched()
			}
			if s.sleep(&s.idle.threadSet, naps) {
				s.idle.wait.spin.Slept(mono.Now().Sub(s.idle.wait.asleep))
			}
			s.runner.threadSleeps.Store(false)
		} else {
			s.leaveToDrivers()
		}
	}
	for !s.Hold() { // drivers give way within one iteration; the token is never returned
		yield()
	}
	for s.runner.driverSleeps.Load() { // its sleep uses descriptors that shutdown closes; stop has woken it
		yield()
	}
	s.Shutdown()
}

// work runs iterations while there is something to do. It returns true when the thread shall sleep, everything being
// prepared for it, and false when a driver wants the shard or the shard shall stop.
func (s *Shard) work() (sleep bool) {
	now := mono.Now()
	for !s.runner.wanted.Load() && !s.stopping.Load() {
		worked := s.Iterate(now)
		if worked {
			now = mono.Now() // a burst of sealed frames may have taken longer than the patience is, or a slow yield
			s.idle.wait.lastWork = now
		}
		if !worked && len(s.clients.held.list) > 0 && now.Sub(s.idle.wait.lastWork) >= restTime {
			s.release(now, true)
		}
		due, polls := s.stillDue(now, 0)
		if worked && !polls && !s.clients.told {
			continue
		}
		polling, working, here := s.clientsPoll()
		switch s.idle.wait.idle(now, polling, working, here, due || s.clients.told) {
		case actPoll:
			now = mono.Now()
		case actYield:
			s.hurry(false)
			now = s.giveWay(now)
		case actBlock:
			s.hurry(s.idle.wait.core.At(now))
			if s.prepareSleep(now, &s.idle.threadSet) {
				s.idle.wait.asleep = now
				return true
			}
			now = mono.Now()
		}
	}
	return false
}

// Iterate does one round of everything and reports whether there was anything to do. It does not block. In the steady
// state it does not allocate.
func (s *Shard) Iterate(now mono.Time) (worked bool) {
	s.runner.beat.Store(int64(now))
	s.clients.told, s.clients.mayRevoke = false, revokePiece
	if s.idle.sleepWords {
		s.setAsleep(false)
	}
	if now >= s.clients.pulseAt {
		s.pulse(now)
	}
	if len(s.clients.held.list) > 0 {
		s.release(now, false)
	}
	for look := 1; ; look++ {
		worked = !s.clientsFirst() && s.receive(now)
		worked = s.drainClients(now) || worked
		if s.box.run(now) {
			worked, s.idle.wait.served = true, now
		}
		if worked || now >= s.idle.quiet || s.links.failedLinks {
			break
		}
		if look >= s.idle.looks {
			s.idle.busy = false
			return false
		}
	}
	if s.eng.NextTimeout() <= now {
		s.eng.HandleTimeout(now)
		s.collect()
		s.drawPorts()
	}
	s.handshaker.feed(s.eng)
	s.reapLinks(now)
	worked = s.handleEvents(now) || worked
	// before the acknowledgements leave: a peer is not told of what the client could still miss if this process died
	s.flushClients(now)
	worked = s.transmit(now) || worked
	worked = s.handleEvents(now) || worked
	if s.spaces.starving.n() > 0 {
		s.askMore(now)
	}
	s.flushClients(now)
	worked = s.ringBells() || worked
	if s.clients.dying > 0 {
		worked = s.reapClients(now) || worked
	}
	s.idle.busy, s.idle.quiet = worked, 0
	if !worked && s.clients.dying == 0 && s.links.blockedLinks == 0 {
		s.idle.quiet = s.eng.NextTimeout()
	}
	return worked
}

// How many bytes of idle connections' garbage are left to the runtime's collector, which may take minutes, since
// nothing else here makes any. It is more while other connections may soon give back theirs.
const (
	collectMost  = 8 << 20
	collectLeast = 1 << 20
)

// clientsFirst reports whether an iteration takes what clients have submitted without a look at the links: where a look
// is a system call it would delay a lone operation by that. The next iteration looks.
func (s *Shard) clientsFirst() bool {
	s.idle.passed = s.idle.looks == 1 && !s.idle.passed && s.clientsReady()
	return s.idle.passed
}

// collect has another thread collect the garbage of idle connections. A daemon gives that memory back to the
// system at once; the runtime takes its time for that, since it uses a hundredth of a processor.
func (s *Shard) collect() {
	bytes, more := s.eng.GaveBack()
	s.garbage.bytes += bytes
	if s.garbage.bytes <= collectLeast || more && s.garbage.bytes <= collectMost ||
		!s.garbage.collecting.CompareAndSwap(false, true) {
		return
	}
	s.garbage.bytes = 0
	go func() {
		defer s.garbage.collecting.Store(false)
		if s.garbage.embedded {
			runtime.GC()
		} else {
			debug.FreeOSMemory()
		}
	}()
}

// quietLooks is how often an iteration looks for arrivals while no timer is due: a look at rings costs no more than
// reading the clock. Where a look is a system call there is one.
const quietLooks = 4

// countTime is how often the kernel's counters are read if nobody asks: they have 32 bits, which a million frames a
// second fill in an hour.
const countTime = 5 * time.Minute

// pulse shows every client that the shard runs. Sleeps are shorter than the silence that a client reports.
func (s *Shard) pulse(now mono.Time) {
	s.clients.pulseAt = now.Add(ipc.PulseTime)
	for _, c := range s.clients.list {
		if c != nil && c.rings != nil {
			c.rings.BeatPulse()
		}
	}
	if now < s.links.countAt {
		return
	}
	s.links.countAt = now.Add(countTime)
	for _, l := range s.links.active {
		if l.drv != nil {
			_, _ = l.drv.Stats() // adds them up
		}
	}
}

// clientsPoll reports whether some client has said that it polls, whether another works, and whether such a one seems
// to run on the shard's core: it has taken what it was given, or submitted something, and neither polls nor sleeps
// since.
func (s *Shard) clientsPoll() (polling, working, here bool) {
	for _, c := range s.clients.list {
		switch {
		case c == nil || c.rings == nil:
		case c.rings.ClientPolling() != ipc.NotPolling:
			polling, c.ring.took = true, false
		case c.ring.took:
			if c.ring.took = !c.rings.ClientAsleep(); c.ring.took {
				working, here = true, here || c.ring.shares
			}
		}
	}
	return polling, working, here
}

// Start starts the shard's thread and adds it to a group, which waits for its end. The kernel's scheduler places it on
// the processors that the process may use.
func (s *Shard) Start(group *sync.WaitGroup) {
	s.starting.Lock()
	s.running.Store(true)
	s.starting.Unlock()
	group.Go(func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer s.hurry(false) // the thread is the runtime's again
		s.runner.thread.Store(int32(unix.Gettid()))
		unix.Prctl(unix.PR_SET_TIMERSLACK, threadSlack, 0, 0, 0) // whoever made the thread may have another
		s.run()
	})
}

// Do runs f as the shard, on its thread or, before it is started, on the caller's, and returns when it has ended.
func (s *Shard) Do(f func(mono.Time)) error {
	if s.running.Load() || s.started() {
		return s.box.do(f)
	}
	defer s.starting.Unlock()
	f(mono.Now())
	return nil
}

// started reports whether the thread was started. If not, the caller holds starting.
func (s *Shard) started() bool {
	s.starting.Lock()
	if s.running.Load() {
		s.starting.Unlock()
		return true
	}
	return false
}

// Stop ends the shard's thread. It does not wait.
func (s *Shard) Stop() {
	s.stopping.Store(true)
	s.box.wake()
}

// Shutdown tells the peers, closes every link and detaches every client. What clients still own is theirs to release
// (Client.Gone is closed). The thread calls it; so does the owner of a shard that was never started.
func (s *Shard) Shutdown() {
	now := mono.Now()
	s.stopping.Store(true)
	s.box.close(now) // first: a client or a driver that comes after the others were released would never be
	for _, c := range s.clients.list {
		if c != nil {
			s.detach(now, c)
			s.dropConns(now, c, math.MaxInt)
		}
	}
	for range 8 { // the frames that say so; nothing waits for answers
		s.handleEvents(now)
		if !s.transmit(now) {
			break
		}
	}
	for _, l := range s.links.active {
		s.DropDriver(now, l)
	}
	s.handleEvents(now)
	for _, c := range s.clients.list {
		if c != nil {
			c.regions.all(func(r *regmem.Region) { s.dropReaped(now, r) })
			s.free(c)
		}
	}
	s.handshaker.stop(now, s.eng)
	if s.links.receivers != nil {
		s.links.receivers.stop()
	}
	s.close()
}

// Number is the shard's among the daemon's, from 0.
func (s *Shard) Number() int { return s.number }

// Window is how many operations of a connection may be in flight.
func (s *Shard) Window() int { return s.window }

// Engine is the shard's transport, for functions that run by Do.
func (s *Shard) Engine() *engine.Endpoint { return s.eng }

// Exchange exchanges pages of regions; nil: none are exchanged.
func (s *Shard) Exchange() *Exchange { return s.exchange }

// Beat is when the shard last went round; mono.Never: it sleeps, because there is nothing to do.
func (s *Shard) Beat() mono.Time { return mono.Time(s.runner.beat.Load()) }

// Threads are the numbers that the kernel has given the shard's thread and its receivers'.
func (s *Shard) Threads() (own int, receivers []int) {
	if s.links.receivers != nil {
		for _, r := range s.links.receivers.all {
			receivers = append(receivers, int(r.thread.Load()))
		}
	}
	return int(s.runner.thread.Load()), receivers
}

// SetLimits changes what clients may hold from now on. It runs by Do.
func (s *Shard) SetLimits(l config.Limits) { s.limits = l }

// SetDraining makes the shard refuse new connections and memory, or take them again. It runs by Do.
func (s *Shard) SetDraining(on bool) { s.draining = on }
