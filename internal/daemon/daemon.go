package daemon

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"multiedge/internal/config"
	"multiedge/internal/engine"
	"multiedge/internal/inspect"
	"multiedge/internal/ipc"
	"multiedge/internal/mono"
	"multiedge/internal/secure"
	"multiedge/internal/shard"
	"multiedge/linkdrv"
	"multiedge/regmem"

	"golang.org/x/sys/unix"
)

// Options are what a configuration file cannot carry. The zero value is what edged uses, but for the log.
type Options struct {
	Log     *slog.Logger // nil: nothing is logged
	Version string       // of the program, for status

	// Key is who the node is; nil: what Config.KeyFile holds, and an embedded node with no KeyFile gets a key of its
	// own for this run.
	Key *secure.PrivateKey

	inline   bool // peers are those of the configuration alone, no file is read
	embedded bool // in the process that uses it: regions are its own, and their pages can change places

	// Open opens a link; nil means linkdrv.Open. In-memory networks and tests inject their drivers here.
	Open func(config.Link, linkdrv.Options) (linkdrv.Driver, error)
	// Watch reports changes of links; nil means linkdrv.Watch, or with a custom Open that links never change.
	Watch func(ctx context.Context, sink func(linkdrv.Event)) error

	after func(time.Duration) <-chan time.Time // when to watch again; nil: time.After
}

// Daemon is the transport of one node. Make it by New, run it by Run once.
type Daemon struct {
	cfg      config.Config
	log      *slog.Logger
	node     engine.NodeID
	epoch    uint64
	shards   []*shard.Shard // one thread each
	shard    *shard.Shard   // the first: an embedded daemon's only one
	placed   []int          // clients that belong to each, under mu
	accounts *accounts
	keeper   *keeper
	trust    *trust                  // nil: plaintext
	ns       int                     // network namespace of the links if it is not the process's; else -1
	lock     *os.File                // nil: embedded
	listener *ipc.Listener           // nil: embedded
	tracing  atomic.Pointer[tracing] // nil: nobody traces
	shown    shown
	running  atomic.Bool                          // the shards' threads run
	draining atomic.Bool                          // what the shards' draining is
	linksUp  atomic.Int32                         // links that the keeper has given to the shards
	reloaded atomic.Pointer[inspect.ReloadStatus] // the latest reload; nil: there was none
	rights   rights
	news     news           // for who watches
	keyLock  *os.File       // nil: there is no key file
	ready    chan struct{}  // closed when clients are served
	stopped  chan struct{}  // closed when the daemon begins to stop
	tasks    sync.WaitGroup // keeper, control connections

	inside   inside
	mu       sync.Mutex
	pins     pins // under mu
	controls map[*controlConn]struct{}
	closing  bool
}

// rights says who may do what.
type rights struct {
	reserved atomic.Pointer[config.Reservations] // services that not everybody may offer
	admins   config.Admins                       // who may change the daemon itself
}

// shown is what those see who ask for the state.
type shown struct {
	inspector *inspect.Inspector
	cuts      cuts
}

// pins is what has memory ready that is not registered whole.
type pins struct {
	couriers couriers
	pinner   *regmem.Pinner                             // nil: no client has a space
	pinning  int                                        // clients that have
	policies map[uint32]func(a, b regmem.ChunkUse) bool // embedded: for the next spaces, by number
	numbered uint32
}

// New takes the control socket, opens the links and returns a daemon ready to Run. Errors say what to do. The caller
// must Run the Daemon, if only with a context that is done, or Close it: it holds descriptors.
func New(cfg config.Config, o Options) (*Daemon, error) {
	if cfg.Copy == config.CopyRemap {
		return nil, fmt.Errorf("configuration: %w", errRemapShared)
	}
	d, err := prepare(cfg, o)
	if err != nil {
		return nil, err
	}
	if d.cfg.Limits.Couriers > 0 {
		if err := regmem.SetAside(); err != nil {
			d.log.Warn("no addresses for heap grants yet", "error", err)
		}
	}
	if d.lock, err = lockSocket(d.cfg.Socket); err != nil {
		d.Close()
		return nil, err
	}
	if err = d.lockKey(); err == nil {
		err = d.keeper.start()
	}
	if err == nil {
		d.listener, err = listenSocket(&d.cfg)
	}
	if err != nil {
		d.Close()
		return nil, err
	}
	d.announce()
	return d, nil
}

