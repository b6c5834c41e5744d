package daemon

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"multiedge/flowctl"
	"multiedge/internal/engine"
	"multiedge/internal/ipc"
	"multiedge/internal/mono"
	"multiedge/linkdrv"
	"multiedge/regmem"

	"golang.org/x/sys/unix"
)

// Options are what a configuration file cannot carry. The zero value is what edged uses, but for the log.
type Options struct {
	Log     *slog.Logger // nil: nothing is logged
	Version string       // of the program, for status

	// Open opens a link; nil means linkdrv.Open. In-memory networks and tests inject their drivers here.
	Open func(Link, linkdrv.Options) (linkdrv.Driver, error)
	// Watch reports changes of links; nil means linkdrv.Watch, or with a custom Open that links never change.
	Watch func(ctx context.Context, sink func(linkdrv.Event)) error
}

// Daemon is the transport of one node. Make it by New, run it by Run once.
type Daemon struct {
	cfg      Config
	log      *slog.Logger
	version  string
	node     engine.NodeID
	epoch    uint64
	began    time.Time
	shard    *shard
	accounts *accounts
	keeper   *keeper
	open     func(Link, linkdrv.Options) (linkdrv.Driver, error)
	watch    func(ctx context.Context, sink func(linkdrv.Event)) error
	ns       int            // network namespace of the links if it is not the process's; else -1
	lock     *os.File       // nil: embedded
	listener *ipc.Listener  // nil: embedded
	running  atomic.Bool    // the shard's thread runs
	ready    chan struct{}  // closed when clients are served
	stopped  chan struct{}  // closed when the daemon begins to stop
	tasks    sync.WaitGroup // keeper, guard, sessions

	mu       sync.Mutex
	sessions map[*session]struct{}
	closing  bool
}

// New takes the control socket, opens the links and returns a daemon ready to Run. Errors say what to do. Whoever gets a Daemon must Run it, if
// only with a context that is done, or Close it: it holds descriptors.
func New(cfg Config, o Options) (*Daemon, error) {
	d, err := prepare(cfg, o)
	if err != nil {
		return nil, err
	}
	if d.lock, err = lockSocket(d.cfg.Socket); err != nil {
		d.Close()
		return nil, err
	}
	if err = d.keeper.start(); err == nil {
		d.listener, err = listenSocket(&d.cfg)
	}
	if err != nil {
		d.Close()
		return nil, err
	}
	return d, nil
}

// prepare makes everything that touches neither links nor the file system.
func prepare(cfg Config, o Options) (*Daemon, error) {
	if err := cfg.Normalize(); err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	d := &Daemon{
		cfg: cfg, log: o.Log, version: o.Version, node: identity(&cfg), epoch: randomNonZero(), began: time.Now(),
		accounts: newAccounts(cfg.Limits), open: o.Open, watch: o.Watch, ns: otherNamespace(),
		ready: make(chan struct{}), stopped: make(chan struct{}), sessions: map[*session]struct{}{},
	}
	if d.log == nil {
		d.log = slog.New(slog.DiscardHandler)
	}
	if d.open == nil {
		d.open = func(l Link, o linkdrv.Options) (linkdrv.Driver, error) { return linkdrv.Open(l.Name, o) }
		if d.watch == nil {
			d.watch = linkdrv.Watch
		}
	}
	var err error
	if d.shard, err = newShard(d); err != nil {
		d.closeNamespace()
		return nil, err
	}
	d.keeper = &keeper{d: d, kicks: make(chan string, engine.MaxLinks), jobs: make(chan func())}
	for _, l := range cfg.Links {
		d.keeper.links = append(d.keeper.links, &kept{cfg: l, slot: d.shard.addLink(l)})
	}
	return d, nil
}

