package daemon

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"multiedge/internal/config"
	"multiedge/internal/inspect"
	"multiedge/internal/mono"
	"multiedge/linkdrv"
	"multiedge/linkdrv/linktest"
)

// host is a make-believe kernel with one interface.
type host struct {
	mu     sync.Mutex
	name   string
	index  int
	mtu    int
	up     bool
	opens  []string
	events chan linkdrv.Event
}

func (h *host) open(l config.Link, _ linkdrv.Options) (linkdrv.Driver, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if l.Name != h.name {
		return nil, linkdrv.ErrNoLink
	}
	if !h.up {
		return nil, linkdrv.ErrLinkDown
	}
	h.opens = append(h.opens, l.Name)
	end, _ := linktest.PairN(0, h.mtu, 16)
	return &indexed{end, h.index}, nil
}

// indexed is a driver on an interface of a given index.
type indexed struct {
	*linktest.End
	index int
}

func (d *indexed) Info() linkdrv.Info {
	i := d.End.Info()
	i.Index = d.index
	return i
}

func (h *host) watch(ctx context.Context, sink func(linkdrv.Event)) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case ev := <-h.events:
			sink(ev)
		}
	}
}

var memMAC = net.HardwareAddr{0x02, 0x4d, 0, 0, 0, 1}

// set changes the interface and reports it.
func (h *host) set(name string, index, mtu int, up, gone bool) {
	h.mu.Lock()
	old := h.name
	h.name, h.index, h.mtu, h.up = name, index, mtu, up && !gone
	h.mu.Unlock()
	ev := linkdrv.Event{Name: name, Index: index, MTU: mtu, Up: up, Gone: gone, MAC: memMAC}
	if old != name {
		ev.OldName = old
	}
	h.events <- ev
}

func TestLinkIsFollowed(t *testing.T) {
	h := &host{name: "eth1", index: 3, events: make(chan linkdrv.Event)}
	cfg := plaintext(config.Config{Name: "a", Links: []config.Link{{Name: "eth1"}}, Poll: "block"})
	if _, err := NewEmbedded(cfg, Options{Open: h.open, Watch: h.watch}); !errors.Is(err, linkdrv.ErrLinkDown) {
		t.Fatalf("started on an interface that is down: %v", err)
	}
	cfg.WaitLinks = true
	e, err := NewEmbedded(cfg, Options{Log: logTo(t), Open: h.open, Watch: h.watch})
	must(t, err)
	defer e.Close()
	state := func(up bool, mtu int, device string) {
		t.Helper()
		var got inspect.LinkStatus
		until(t, "link state", deadline, func() bool {
			snap := snapshot(t, e.Daemon())
			got = snap.Links[0]
			return got.Up == up && got.MTU == mtu
		})
		if got.Name != "eth1" {
			t.Fatalf("%+v", got)
		}
	}
	state(false, 0, "")
	h.set("eth1", 3, 9000, true, false)
	state(true, 9000, "")
	h.set("eth1", 3, 1500, true, false) // another MTU: another driver
	state(true, 1500, "")
	h.set("eth1", 3, 1500, false, false)
	state(false, 0, "")
	h.set("lan0", 3, 1500, true, false) // renamed and up: followed by its index
	state(true, 1500, "lan0")
	h.set("lan0", 3, 1500, true, true) // deleted
	state(false, 0, "")
	h.set("eth1", 8, 4000, true, false) // a new one of the configured name
	state(true, 4000, "")
	e.Daemon().keeper.kicks <- "eth1" // as if its driver had failed: the retry finds it
	if err := e.Daemon().Reload(plaintext(config.Config{Name: "a", Links: []config.Link{{Name: "eth1", Weight: 3}},
		Poll: "busy"})); err == nil || err.Error() != "these take effect after a restart only: poll" {
		t.Fatalf("reload: %v", err)
	}
	state(true, 4000, "")
	next := plaintext(config.Config{Name: "a", Links: []config.Link{{Name: "eth7"}}, Poll: "block"})
	if err := e.Daemon().Reload(next); !errors.Is(err, linkdrv.ErrNoLink) {
		t.Fatalf("reload without any link: %v", err)
	}
	state(true, 4000, "") // as it was: a restart would fail
	next.WaitLinks = true
	if err := e.Daemon().Reload(next); !errors.Is(
		err,
		linkdrv.ErrNoLink,
	) {
		t.Fatalf("reload with a link that does not exist: %v", err)
	}
	snap, err := e.Daemon().Snapshot()
	if err != nil || len(snap.Links) != 1 || snap.Links[0].Name != "eth7" || snap.Links[0].Up {
		t.Fatalf("after reload: %+v, %v", snap, err)
	}
}

