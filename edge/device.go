package edge

import (
	"context"
	"net"
	"sync"
	"sync/atomic"

	"multiedge/internal/ipc"
)

// Device is the way to the transport. It may be used by any number of goroutines; its connections share its queues.
// When its daemon goes away the Device attaches to the next one, see reattach.go.
type Device struct {
	cfg Config
	at  atomic.Pointer[attachment] // the present one, or the last
	// reaches the daemon again; nil: the end of the attachment is the Device's
	reopen  func(context.Context) (*ipc.Conn, error)
	release func() error // embedded: ends the transport; nil otherwise

	mu        sync.Mutex
	listeners map[string]*Listener
	regions   map[*Region]struct{} // mapped, of all attachments; nil once closed

	life       context.Context // ends with Close
	stop       context.CancelFunc
	wanted     chan chan error // asks that attaching be tried now; answered with what came of it
	supervised chan struct{}   // closed when supervise has ended
	closing    sync.Once
	closeErr   error

	attached atomic.Uint64 // daemons so far
	posted   atomic.Uint64 // operations, on attachments that have ended
	failures atomic.Uint64 // operations that failed

	pollMu      sync.Mutex
	poller      *poller
	looped      atomic.Bool // poller is set
	pollerArmed atomic.Bool
}

// Open attaches to the daemon, or starts the transport in this process when cfg.Embedded is set. ctx bounds the
// attaching only.
func Open(ctx context.Context, cfg Config) (*Device, error) {
	if err := cfg.normalize(); err != nil {
		return nil, err
	}
	if cfg.Embedded != nil {
		return openEmbedded(ctx, cfg)
	}
	d := newDevice(cfg)
	d.reopen = func(ctx context.Context) (*ipc.Conn, error) {
		ctl, err := ipc.Dial(ctx, cfg.Socket)
		if err != nil {
			return nil, dialDaemonError(cfg.Socket, err)
		}
		return ctl, nil
	}
	ctl, err := d.reopen(ctx)
	if err != nil {
		return nil, err
	}
	if err := d.start(ctx, ctl, nil); err != nil {
		return nil, err
	}
	return d, nil
}

// Name returns the name of the local node: what peers dial.
func (d *Device) Name() string { return d.at.Load().name }

// Node returns the identity of the local node in hexadecimal. It also serves as a peer's name.
func (d *Device) Node() string { return d.at.Load().node }

// Close ends the attachment at once: connections are aborted, operations in flight fail with net.ErrClosed, and all
// regions are unmapped: no slice of Region.Bytes may be used afterwards. An event loop that waits for the descriptor of
// PollFD is woken. Close connections first to end in good order.
func (d *Device) Close() error {
	d.closing.Do(func() {
		d.stop()
		if d.reopen != nil {
			<-d.supervised
		}
		a := d.at.Load()
		d.returnHeap(a)
		a.fail(net.ErrClosed)
		a.end()
		d.failListeners(net.ErrClosed)
		d.disarm()
		d.unmapAll()
		if d.release != nil {
			d.closeErr = d.release()
		}
	})
	return d.closeErr
}

// Err returns nil while the Device works. ErrDaemonDown says that it is looking for a daemon to attach to; any other
// error is final.
func (d *Device) Err() error {
	if d.life.Err() != nil {
		return net.ErrClosed
	}
	return d.at.Load().Err()
}

// attachmentEnded fails the listeners of a Device that cannot attach again.
func (d *Device) attachmentEnded(err error) {
	if d.reopen == nil {
		d.failListeners(err)
	}
}

func (d *Device) failListeners(err error) {
	d.mu.Lock()
	listeners := make([]*Listener, 0, len(d.listeners))
	for _, l := range d.listeners {
		listeners = append(listeners, l)
	}
	d.mu.Unlock()
	for _, l := range listeners {
		l.fail(err)
	}
}

// keep enters a region that is mapped. It reports false when the Device is closed.
func (d *Device) keep(r *Region) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.regions == nil {
		return false
	}
	d.regions[r] = struct{}{}
	return true
}

// unmap takes the memory of a region away, unless that was done before.
func (d *Device) unmap(r *Region) error {
	d.mu.Lock()
	_, mine := d.regions[r]
	delete(d.regions, r)
	d.mu.Unlock()
	if !mine {
		return nil
	}
	return r.unmap()
}

func (d *Device) unmapAll() {
	d.mu.Lock()
	regions := d.regions
	d.regions = nil
	d.mu.Unlock()
	for r := range regions {
		r.unmap()
	}
}
