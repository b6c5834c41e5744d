package daemon

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"multiedge/flowctl"
	"multiedge/internal/engine"
	"multiedge/internal/idle"
	"multiedge/internal/ipc"
	"multiedge/internal/mono"
	"multiedge/internal/secure"
	"multiedge/linkdrv"
	"multiedge/regmem"

	"golang.org/x/sys/unix"
)

// Options are what a configuration file cannot carry. The zero value is what edged uses, but for the log.
type Options struct {
	Log     *slog.Logger // nil: nothing is logged
	Version string       // of the program, for status

	// Key is who the node is; nil: what Config.KeyFile holds, and an embedded node with no KeyFile gets a key of its own for this run.
	Key *secure.PrivateKey

	inline bool // peers are those of the configuration alone, no file is read

	// Open opens a link; nil means linkdrv.Open. In-memory networks and tests inject their drivers here.
	Open func(Link, linkdrv.Options) (linkdrv.Driver, error)
	// Watch reports changes of links; nil means linkdrv.Watch, or with a custom Open that links never change.
	Watch func(ctx context.Context, sink func(linkdrv.Event)) error

	after func(time.Duration) <-chan time.Time // when to watch again; nil: time.After
}

// Daemon is the transport of one node. Make it by New, run it by Run once.
type Daemon struct {
	cfg      Config
	log      *slog.Logger
	version  string
	node     engine.NodeID
	epoch    uint64
	began    time.Time
	shards   []*shard // one thread each
	shard    *shard   // the first: an embedded daemon's only one
	accounts *accounts
	keeper   *keeper
	open     opener
	watch    func(ctx context.Context, sink func(linkdrv.Event)) error
	after    func(time.Duration) <-chan time.Time
	trust    *trust              // nil: plaintext
	ns       int                 // network namespace of the links if it is not the process's; else -1
	lock     *os.File            // nil: embedded
	listener *ipc.Listener       // nil: embedded
	tracing  atomic.Pointer[tap] // nil: nobody traces
	running  atomic.Bool         // the shards' threads run
	ready    chan struct{}       // closed when clients are served
	stopped  chan struct{}       // closed when the daemon begins to stop
	tasks    sync.WaitGroup      // keeper, guard, sessions

	mu       sync.Mutex
	sessions map[*session]struct{}
	closing  bool
}

// New takes the control socket, opens the links and returns a daemon ready to Run. Errors say what to do. Whoever gets a Daemon must Run it, if
// only with a context that is done, or Close it: it holds descriptors.
func New(cfg Config, o Options) (*Daemon, error) {
	if cfg.Copy == CopyRemap {
		return nil, fmt.Errorf("configuration: %w", errRemapShared)
	}
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
	d.announce()
	return d, nil
}

// prepare makes everything that does not touch links. Of the file system it uses the key and the peers.
func prepare(cfg Config, o Options) (*Daemon, error) {
	if err := cfg.Normalize(); err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	if err := checkShards(&cfg, &o); err != nil {
		return nil, err
	}
	tr, node, err := newTrust(&cfg, &o)
	if err != nil {
		return nil, err
	}
	d := &Daemon{
		cfg: cfg, log: o.Log, version: o.Version, node: node, trust: tr, epoch: randomNonZero(), began: time.Now(),
		accounts: newAccounts(cfg.Limits), open: openOne(o.Open), watch: o.Watch, after: o.after, ns: otherNamespace(),
		ready: make(chan struct{}), stopped: make(chan struct{}), sessions: map[*session]struct{}{},
	}
	if d.log == nil {
		d.log = slog.New(slog.DiscardHandler)
	}
	if d.after == nil {
		d.after = time.After
	}
	if o.Open == nil {
		d.open = openSockets(cfg.Shards)
		if d.watch == nil {
			d.watch = linkdrv.Watch
		}
	}
	offered := &directory{names: map[string]*client{}}
	for range cfg.Shards {
		s, err := newShard(d)
		if err != nil {
			d.Close()
			return nil, err
		}
		s.offered = offered
		d.shards = append(d.shards, s)
	}
	d.shard = d.shards[0]
	d.keeper = &keeper{d: d, kicks: make(chan string, engine.MaxLinks*cfg.Shards), jobs: make(chan func())}
	for _, l := range cfg.Links {
		slots, err := d.addLink(l)
		if err != nil {
			d.Close()
			return nil, err
		}
		d.keeper.links = append(d.keeper.links, &kept{cfg: l, slots: slots})
	}
	return d, nil
}

