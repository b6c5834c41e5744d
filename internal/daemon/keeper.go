package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"time"

	"multiedge/internal/config"
	"multiedge/internal/engine"
	"multiedge/internal/mono"
	"multiedge/internal/shard"
	"multiedge/linkdrv"

	"github.com/mdlayher/ethernet"
	"golang.org/x/sys/unix"
)

// keeperRetry is how often opening a link that ought to work is tried again, watchRetry how often watching links that
// could not be watched.
const (
	keeperRetry = 250 * time.Millisecond
	watchRetry  = 5 * time.Second
)

// portTries is how often, every portPause, the port of an IP link is tried again that is in use.
const (
	portTries = 20
	portPause = 5 * time.Millisecond
)

// keeper keeps the configured links open: it follows the kernel's reports, opens drivers (which takes long, so not on
// the shard) and gives them to the shard or takes them away. One goroutine owns it.
//
// A link is found by its configured name and from then on followed by its index, through renames, until it is deleted;
// a new interface of the configured name takes its place.
type keeper struct {
	d     *Daemon
	links []*kept
	known map[int]linkdrv.Event // what the kernel said, by interface index; nil while nobody watches
	kicks chan string           // links whose driver failed
	jobs  chan func()           // other changes, from Reload
	// the kernel has said something of an interface, or nobody watches: IP links are looked at
	changed bool

	openLinks  opener
	watchLinks func(ctx context.Context, sink func(linkdrv.Event)) error // nil: links never change
	after      func(time.Duration) <-chan time.Time                      // when to watch again
}

func newKeeper(d *Daemon, o *Options) *keeper {
	k := &keeper{d: d, kicks: make(chan string, engine.MaxLinks*d.cfg.Shards), jobs: make(chan func()),
		openLinks: openOne(o.Open), watchLinks: o.Watch, after: o.after}
	if k.after == nil {
		k.after = time.After
	}
	if o.Open == nil {
		k.openLinks = openSockets(d.cfg.Shards)
		if k.watchLinks == nil {
			k.watchLinks = linkdrv.Watch
		}
	}
	return k
}

// kept is what the keeper knows of one link.
type kept struct {
	cfg    config.Link
	slots  []*shard.Link // the shards', by their number, of one lane after the other; only passed on
	index  int           // interface followed; 0: none, as of an IP link
	open   bool
	mtu    int
	addr   string
	failed string // last error logged
}

// start opens every link before the daemon serves anybody. One link is enough: one of several may be broken.
// The others are used when they come. If there is none, that is an error unless waiting for them was asked for.
func (k *keeper) start() error {
	var errs, missing []error
	open := 0
	for _, l := range k.links {
		drvs, err := k.openDriver(l, l.cfg.Name)
		switch {
		case err == nil:
			k.opened(l, drvs)
			open++
		case isMissing(err):
			l.failed = err.Error()
			missing = append(missing, err)
		default:
			errs = append(errs, err)
		}
	}
	if open == 0 && !k.d.cfg.WaitLinks {
		for _, err := range missing {
			errs = append(errs, fmt.Errorf("%w (or start with --wait-links to wait for it)", err))
		}
	}
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	for _, l := range k.links {
		if l.failed != "" {
			k.d.log.Warn("waiting for link", "link", l.cfg.Name, "reason", l.failed)
		}
	}
	return nil
}

// isMissing reports whether a link that could not be opened may come.
func isMissing(err error) bool {
	return errors.Is(err, linkdrv.ErrNoLink) || errors.Is(err, linkdrv.ErrLinkDown)
}

func (k *keeper) openDriver(l *kept, name string) ([]linkdrv.Driver, error) {
	cfg := l.cfg
	cfg.Name = name
	o := linkdrv.Options{EtherType: ethernet.EtherType(k.d.cfg.EtherType), Kind: l.cfg.Driver,
		RingSlots: l.cfg.Slots, Listen: l.cfg.Listen, Lanes: l.cfg.Lanes, ECN: l.cfg.ECN == config.ECNAuto,
		DSCP: l.cfg.DSCP, Pages: k.d.cfg.Copy == config.CopyShuffle}
	drvs, err := k.openLinks(cfg, o)
	for range portTries { // its driver of before may be about to be closed
		if cfg.Listen == "" || !errors.Is(err, unix.EADDRINUSE) {
			break
		}
		time.Sleep(portPause)
		drvs, err = k.openLinks(cfg, o)
	}
	return drvs, err
}