// An interface that takes over the name of one that was deleted goes on under its own link alone.
func TestRenamedOntoAnother(t *testing.T) {
	events := make(chan linkdrv.Event)
	var mu sync.Mutex
	index := map[string]int{"eth1": 3, "eth2": 4}
	o := Options{Log: logTo(t), Open: func(l config.Link, _ linkdrv.Options) (linkdrv.Driver, error) {
		mu.Lock()
		defer mu.Unlock()
		if index[l.Name] == 0 {
			return nil, linkdrv.ErrNoLink
		}
		x, _ := linktest.PairN(0, 9000, 64)
		return &indexed{x, index[l.Name]}, nil
	}, Watch: func(ctx context.Context, sink func(linkdrv.Event)) error {
		for {
			select {
			case <-ctx.Done():
				return nil
			case ev := <-events:
				sink(ev)
			}
		}
	}}
	e, err := NewEmbedded(
		plaintext(config.Config{Name: "a", Links: []config.Link{{Name: "eth1"}, {Name: "eth2"}}, Poll: "block"}),
		o,
	)
	must(t, err)
	defer e.Close()
	ev := func(name, old string, i int, up, gone bool) {
		mu.Lock()
		if old != "" {
			delete(index, old)
		}
		if gone {
			delete(index, name)
		} else {
			index[name] = i
		}
		mu.Unlock()
		events <- linkdrv.Event{Name: name, OldName: old, Index: i, MTU: 9000, Up: up, Gone: gone,
			MAC: net.HardwareAddr(memMAC)}
	}
	ev("eth1", "", 3, true, false)
	ev("eth2", "", 4, true, false)
	ev("eth2", "", 4, true, true)      // deleted
	ev("eth2", "eth1", 3, true, false) // and the other one renamed to its name
	for range 3 {                      // looked at again
		ev("eth2", "", 3, true, false)
		if snap, err := e.d.Snapshot(); err != nil || !snap.Links[0].Up || snap.Links[1].Up {
			t.Fatalf("two links use one interface, or none does: %+v, %v", snap.Links, err)
		}
	}
}

// watched starts an embedded daemon on the interface of a make-believe kernel.
func watched(t *testing.T, o Options) *Embedded {
	t.Helper()
	o.Log = logTo(t)
	e, err := NewEmbedded(
		plaintext(config.Config{Name: "a", Links: []config.Link{{Name: "eth1"}}, Poll: "block", WaitLinks: true}),
		o,
	)
	must(t, err)
	t.Cleanup(func() { e.Close() })
	return e
}

func (h *host) opened() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.opens)
}