// newShard makes the shard of the next number.
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
		number: len(d.shards), grants: regmem.NewTable(rand.Reader), limits: cfg.Limits, window: cfg.OpWindow, log: d.log, twin: d.twin(),
		wait:  waiter{mode: cfg.Poll, spin: idle.Patience{Base: cfg.Spin}},
		conns: map[engine.ConnID]*conn{}, services: map[string]*client{}, pings: map[engine.ConnID]*ping{},
	}
	checksum := engine.ChecksumFull
	if cfg.Checksum == "header" {
		checksum = engine.ChecksumHeader
	}
	var cookies [32]byte
	rand.Read(cookies[:]) // never fails
	ec := engine.Config{
		Node: d.node, Name: cfg.Name, Epoch: d.epoch, Seed: randomNonZero(), EtherType: cfg.EtherType, Checksum: checksum,
		Scheduler: cfg.Scheduler, Profile: profile, OpWindow: cfg.OpWindow, DialTime: cfg.DialTimeout, DeadTime: cfg.DeadTime,
		KeepAlive: cfg.KeepAlive, HelloTime: cfg.HelloTime, Grants: s.grants,
		Secure: d.trust.secureNode(), CookieKey: cookies,
		Shard: s.number, Shards: cfg.Shards,
	}
	if cfg.Receivers > 0 {
		s.receivers, s.lends = &receivers{}, cfg.Copy != CopyRemap && cfg.Copy != CopyNone // what receivers take is copied
		ec.Placer = s.receivers
	}
	s.copies(cfg, &ec)
	if s.eng, err = engine.New(ec); err != nil {
		return nil, err
	}
	if s.box, err = newMailbox(); err != nil {
		return nil, err
	}
	if s.doorbells, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		s.box.close(0)
		return nil, fmt.Errorf("epoll: %w", err)
	}
	if s.alarm, err = newAlarm(); err != nil {
		unix.Close(s.doorbells)
		s.box.close(0)
		return nil, err
	}
	if s.receivers != nil {
		if err := s.receivers.start(s, cfg.Receivers); err != nil {
			s.alarm.close()
			unix.Close(s.doorbells)
			s.box.close(0)
			return nil, err
		}
	}
	s.reopen = func(name string) {
		select {
		case d.keeper.kicks <- name:
		default: // full: as many kicks as links can exist are queued, so this link's is among them
		}
	}
	s.discard = func(drv linkdrv.Driver) {
		if s.stopping.Load() {
			drv.Close()
			return
		}
		d.tasks.Go(func() { drv.Close() }) // the kernel waits until no processor uses the socket: other links would stand still meanwhile
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
	shardDone := d.startShards(ctx)
	failed := make(chan error, 1)
	if d.listener != nil {
		if os.Getenv("GOGC") == "" {
			debug.SetGCPercent(garbagePercent)
		}
		if err := residentCode(); err != nil {
			d.log.Warn("the program's code is read from its file when it first runs", "error", err)
		}
		d.tasks.Go(func() {
			if err := d.accept(); err != nil {
				failed <- err
			}
		})
		d.log.Info("serving", "name", d.cfg.Name, "node", d.node.String(), "socket", d.cfg.Socket, "links", len(d.cfg.Links), "shards", len(d.shards))
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

// garbagePercent is how much garbage may lie about, in percent of what is in use, unless GOGC says otherwise. Frames and operations make none; status and
// metrics need not spread over as much memory again, where what lives long then keeps pages that are otherwise empty.
const garbagePercent = 25

// stop ends what startShards and accept began, in the order in which nobody waits for somebody who has gone.
func (d *Daemon) stop(shardDone chan struct{}) {
	if d.listener != nil {
		d.listener.Close()
	}
	for _, s := range d.shards {
		s.stop()
	}
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
	for _, s := range d.shards {
		s.shutdown()
	}
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

// Ready is closed when clients are served.
func (d *Daemon) Ready() <-chan struct{} { return d.ready }

// Alive reports whether every shard went round within the given time, or sleeps because there is nothing to do.
func (d *Daemon) Alive(within time.Duration) bool {
	for _, s := range d.shards {
		if mono.Time(s.beat.Load()).Add(within) < mono.Now() {
			return false
		}
	}
	return true
}

// Node returns what peers dial.
func (d *Daemon) Node() (name, id string) { return d.cfg.Name, d.node.String() }

// Config returns the configuration with every default filled in.
func (d *Daemon) Config() Config { return d.cfg }