// opened hands each shard its driver, or the one that there is the drivers of all lanes.
func (k *keeper) opened(l *kept, drvs []linkdrv.Driver) {
	info := drvs[0].Info()
	for i := range drvs {
		s := k.d.shards[i%len(k.d.shards)]
		if err := s.Do(func(now mono.Time) { s.SetDriver(now, l.slots[i], drvs[i]) }); err != nil {
			for _, drv := range drvs[i:] {
				drv.Close()
			}
			return
		}
	}
	l.open, l.index, l.mtu, l.addr, l.failed = true, info.Index, info.MTU, info.Addr().String(), ""
	k.d.linksUp.Add(1)
	k.d.tell(&Event{Kind: EventLinkUp, Link: l.cfg.Name, Text: fmt.Sprintf("%s driver, MTU %d, address %s", info.Kind,
		info.MTU, info.Addr())})
}

// closed takes a link's drivers away from the shards.
func (k *keeper) closed(l *kept) {
	if !l.open {
		return
	}
	l.open = false
	k.d.linksUp.Add(-1)
	k.d.tell(&Event{Kind: EventLinkDown, Link: l.cfg.Name})
	k.everySlot(l, func(s *shard.Shard, now mono.Time, slot *shard.Link) { s.DropDriver(now, slot) })
}

// everySlot runs f as each shard with each of its links that are lanes of l.
func (k *keeper) everySlot(l *kept, f func(s *shard.Shard, now mono.Time, slot *shard.Link)) {
	k.d.everyShard(func(s *shard.Shard, now mono.Time) {
		for i := s.Number(); i < len(l.slots); i += len(k.d.shards) {
			f(s, now, l.slots[i])
		}
	})
}

// run follows links until ctx ends. ns, if not negative, is the network namespace in which the daemon was made.
func (k *keeper) run(ctx context.Context, ns int) {
	events, blind := make(chan linkdrv.Event), make(chan struct{})
	if k.watchLinks != nil {
		k.known = map[int]linkdrv.Event{}
		done := make(chan struct{})
		go func() {
			defer close(done)
			enterNamespace(ns)
			k.watch(ctx, events, blind)
		}()
		defer func() { <-done }()
	}
	enterNamespace(ns)
	t := time.NewTicker(keeperRetry)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case ev := <-events:
			k.event(ev)
			k.changed = true
		case <-blind:
			k.forget()
		case name := <-k.kicks:
			k.failed(name)
			continue // the next tick retries: at once would spin on a driver that fails at once
		case f := <-k.jobs:
			f()
		case <-t.C:
		}
		k.changed = k.changed || k.known == nil && k.watchLinks != nil
		for _, l := range k.links {
			k.reconcile(l)
		}
		k.changed = false
	}
}

// watch passes on what the kernel reports, until ctx ends, and says when it reports nothing more.
func (k *keeper) watch(ctx context.Context, events chan<- linkdrv.Event, blind chan<- struct{}) {
	for ctx.Err() == nil {
		err := k.watchLinks(ctx, func(ev linkdrv.Event) {
			select {
			case events <- ev:
			case <-ctx.Done():
			}
		})
		if err == nil {
			return
		}
		k.d.log.Error("links are not watched until that is tried again: changes of their state are found by retrying "+
			"only", "error", err)
		select {
		case blind <- struct{}{}:
		case <-ctx.Done():
		}
		select {
		case <-k.after(watchRetry):
		case <-ctx.Done():
		}
	}
}

// failed notes that a shard has closed a link because its driver failed; the other shards' go with it, because they are
// steered together. An interface that still exists, down perhaps, is followed by its index even if it is renamed now;
// one that was never reported is looked for by name.
func (k *keeper) failed(name string) {
	for _, l := range k.links {
		if l.named(name) {
			if !k.lost(l) {
				continue // opened anew since: the kernel said so too, or another shard's driver failed as well
			}
			k.closed(l)
			if _, there := k.known[l.index]; !there {
				l.index = 0
			}
		}
	}
}

// named reports whether a name is that of one of a link's lanes.
func (l *kept) named(name string) bool {
	for k := range l.cfg.Lanes {
		if l.cfg.Lane(k).Name == name {
			return true
		}
	}
	return false
}