// errRemapShared refuses page exchange where other processes map regions.
var errRemapShared = errors.New(`copy: "pinmap" exchanges pages of regions, which changes only this process's view of them: it works embedded (edge.Embedded.Copy), not in a daemon; use "shuffle", which copies from the pages, or "nocp"`)

// prepare makes everything that does not touch links. Of the file system it uses the key and the peers.
func prepare(cfg config.Config, o Options) (*Daemon, error) {
	if err := cfg.Normalize(); err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	if err := checkShards(&cfg, &o); err != nil {
		return nil, err
	}
	reserved, err := cfg.ResolveServices()
	if err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	admins, err := cfg.ResolveAdmins()
	if err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	tr, node, err := newTrust(&cfg, &o)
	if err != nil {
		return nil, err
	}
	d := &Daemon{
		cfg: cfg, log: o.Log, node: node, trust: tr, rights: rights{admins: admins}, epoch: randomNonZero(),
		accounts: newAccounts(cfg.Limits), ns: otherNamespace(),
		ready: make(chan struct{}), stopped: make(chan struct{}), controls: map[*controlConn]struct{}{},
	}
	d.rights.reserved.Store(&reserved)
	if d.log == nil {
		d.log = slog.New(slog.DiscardHandler)
	}
	d.keeper = newKeeper(d, &o)
	services := shard.NewServices()
	for i := range cfg.Shards {
		s, err := shard.New(d.shardOptions(i, o.embedded, services))
		if err != nil {
			d.Close()
			return nil, err
		}
		d.shards = append(d.shards, s)
	}
	d.shard, d.placed = d.shards[0], make([]int, cfg.Shards)
	d.shown.inspector = inspect.New(inspect.Node{
		Config: &d.cfg, ID: node, Epoch: d.epoch, Version: o.Version, Serving: !o.embedded, InMemory: d.inMemory(),
		Elsewhere: d.ns >= 0,
		Shards:    d.shards, Ledger: d.accounts, Identity: d.identity, Reload: d.reloaded.Load, Stopped: d.stopped,
	})
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

// shardOptions are those of the shard of a number.
func (d *Daemon) shardOptions(number int, embedded bool, services *shard.Services) shard.Options {
	return shard.Options{
		Number: number, Config: &d.cfg, Embedded: embedded, Node: d.node, Epoch: d.epoch, Seed: randomNonZero(),
		Secure: d.trust.secureNode(), Services: services, Log: d.log, Twin: inspect.TwinOf(d.identity()),
		Tell: func(n shard.Notice) {
			d.tell(&Event{Kind: n.Kind, Peer: n.Peer, Node: n.Node, Link: n.Link, Text: n.Text})
		},
		Reopen: func(name string) {
			select {
			case d.keeper.kicks <- name:
			default: // full: as many kicks as links can exist are queued, so this link's is among them
			}
		},
		// the kernel waits until no processor uses the socket: other links would stand still meanwhile
		Close: func(drv linkdrv.Driver) { d.tasks.Go(func() { drv.Close() }) },
	}
}

// randomNonZero draws the epoch and the seed of one run.
func randomNonZero() uint64 {
	var b [8]byte
	rand.Read(b[:]) // never fails since Go 1.24
	return binary.LittleEndian.Uint64(b[:]) | 1
}

// Run serves until ctx is done, then tells the peers, releases everything and returns nil. An error means that the
// daemon could not go on.
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
		if err := calmMonitor(); err != nil {
			d.log.Debug("Go's monitor takes more of the core after pauses", "error", err)
		}
		d.tasks.Go(func() {
			if err := d.accept(); err != nil {
				failed <- err
			}
		})
		d.log.Info("serving", "name", d.cfg.Name, "node", d.node.String(), "socket", d.cfg.Socket, "links",
			len(d.cfg.Links), "shards", len(d.shards))
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

// garbagePercent is how much garbage may lie about, in percent of what is in use, unless GOGC says otherwise. Frames
// and operations make none; status and metrics need not spread over as much memory again, where what lives long then
// keeps pages that are otherwise empty.
const garbagePercent = 25

// stop ends what startShards and accept began, in the order in which nobody waits for somebody who has gone.
func (d *Daemon) stop(shardDone chan struct{}) {
	if d.listener != nil {
		d.listener.Close()
	}
	for _, s := range d.shards {
		s.Stop()
	}
	<-shardDone
	d.mu.Lock()
	d.closing = true
	for ss := range d.controls {
		ss.end()
	}
	d.mu.Unlock()
	if !d.tasksEnd() {
		d.log.Error("clients whose memory cannot be released keep the process from ending, and nothing else: a file "+
			"system of theirs does not answer; abort it (/sys/fs/fuse/connections/*/abort)", "after", stopPatience)
		d.unlock() // alone: what the others use stays
		return
	}
	d.closeFiles()
}

// stopPatience is how long a daemon that stops waits for what clients can delay as long as they like: a client that may
// mount FUSE has the kernel wait for it where the daemon closes a descriptor of its memory.
const stopPatience = 5 * time.Second

// tasksEnd waits until all tasks have ended. It reports false where a daemon with clients of other processes has waited
// for stopPatience.
func (d *Daemon) tasksEnd() bool {
	if d.listener == nil {
		d.tasks.Wait()
		return true
	}
	ended := make(chan struct{})
	go func() {
		d.tasks.Wait()
		close(ended)
	}()
	select {
	case <-ended:
		return true
	case <-d.keeper.after(stopPatience):
		return false
	}
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
		s.Shutdown()
	}
	d.closeFiles()
}

