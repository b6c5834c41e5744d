package edge

import (
	"context"
	"net"
	"sync"
	"sync/atomic"

	"multiedge/internal/ipc"
)

// Device is an attachment to the transport. It may be used by any number of goroutines; its connections share its queues.
//
// What guards what: post the submission ring; leadership (see wait.go) the completion ring; connMu the tables of connections and
// listeners; callMu the requests that wait for the daemon. post and leadership are never held together with a wait for the daemon.
type Device struct {
	cfg        Config
	node, name string
	window     int // operations in flight per connection

	ctl     *ipc.Conn
	rings   *ipc.Rings
	submit  *ipc.Doorbell // wakes the daemon
	bell    *ipc.Doorbell // wakes our leader
	drive   driver        // embedded: runs the transport in the goroutine that waits; nil otherwise
	release func() error  // embedded: ends the transport; nil otherwise

	post      sync.Mutex
	sq        *ipc.SubmitProducer
	sqe       ipc.SQE // scratch
	freeHead  uint32  // of free
	owing     []*Conn // connections whose credit did not fit in the ring
	detached  bool    // rings are unmapped
	owingFlag atomic.Bool

	slots    []slot
	free     []uint32 // ring of free slots: posting takes at freeHead, the leader adds at freeTail
	freeTail atomic.Uint32
	failed   failures

	lead leadership

	connMu    sync.Mutex
	conns     map[uint32]*Conn
	listeners map[string]*Listener
	regions   map[*Region]struct{}
	dialing   int                         // dials whose answer is awaited
	orphans   map[uint32][]ipc.CQE        // notifications that overtook the answer to a dial
	bounce    atomic.Pointer[bounceArena] // of ReadAt and WriteAt
	bounceMu  sync.Mutex                  // creation of bounce

	calls callTable

	dead     atomic.Pointer[deadState]
	deadCh   chan struct{} // closed once dead is set
	dying    sync.Once
	readDone chan struct{}
	closing  sync.Once
	closeErr error

	bellMu   sync.RWMutex // kick against the closing of bell
	bellGone bool
	kickFunc func() // kick, made once: a method value allocates

	pollMu      sync.Mutex
	poller      *poller
	pollerArmed atomic.Bool
	news        atomic.Uint64 // rounds of the ring that found something, and connections that ended
	newsSeen    atomic.Uint64 // of them, those before the latest Poll
}

// kick makes a leader that is blocked look again.
func (d *Device) kick() {
	d.bellMu.RLock()
	defer d.bellMu.RUnlock()
	if !d.bellGone {
		d.bell.Ring()
	}
}

type deadState struct{ err error }

// Open attaches to the daemon, or starts the transport in this process when cfg.Embedded is set. ctx bounds the attaching only.
func Open(ctx context.Context, cfg Config) (*Device, error) {
	if err := cfg.normalize(); err != nil {
		return nil, err
	}
	if cfg.Embedded != nil {
		return openEmbedded(ctx, cfg)
	}
	ctl, err := ipc.Dial(ctx, cfg.Socket)
	if err != nil {
		return nil, dialDaemonError(cfg.Socket, err)
	}
	return attach(ctx, ctl, cfg, nil, nil)
}

// Name returns the name of the local node: what peers dial.
func (d *Device) Name() string { return d.name }

// Node returns the identity of the local node in hexadecimal. It also serves as a peer's name.
func (d *Device) Node() string { return d.node }

// Close ends the attachment at once: connections are aborted, operations in flight fail with net.ErrClosed, and all regions
// are unmapped: no slice of Region.Bytes may be used afterwards. Close connections first to end in good order.
func (d *Device) Close() error {
	d.closing.Do(func() {
		d.fail(net.ErrClosed)
		d.ctl.Close()
		<-d.readDone
		d.detach()
		if d.release != nil {
			d.closeErr = d.release()
		}
	})
	return d.closeErr
}

// Err returns nil while the Device works, and why it does not any more.
func (d *Device) Err() error {
	if s := d.dead.Load(); s != nil {
		return s.err
	}
	return nil
}

// fail ends the Device: what completed before stays completed, everything else ends with err. Only the first call counts.
// It must not be called by the leader.
func (d *Device) fail(err error) {
	d.dying.Do(func() {
		d.sync() // completions that arrived before the end still count
		d.dead.Store(&deadState{err})
		close(d.deadCh)
		d.lead.wakeAll(true)
		d.kick()
		d.calls.failAll()
		d.connMu.Lock()
		conns, listeners := make([]*Conn, 0, len(d.conns)), make([]*Listener, 0, len(d.listeners))
		for _, c := range d.conns {
			conns = append(conns, c)
		}
		for _, l := range d.listeners {
			listeners = append(listeners, l)
		}
		d.connMu.Unlock()
		for _, c := range conns {
			c.fail(err)
		}
		for _, l := range listeners {
			l.fail(err)
		}
		d.pollMu.Lock()
		if d.poller != nil {
			d.poller.bell.Ring()
		}
		d.pollMu.Unlock()
	})
}

// detach waits until nobody uses the rings and gives everything back. The Device is dead already.
func (d *Device) detach() {
	d.lead.seize()
	d.post.Lock()
	d.detached = true
	d.rings.Close()
	d.submit.Close()
	d.post.Unlock()
	d.lead.cancel.drop()
	d.pollMu.Lock()
	d.bellMu.Lock()
	d.bell.Close()
	d.bellGone = true
	d.bellMu.Unlock()
	if d.poller != nil {
		d.poller.close()
	}
	d.pollMu.Unlock()
	if a := d.bounce.Load(); a != nil {
		a.retire()
	}
	d.connMu.Lock()
	regions := d.regions
	d.regions = nil
	d.connMu.Unlock()
	for r := range regions {
		r.mem.Close()
	}
}
