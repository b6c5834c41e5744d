package edge

import (
	"sync"
	"sync/atomic"

	"multiedge/internal/ipc"
)

// attachment is one acquaintance with a daemon: its queues, and what exists by that daemon's leave. It ends with the daemon; the Device then makes
// another. Whatever names a thing by the daemon's numbers (operations, connections, regions) holds the attachment that the numbers belong to, so that
// nothing of an old daemon ever reaches a new one.
//
// What guards what: post the submission ring; leadership (see wait.go) the completion ring; connMu the table of connections; callMu the
// requests that wait for the daemon. post and leadership are never held together with a wait for the daemon.
type attachment struct {
	dev        *Device
	cfg        Config
	node, name string
	window     int // operations in flight per connection

	ctl    *ipc.Conn
	rings  *ipc.Rings
	submit *ipc.Doorbell // wakes the daemon
	bell   *ipc.Doorbell // wakes our leader
	drive  driver        // embedded: runs the transport in the goroutine that waits; nil otherwise

	post      sync.Mutex
	sq        *ipc.SubmitProducer
	sqe       ipc.SQE // scratch
	freeHead  uint32  // of free: operations posted
	owing     []*Conn // connections whose credit found no room
	detached  bool    // rings are unmapped
	owingFlag atomic.Bool
	ringFull  atomic.Bool // credit is owed for want of room in the ring, of which no doorbell tells: the leader looks again soon

	slots    []slot
	free     []uint32 // ring of free slots: posting takes at freeHead, the leader adds at freeTail
	freeTail atomic.Uint32
	gather   gather
	failed   failures

	lead leadership

	connMu     sync.Mutex
	conns      map[uint32]*Conn
	dialing    int                         // dials whose answer is awaited
	orphans    map[uint32][]ipc.CQE        // notifications that overtook the answer to a dial
	bounce     atomic.Pointer[bounceArena] // of ReadAt and WriteAt
	bounceTurn chan struct{}               // full while somebody makes bounce

	calls callTable

	dead     atomic.Pointer[deadState]
	deadCh   chan struct{} // closed once dead is set
	ready    chan struct{} // closed once the services of the Device's Listeners were offered
	dying    sync.Once
	readDone chan struct{}
	ending   sync.Once

	bellMu   sync.RWMutex // kick against the closing of bell
	bellGone bool
	kickFunc func() // kick, made once: a method value allocates

	pulse  pulse
	silent atomic.Bool // the daemon has not run for some time

	news     atomic.Uint64 // rounds of the ring that found something, and connections that ended
	newsSeen atomic.Uint64 // of them, those before the latest Poll
}

type deadState struct{ err error }

// kick makes a leader that is blocked look again.
func (d *attachment) kick() {
	d.bellMu.RLock()
	defer d.bellMu.RUnlock()
	if !d.bellGone {
		d.bell.Ring()
	}
}

// Err returns nil while the daemon is there, and why nothing works any more.
func (d *attachment) Err() error {
	if s := d.dead.Load(); s != nil {
		return s.err
	}
	return nil
}

// fail ends the attachment: what completed before stays completed, everything else ends with err. Only the first call counts.
// It must not be called by the leader.
func (d *attachment) fail(err error) {
	d.dying.Do(func() {
		d.sync() // completions that arrived before the end still count
		d.dead.Store(&deadState{err})
		close(d.deadCh)
		d.lead.wakeAll(true)
		d.kick()
		d.calls.failAll()
		d.connMu.Lock()
		conns := make([]*Conn, 0, len(d.conns))
		for _, c := range d.conns {
			conns = append(conns, c)
		}
		d.connMu.Unlock()
		for _, c := range conns {
			c.fail(err)
		}
		d.dev.bereaved(err)
		d.news.Add(1)
		d.dev.progress()
	})
}

// end waits until nobody uses the rings and gives everything back but registered memory, which is the Device's to unmap. The attachment is
// dead already.
func (d *attachment) end() {
	d.ending.Do(func() {
		d.ctl.Close()
		<-d.readDone
		d.detach()
	})
}

func (d *attachment) detach() {
	d.lead.seize()
	d.post.Lock()
	d.detached = true
	d.rings.Close()
	d.submit.Close()
	d.post.Unlock()
	d.lead.cancel.drop()
	d.dev.pollMu.Lock()
	if p := d.dev.poller; p != nil {
		p.forget(d.bell)
	}
	d.bellMu.Lock()
	d.bell.Close()
	d.bellGone = true
	d.bellMu.Unlock()
	d.dev.pollMu.Unlock()
	if a := d.bounce.Load(); a != nil {
		a.retire()
		d.dev.unmap(a.region)
	}
}