func (d *Daemon) closeFiles() {
	d.unlock()
	d.closeNamespace()
}

// unlock lets another daemon use the socket and the key.
func (d *Daemon) unlock() {
	if d.keyLock != nil {
		d.keyLock.Close()
		d.keyLock = nil
	}
	if d.lock != nil {
		d.lock.Close()
		d.lock = nil
	}
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
		if s.Beat().Add(within) < mono.Now() {
			return false
		}
	}
	return true
}

// staleAfter is how long a shard may be silent before the daemon is not well.
const staleAfter = 5 * time.Second

// Readiness returns why the daemon should not be given work; nil: it is ready. It asks no shard.
func (d *Daemon) Readiness() error {
	select {
	case <-d.ready:
	default:
		return errors.New("starting")
	}
	switch {
	case d.closed():
		return shard.ErrStopped
	case d.draining.Load():
		return errors.New("draining")
	case d.linksUp.Load() == 0:
		return errors.New("no link is up")
	case !d.Alive(staleAfter):
		return fmt.Errorf("a shard has not gone round for %v", staleAfter)
	}
	return nil
}

// closed reports whether the daemon has begun to stop.
func (d *Daemon) closed() bool {
	select {
	case <-d.stopped:
		return true
	default:
		return false
	}
}

// Node returns what peers dial.
func (d *Daemon) Node() (name, id string) { return d.cfg.Name, d.node.String() }

// Snapshot returns the daemon's state, as it was after the call began. It is shared: nobody may change it.
func (d *Daemon) Snapshot() (*inspect.Snapshot, error) { return d.shown.inspector.Snapshot() }

// Config returns the configuration with every default filled in.
func (d *Daemon) Config() config.Config { return d.cfg }
