package edge

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"multiedge/internal/ipc"
)

// attachTime bounds the greeting when ctx does not.
const attachTime = 10 * time.Second

// attach greets the daemon at the other end of ctl and builds the Device. It consumes ctl, and release on error.
func attach(ctx context.Context, ctl *ipc.Conn, cfg Config, drive driver, release func() error) (*Device, error) {
	d := newDevice(cfg)
	d.release = release
	if err := d.start(ctx, ctl, drive); err != nil {
		if release != nil {
			release()
		}
		return nil, err
	}
	return d, nil
}

// start makes the first attachment.
func (d *Device) start(ctx context.Context, ctl *ipc.Conn, drive driver) error {
	a, err := d.greet(ctx, ctl)
	if err != nil {
		return err
	}
	a.drive = drive
	close(a.life.ready)
	d.at.Store(a)
	d.attached.Add(1)
	go a.readLoop()
	if d.reopen != nil {
		go d.supervise()
	}
	return nil
}

func newDevice(cfg Config) *Device {
	d := &Device{
		cfg: cfg, listeners: map[string]*Listener{}, regions: map[*Region]struct{}{},
		wanted: make(chan chan error), supervised: make(chan struct{}),
	}
	d.life, d.stop = context.WithCancel(context.Background())
	return d
}

// greet consumes ctl on error.
func (d *Device) greet(ctx context.Context, ctl *ipc.Conn) (_ *attachment, err error) {
	defer func() {
		if err != nil {
			ctl.Close()
		}
	}()
	cfg := &d.cfg
	ctx, cancel := context.WithTimeout(ctx, attachTime)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { ctl.Close() })
	hello := ipc.Hello(cfg.QueueDepth)
	hello.Name = programName()
	err = ctl.Send(hello)
	var m *ipc.Message
	var fds []int
	if err == nil {
		m, fds, err = ctl.RecvFDs()
	}
	if !stop() {
		ipc.CloseFDs(fds)
		return nil, fmt.Errorf("edge: the daemon does not answer; look at its log: %w", context.Cause(ctx))
	}
	if err != nil {
		return nil, fmt.Errorf("%w: while attaching: %v; its log says why, and a daemon that does not understand this "+
			"library is older: upgrade it, or restart it if that was done", ErrDaemonDown, err)
	}
	if err := checkHello(hello, m, fds); err != nil {
		ipc.CloseFDs(fds)
		return nil, err
	}
	rings, err := ipc.MapRings(fds[0], m.Rings)
	if err != nil {
		ipc.CloseFDs(fds)
		return nil, err
	}
	bell, err := ipc.WatcherFromFD(fds[2])
	if err != nil {
		rings.Close()
		ipc.CloseFDs(fds)
		return nil, err
	}
	ipc.CloseFDs(fds[:1])
	return newAttachment(d, ctl, m, rings, ipc.DoorbellFromFD(fds[1]), bell), nil
}

func checkHello(hello, m *ipc.Message, fds []int) error {
	switch {
	case m.Kind != ipc.KindHello || m.ID != hello.ID || !m.Answer:
		return fmt.Errorf("%w: the daemon answered hello with %s %d", ErrVersion, m.Kind, m.ID)
	case m.Error != nil:
		return errorFor(m.Error.Code, m.Error.Text)
	case len(fds) != 3:
		return fmt.Errorf("%w: the daemon sent %d descriptors instead of 3", ErrVersion, len(fds))
	}
	if err := hello.CheckReply(&m.Greeting); err != nil {
		return fmt.Errorf("%w: %w", ErrVersion, err)
	}
	return nil
}

func newAttachment(dev *Device, ctl *ipc.Conn, hello *ipc.Message, rings *ipc.Rings, submit *ipc.Doorbell,
	bell *ipc.Watcher) *attachment {
	depth := rings.Layout().Depth()
	d := &attachment{
		dev: dev, cfg: dev.cfg, node: hello.Node, name: hello.Name, window: hello.Window,
		features: hello.Features, flags: ^ipc.Flags(0),
		ctl: ctl, rings: rings,
		out: submission{sq: rings.SubmitProducer(), submit: submit},
		slots: slotTable{list: make([]slot, 2*depth), free: make([]uint32, depth),
			extras: make([]extra, 2*depth)},
		conns:   connTable{byNumber: map[uint32]*Conn{}},
		wakeups: wakeups{bell: bell},
		life: lifetime{
			deadCh: make(chan struct{}), readDone: make(chan struct{}), ready: make(chan struct{}),
			flushed: make(chan struct{}),
		},
		bounceTurn: make(chan struct{}, 1), registering: make(chan struct{}, 1),
	}
	if d.features&ipc.FeatureLocal == 0 {
		d.flags &^= ipc.FlagLocal // such a write is done later
	}
	d.slots.receives.init(depth)
	if d.window <= 0 || d.window > depth {
		d.window = depth
	}
	for i := range d.slots.free {
		d.slots.free[i] = uint32(i)
	}
	d.lead.freed = uint32(depth)
	d.slots.freeTail.Store(d.lead.freed)
	d.wakeups.kickFunc = d.kick
	d.lead.free = sync.NewCond(&d.lead.mu)
	d.lead.cq = rings.CompleteConsumer()
	d.lead.strategy.patience.Base = d.cfg.Spin
	d.calls.pending = map[uint64]*call{}
	d.calls.next = 2
	return d
}

// programName is what edgectl client shows of this process.
func programName() string {
	name := filepath.Base(os.Args[0])
	return strings.ToValidUTF8(name[:min(len(name), ipc.MaxName)], "?")
}