// lost reports whether some shard has no driver for a link, or for one of its lanes: all of them are opened together,
// since the kernel numbers the sockets of a front.
func (k *keeper) lost(l *kept) (lost bool) {
	k.everySlot(l, func(_ *shard.Shard, _ mono.Time, slot *shard.Link) { lost = lost || !slot.Open() })
	return lost
}

// forget drops what the kernel said, since it will not say when that changes. Links that are closed are looked for by
// name.
func (k *keeper) forget() {
	k.known = nil
	for _, l := range k.links {
		if !l.open {
			l.index = 0
		}
	}
}

func (k *keeper) event(ev linkdrv.Event) {
	if k.known == nil {
		k.known = map[int]linkdrv.Event{}
	}
	if ev.Gone {
		delete(k.known, ev.Index)
		for _, l := range k.links {
			if l.index == ev.Index {
				k.closed(l)
				l.index = 0
			}
		}
		return
	}
	k.known[ev.Index] = ev
	if ev.OldName != "" {
		for _, l := range k.links {
			if l.index == ev.Index {
				k.d.log.Info("link renamed", "link", l.cfg.Name, "from", ev.OldName, "to", ev.Name)
			}
		}
	}
}

// reconcile makes a link's driver agree with what the kernel reports.
func (k *keeper) reconcile(l *kept) {
	if l.cfg.Listen != "" {
		k.reconcileIP(l)
		return
	}
	if k.known == nil {
		k.tryOpen(l, l.cfg.Name)
		return
	}
	ev, there := k.known[l.index]
	if !there && l.index == 0 {
		ev, there = k.find(l.cfg.Name)
	}
	if !there {
		return // not there, or not reported yet
	}
	if !ev.Up {
		l.index = ev.Index
		k.closed(l)
		return
	}
	if l.open && (l.index != ev.Index || l.mtu != ev.MTU || l.addr != ev.MAC.String()) {
		k.closed(l)
	}
	k.tryOpen(l, ev.Name)
}

// reconcileIP opens an IP link, and opens it anew when the interface with its address has another MTU, or none has the
// address any more. One for all addresses stays open: interfaces come and go for other reasons, and the search for the
// path MTU finds out what passes.
func (k *keeper) reconcileIP(l *kept) {
	if l.open && k.changed {
		at, err := linkdrv.ParseListen(l.cfg.Listen)
		mtu := l.mtu
		if err == nil && !at.Addr().IsUnspecified() {
			mtu, err = linkdrv.ListenMTU(at)
		}
		if err != nil || mtu != l.mtu {
			k.closed(l)
		}
	}
	k.tryOpen(l, l.cfg.Name)
}

func (k *keeper) find(name string) (linkdrv.Event, bool) {
	for _, ev := range k.known {
		if ev.Name == name && !slices.ContainsFunc(k.links, func(l *kept) bool { return l.index == ev.Index }) {
			return ev, true
		}
	}
	return linkdrv.Event{}, false
}

// tryOpen opens a link that is closed. An error is logged once.
func (k *keeper) tryOpen(l *kept, name string) {
	if l.open {
		return
	}
	drvs, err := k.openDriver(l, name)
	if err == nil {
		k.opened(l, drvs)
		return
	}
	if l.failed != err.Error() {
		l.failed = err.Error()
		k.d.log.Warn("link cannot be opened; will retry", "link", l.cfg.Name, "error", err)
	}
}

// otherNamespace returns a descriptor of the calling thread's network namespace if some other thread has another, else
// -1.
func otherNamespace() int {
	fd, err := unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1
	}
	var mine, other unix.Stat_t
	if unix.Fstat(fd, &mine) == nil {
		threads, _ := os.ReadDir("/proc/self/task")
		for _, t := range threads { // any may be the one that the caller's differs from, or the next one's parent
			if unix.Stat("/proc/self/task/"+t.Name()+"/ns/net", &other) == nil && other.Ino != mine.Ino {
				return fd
			}
		}
	}
	unix.Close(fd)
	return -1
}

// enterNamespace moves the calling goroutine, for the rest of its life, to a network namespace.
func enterNamespace(ns int) {
	if ns < 0 {
		return
	}
	runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
	unix.Setns(ns, unix.CLONE_NEWNET)
}