func newShard(d *Daemon) (*shard, error) {
	cfg := &d.cfg
	profile, err := flowctl.ProfileByName(cfg.Profile)
	if err != nil {
		return nil, err
	}
	if cfg.Window > 0 {
		profile.Window = cfg.Window
	}
	s := &shard{
		grants: regmem.NewTable(rand.Reader), limits: cfg.Limits, window: cfg.OpWindow, log: d.log,
		wait:  waiter{mode: cfg.Poll, spin: cfg.Spin},
		conns: map[engine.ConnID]*conn{}, services: map[string]*client{}, pings: map[engine.ConnID]*ping{},
	}
	checksum := engine.ChecksumFull
	if cfg.Checksum == "header" {
		checksum = engine.ChecksumHeader
	}
	s.eng, err = engine.New(engine.Config{
		Node: d.node, Name: cfg.Name, Epoch: d.epoch, Seed: randomNonZero(), EtherType: cfg.EtherType, Checksum: checksum,
		Scheduler: cfg.Scheduler, Profile: profile, OpWindow: cfg.OpWindow, DialTime: cfg.DialTimeout, DeadTime: cfg.DeadTime,
		KeepAlive: cfg.KeepAlive, HelloTime: cfg.HelloTime, Grants: s.grants,
	})
	if err != nil {
		return nil, err
	}
	if s.box, err = newMailbox(); err != nil {
		return nil, err
	}
	if s.doorbells, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		s.box.close(0)
		return nil, fmt.Errorf("epoll: %w", err)
	}
	s.reopen = func(name string) {
		select {
		case d.keeper.kicks <- name:
		default: // full: as many kicks as links can exist are queued, so this link's is among them
		}
	}
	return s, nil
}

// addLink gives a configured link the first free number.
func (s *shard) addLink(cfg Link) *link {
	for i := range s.byIndex {
		if s.byIndex[i] == nil {
			l := &link{index: i, cfg: cfg}
			s.byIndex[i] = l
			s.active = append(s.active, l)
			return l
		}
	}
	panic("BUG: daemon: more links than Normalize allows")
}

// Run serves until ctx is done, then tells the peers, releases everything and returns nil. An error means that the daemon could not go on.
func (d *Daemon) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	shardDone := d.startShard(ctx)
	failed := make(chan error, 1)
	if d.listener != nil {
		d.tasks.Go(func() {
			if err := d.accept(); err != nil {
				failed <- err
			}
		})
		d.log.Info("serving", "name", d.cfg.Name, "node", d.node.String(), "socket", d.cfg.Socket, "links", len(d.cfg.Links))
	}
	close(d.ready)
	var err error
	select {
	case <-ctx.Done():
	case err = <-failed:
	}
	close(d.stopped)
	cancel()
	d.stop(shardDone)
	return err
}

// leastProcs is how many goroutines must be able to run at once, whatever the number of cores: the shard's thread polls without letting go, and
// on a single P everything else in the process would wait for the runtime to preempt it, which takes it up to 10 ms.
const leastProcs = 4

// startShard starts the shard's thread and what serves it.
func (d *Daemon) startShard(ctx context.Context) (done chan struct{}) {
	if runtime.GOMAXPROCS(0) < leastProcs {
		runtime.GOMAXPROCS(leastProcs)
	}
	done = make(chan struct{})
	d.running.Store(true)
	go func() {
		defer close(done)
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		d.shard.run()
	}()
	d.tasks.Go(func() { d.keeper.run(ctx, d.ns) })
	d.tasks.Go(func() { d.guard(ctx) })
	return done
}

// stop ends what startShard and accept began, in the order in which nobody waits for somebody who has gone.
func (d *Daemon) stop(shardDone chan struct{}) {
	if d.listener != nil {
		d.listener.Close()
	}
	d.shard.stop()
	<-shardDone
	d.mu.Lock()
	d.closing = true
	for ss := range d.sessions {
		ss.end()
	}
	d.mu.Unlock()
	d.tasks.Wait()
	d.closeFiles()
}

// Close releases a Daemon that was never run.
func (d *Daemon) Close() {
	if d.running.Load() {
		return
	}
	if d.listener != nil {
		d.listener.Close()
	}
	d.shard.shutdown()
	d.closeFiles()
}

func (d *Daemon) closeFiles() {
	if d.lock != nil {
		d.lock.Close()
		d.lock = nil
	}
	d.closeNamespace()
}

func (d *Daemon) closeNamespace() {
	if d.ns >= 0 {
		unix.Close(d.ns)
		d.ns = -1
	}
}

// onShard runs f as the shard, on its thread or, before there is one, on this.
func (d *Daemon) onShard(f func(mono.Time)) error {
	if d.running.Load() {
		return d.shard.box.do(f)
	}
	f(mono.Now())
	return nil
}

// Ready is closed when clients are served.
func (d *Daemon) Ready() <-chan struct{} { return d.ready }

// Alive reports whether the shard went round within the given time, or sleeps because there is nothing to do.
func (d *Daemon) Alive(within time.Duration) bool {
	return mono.Time(d.shard.beat.Load()).Add(within) >= mono.Now()
}

// Node returns what peers dial.
func (d *Daemon) Node() (name, id string) { return d.cfg.Name, d.node.String() }

// Config returns the configuration with every default filled in.
func (d *Daemon) Config() Config { return d.cfg }