// A driver's failure that is heard of only after the kernel's report had the link opened anew does not close it again.
func TestLateKickIsIgnored(t *testing.T) {
	h := &host{name: "eth1", index: 3, mtu: 9000, up: true, events: make(chan linkdrv.Event)}
	e := watched(t, Options{Open: h.open, Watch: h.watch})
	h.set("eth1", 3, 9000, true, false)
	h.set("eth1", 3, 9000, true, true)
	h.set("eth1", 4, 9000, true, false)
	until(t, "opened anew", deadline, func() bool { return h.opened() == 2 })
	e.d.keeper.kicks <- "eth1"
	h.set("eth1", 4, 9000, true, false) // taken after the kick or before; the next one after both
	h.set("eth1", 4, 9000, true, false)
	until(t, "kick taken", deadline, func() bool { return len(e.d.keeper.kicks) == 0 })
	h.set("eth1", 4, 9000, true, false)
	h.set("eth1", 4, 9000, true, false)
	if snap, err := e.d.Snapshot(); err != nil || !snap.Links[0].Up || h.opened() != 2 {
		t.Errorf("opened %d times, want 2: %+v, %v", h.opened(), snap.Links, err)
	}
}

// What the kernel said last counts for nothing once it says nothing more: a link that was down then is opened when it
// can be. Watching is tried again and again, and what the kernel says then is followed.
func TestLinkIsFollowedUnwatched(t *testing.T) {
	h := &host{name: "eth1", index: 3, mtu: 9000, up: true, events: make(chan linkdrv.Event)}
	began, broken, waits, over := make(chan struct{}), make(chan error), make(chan time.Duration), make(chan time.Time)
	after := func(d time.Duration) <-chan time.Time {
		waits <- d
		return over
	}
	e := watched(t, Options{Open: h.open, after: after, Watch: func(ctx context.Context,
		sink func(linkdrv.Event)) error {
		began <- struct{}{}
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		ended := make(chan error, 1)
		go func() { ended <- h.watch(ctx, sink) }()
		select {
		case err := <-broken:
			cancel()
			<-ended
			return err
		case err := <-ended:
			return err
		}
	}})
	up := func(want bool) {
		t.Helper()
		until(t, "link state", deadline, func() bool { return snapshot(t, e.d).Links[0].Up == want })
	}
	<-began
	h.set("eth1", 3, 9000, false, false)
	up(false)
	for index := 4; index < 6; index++ {
		broken <- errors.New("too many open files")
		if d := <-waits; d != watchRetry {
			t.Errorf("watching is to be tried again in %v, want %v", d, watchRetry)
		}
		h.mu.Lock()
		h.up, h.index = true, index // deleted, made anew and up: nobody tells
		h.mu.Unlock()
		up(true)
		over <- time.Time{}
		select {
		case <-began:
		case <-time.After(deadline):
			t.Fatal("watching is not tried again")
		}
		h.set("eth1", index, 9000, false, false)
		up(false)
	}
}

// slow is a driver that takes long to close.
type slow struct {
	indexed
	closing, close chan struct{}
}

func (d *slow) Close() error {
	d.closing <- struct{}{}
	<-d.close
	return d.indexed.Close()
}

// The kernel may take its time to close a socket. The shard serves its other links meanwhile, and the link itself can
// be opened again.
func TestClosingHoldsNobodyUp(t *testing.T) {
	h := &host{name: "eth1", index: 3, mtu: 9000, up: true, events: make(chan linkdrv.Event)}
	closing, release := make(chan struct{}), make(chan struct{})
	e := watched(t, Options{Watch: h.watch, Open: func(l config.Link, o linkdrv.Options) (linkdrv.Driver, error) {
		d, err := h.open(l, o)
		if err != nil {
			return nil, err
		}
		return &slow{*d.(*indexed), closing, release}, nil
	}})
	defer func() { // the last one, with the daemon
		go func() { <-closing }()
		e.Close()
	}()
	h.set("eth1", 3, 9000, true, false)
	go h.set("eth1", 3, 9000, false, false)
	<-closing
	served := make(chan error, 1)
	go func() { served <- e.d.shard.Do(func(mono.Time) {}) }()
	select {
	case err := <-served:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(deadline):
		close(release)
		t.Fatal("the shard waits until the kernel has closed a socket")
	}
	h.set("eth1", 3, 9000, true, false)
	until(t, "opened again", deadline, func() bool { return h.opened() == 2 })
	close(release)
}
