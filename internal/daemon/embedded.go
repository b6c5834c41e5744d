package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"

	"multiedge/internal/config"
	"multiedge/internal/ipc"
	"multiedge/internal/secure"
	"multiedge/regmem"
)

// Embedded is a daemon inside the process that uses it: the same shard, control connections and rings, without a socket
// file and a second process.
type Embedded struct {
	d      *Daemon
	cancel context.CancelFunc
	done   chan struct{}
	once   sync.Once
}

var embeddedCount atomic.Uint64

// NewEmbedded starts an embedded daemon. cfg is edged's; Socket, Group, Mode and Metrics are not used. An empty Name
// becomes one that no other process has; without a KeyFile and Options.Key the node has a key for this run alone, and
// without a PeersFile the peers are those of cfg.Peers. Links are opened in the network namespace of the calling
// thread.
func NewEmbedded(cfg config.Config, o Options) (*Embedded, error) {
	if cfg.Name == "" {
		host, err := os.Hostname()
		if err != nil {
			host = "localhost"
		}
		cfg.Name = fmt.Sprintf("%.40s-%d-%d", host, os.Getpid(), embeddedCount.Add(1))
	}
	if cfg.Shards > 1 {
		return nil, errors.New("shards: a transport inside a process has one; run edged for more")
	}
	if o.Key == nil && cfg.KeyFile == "" {
		key := secure.NewPrivateKey()
		o.Key = &key
	}
	o.inline, o.embedded = cfg.PeersFile == "", true
	if cfg.Limits.Requests == 0 {
		cfg.Limits.Requests = config.MaxLimit // the process has only itself to be protected from
	}
	if cfg.Limits.Couriers == 0 {
		cfg.Limits.Couriers = 64
	}
	d, err := prepare(cfg, o)
	if err != nil {
		return nil, err
	}
	if err = d.lockKey(); err == nil {
		err = d.keeper.start()
	}
	if err != nil {
		d.Close()
		return nil, err
	}
	d.announce()
	ctx, cancel := context.WithCancel(context.Background())
	e := &Embedded{d: d, cancel: cancel, done: make(chan struct{})}
	d.running.Store(true)
	go func() {
		defer close(e.done)
		d.Run(ctx)
	}()
	<-d.ready
	return e, nil
}

// Attach returns a new connected client end that speaks the daemon's protocol, hello first. It is the caller's to
// close.
func (e *Embedded) Attach() (*ipc.Conn, error) {
	ours, theirs, err := ipc.Pair()
	if err != nil {
		return nil, err
	}
	e.d.serve(ours)
	return theirs, nil
}

// Drive runs one iteration of the shard on the calling goroutine, which has to wait anyway: no thread switch lies
// between it and the wire. worked says whether there was anything to do; ran is false when somebody else runs
// iterations at this moment: the shard's own thread steps back and the next call will succeed. It neither blocks nor
// allocates.
func (e *Embedded) Drive() (worked, ran bool) { return e.d.shard.Drive() }

// DriverSleep blocks the calling goroutine until the transport has work, or fd becomes readable. It may return for no
// reason.
func (e *Embedded) DriverSleep(fd int) { e.d.shard.DriverSleep(fd) }

// Daemon returns the daemon itself, for its status.
func (e *Embedded) Daemon() *Daemon { return e.d }

// Close stops the transport: peers are told, links are closed, attached clients see the end of their socket. It waits
// until everything is released and may be called more than once.
func (e *Embedded) Close() error {
	e.once.Do(e.cancel)
	<-e.done
	return nil
}

// ownPolicies is where numbers of policies begin that are functions of this process.
const ownPolicies = 1 << 31

// Policy returns the number by which the next space is asked for that evicts by a function: whether a goes before b.
// The transport's thread calls it, or whoever drives the transport.
func (e *Embedded) Policy(before func(a, b regmem.ChunkUse) bool) (number uint32) {
	d := e.d
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.pins.policies == nil {
		d.pins.policies = map[uint32]func(a, b regmem.ChunkUse) bool{}
	}
	number = ownPolicies + d.pins.numbered%ownPolicies
	d.pins.numbered++
	d.pins.policies[number] = before
	return number
}

// takePolicy returns the function that a space is asked for with, nil if its number is not one.
func (d *Daemon) takePolicy(number uint32) func(a, b regmem.ChunkUse) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	before := d.pins.policies[number]
	delete(d.pins.policies, number)
	return before
}

// Memory returns the memory of a region, of which the client got the descriptor fd, as the daemon itself sees it, if
// its pages are exchanged: the client must see the same. nil: the client maps fd. The caller closes the memory; fd
// stays its own, too.
func (e *Embedded) Memory(fd int) *regmem.Memory {
	return e.d.shard.Exchange().Memory(fd)
}
