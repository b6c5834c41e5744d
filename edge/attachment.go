package edge

import (
	"sync"
	"sync/atomic"

	"multiedge/internal/ipc"
)

// attachment is one attachment to a daemon: its queues, and everything that exists in that daemon. It ends with the
// daemon; the Device then makes another. Whatever names a thing by the daemon's numbers (operations, connections,
// regions) holds the attachment that the numbers belong to. So nothing of an old daemon ever reaches a new one.
//
// post and leadership are never held together with a wait for the daemon.
type attachment struct {
	dev        *Device
	cfg        Config
	node, name string
	window     int // operations in flight per connection
	features   ipc.Features
	flags      ipc.Flags // of operations, that the daemon knows

	ctl   *ipc.Conn
	rings *ipc.Rings
	drive driver // embedded: runs the transport in the goroutine that waits; nil otherwise

	out     submission
	slots   slotTable
	lead    leadership // guards the completion ring, see wait.go
	conns   connTable
	wakeups wakeups
	life    lifetime
	counts  callCounts

	bounce     atomic.Pointer[bounceArena] // of ReadAt and WriteAt
	bounceTurn chan struct{}               // full while somebody makes bounce

	calls       callTable
	registering chan struct{} // full while somebody registers memory

	news     atomic.Uint64 // rounds of the ring that found something, and connections that ended
	newsSeen atomic.Uint64 // of them, those before the latest Poll
}

// submission is the producer's side of the submission ring. post guards all of it but the atomics.
type submission struct {
	post      sync.Mutex
	sq        *ipc.SubmitProducer
	sqe       ipc.SQE // scratch
	pieces    ipc.SQE // likewise, for entries before it; an OpPieces or OpBytes
	freeHead  uint32  // of slotTable.free: operations posted
	posted    uint64  // operations
	owing     []*Conn // connections whose credit found no room
	detached  bool    // rings are unmapped
	owingFlag atomic.Bool
	// the ring had no room for credit that is owed; no doorbell tells of room, so the leader looks again soon
	ringFull atomic.Bool
	submit   *ipc.Doorbell // wakes the daemon
}

// slotTable has a slot for each operation in flight.
type slotTable struct {
	list     []slot
	free     []uint32 // ring of free slots: posting takes at freeHead, the leader adds at freeTail
	freeTail atomic.Uint32
	gather   gather
	failed   failures
	extras   []extra
	receives receives
}

// connTable holds the connections by the daemon's number. mu guards it.
type connTable struct {
	mu       sync.Mutex
	byNumber map[uint32]*Conn
	dialing  int                  // dials whose answer is awaited
	orphans  map[uint32][]ipc.CQE // notifications that overtook the answer to a dial
}

// wakeups is how others make a blocked leader look again.
type wakeups struct {
	bell     *ipc.Watcher
	bellMu   sync.RWMutex // kick against the closing of bell
	bellGone bool
	kickFunc func() // kick, made once: a method value allocates
}

// lifetime records the end of an attachment, and whether its daemon runs.
type lifetime struct {
	dead     atomic.Pointer[deadState]
	deadCh   chan struct{} // closed once dead is set
	ready    chan struct{} // closed once the services of the Device's Listeners were offered
	dying    sync.Once
	readDone chan struct{}
	ending   sync.Once
	flushed  chan struct{} // closed once the operations that can no longer complete are reported as ended

	pulse  pulse
	silent atomic.Bool // the daemon has not run for some time
}

type deadState struct{ err error }

// kick makes a leader that is blocked look again.
func (d *attachment) kick() {
	d.wakeups.bellMu.RLock()
	defer d.wakeups.bellMu.RUnlock()
	if !d.wakeups.bellGone {
		d.counts.kicked.Add(1)
		d.wakeups.bell.Ring()
	}
}

// Err returns nil while the daemon is there, and why nothing works any more.
func (d *attachment) Err() error {
	if s := d.life.dead.Load(); s != nil {
		return s.err
	}
	return nil
}

// fail ends the attachment: what completed before stays completed, everything else ends with err. Only the first call
// counts. It must not be called by the leader.
func (d *attachment) fail(err error) {
	d.life.dying.Do(func() {
		d.sync() // completions that arrived before the end still count
		d.life.dead.Store(&deadState{err})
		close(d.life.deadCh)
		d.lead.wakeAll(true)
		d.kick()
		d.flushQueues(err)
		d.calls.failAll()
		d.conns.mu.Lock()
		conns := make([]*Conn, 0, len(d.conns.byNumber))
		for _, c := range d.conns.byNumber {
			conns = append(conns, c)
		}
		d.conns.mu.Unlock()
		for _, c := range conns {
			c.fail(err)
		}
		d.dev.attachmentEnded(err)
		d.news.Add(1)
		d.dev.progress()
	})
}

// end waits until nobody uses the rings and gives everything back but registered memory, which is the Device's to
// unmap. The attachment is dead already.
func (d *attachment) end() {
	d.life.ending.Do(func() {
		d.ctl.Close()
		<-d.life.readDone
		d.detach()
	})
}

func (d *attachment) detach() {
	d.lead.seize()
	d.out.post.Lock()
	d.out.detached = true
	d.dev.posted.Add(d.out.posted)
	d.out.posted = 0
	d.rings.Close()
	d.out.submit.Close()
	d.out.post.Unlock()
	d.lead.cancel.drop()
	d.dev.pollMu.Lock()
	if p := d.dev.poller; p != nil {
		p.forget(d.wakeups.bell)
	}
	d.wakeups.bellMu.Lock()
	d.wakeups.bell.Close()
	d.wakeups.bellGone = true
	d.wakeups.bellMu.Unlock()
	d.dev.pollMu.Unlock()
	if a := d.bounce.Load(); a != nil {
		a.retire()
	}
}
