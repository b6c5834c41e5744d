package daemon

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"multiedge/internal/config"
	"multiedge/internal/engine"
	"multiedge/internal/inspect"
	"multiedge/internal/mono"
	"multiedge/internal/shard"
)

// Reload makes a new configuration effective as far as that is possible while running: links come, go and change their
// weight, limits apply to what is asked for next, peers are authorised or not any more. Changes that need a restart are
// not made; they are named in the error, as are links that cannot be opened.
func (d *Daemon) Reload(cfg config.Config) error {
	used, err := d.reload(cfg)
	switch {
	case used:
		d.reloadEnded(err, inspect.ReloadPart)
	case err != nil:
		d.reloadEnded(err, inspect.ReloadFailed)
	}
	return err
}

// ReloadRefused notes a reload whose configuration could not even be read: status, metrics and doctor tell of it.
func (d *Daemon) ReloadRefused(err error) { d.reloadEnded(err, inspect.ReloadFailed) }

// reloadEnded keeps how a reload ended; bad is the result if there was an error.
func (d *Daemon) reloadEnded(err error, bad string) {
	st := &inspect.ReloadStatus{At: time.Now(), Result: inspect.ReloadOK}
	ev := &Event{Kind: EventReload}
	if err != nil {
		st.Result, st.Error = bad, err.Error()
		ev.Text = err.Error()
	}
	if later, ok := errors.AsType[*restartError](err); ok {
		st.Restart = later.settings
	}
	if st.Result == inspect.ReloadFailed {
		ev.Kind = EventReloadFailed
	}
	d.reloaded.Store(st)
	d.tell(ev)
}

// reload reports whether the configuration is used; an error then says what of it is not.
func (d *Daemon) reload(cfg config.Config) (used bool, err error) {
	if err := cfg.Normalize(); err != nil {
		return false, err
	}
	d.mu.Lock()
	running := d.running.Load() && !d.closing
	d.mu.Unlock()
	if !running {
		return false, shard.ErrStopped
	}
	reserved, err := cfg.ResolveServices()
	if err != nil {
		return false, err
	}
	if err := d.keep(func() error { return d.keeper.usable(&cfg) }); err != nil {
		return false, err
	}
	if err := d.reloadTrust(&cfg); err != nil {
		return false, err
	}
	d.rights.reserved.Store(&reserved)
	fixed := d.fixedChanges(&cfg)
	if err = d.keep(func() error { return d.keeper.relink(cfg.Links) }); errors.Is(err, shard.ErrStopped) {
		return false, err
	}
	if e := d.everyShard(func(s *shard.Shard, _ mono.Time) { s.SetLimits(cfg.Limits) }); e != nil {
		return false, e
	}
	d.accounts.setLimits(cfg.Limits)
	d.announce()
	if len(fixed) > 0 {
		err = errors.Join(err, &restartError{fixed})
	}
	return true, err
}

// keep runs f on the keeper's goroutine.
func (d *Daemon) keep(f func() error) error {
	done := make(chan error, 1)
	select {
	case d.keeper.jobs <- func() { done <- f() }:
		return <-done
	case <-d.stopped:
		return shard.ErrStopped
	}
}

// usable refuses links with which the daemon would not start: all are missing, and it waits for none.
func (k *keeper) usable(cfg *config.Config) error {
	if cfg.WaitLinks {
		return nil
	}
	var errs []error
	for _, l := range cfg.Links {
		// A link that is as before is used or waited for already, whatever its state.
		if slices.ContainsFunc(k.links, func(old *kept) bool {
			return old.cfg == l || old.cfg.Name == l.Name && old.open
		}) {
			return nil
		}
		drvs, err := k.openDriver(&kept{cfg: l}, l.Name)
		if err == nil {
			for _, drv := range drvs {
				drv.Close()
			}
			return nil
		}
		errs = append(errs, err)
	}
	return fmt.Errorf("none of these links can be used, and nothing is changed (wait_links has edged wait for them): "+
		"%w", errors.Join(errs...))
}

// restartError names settings that differ from those in force and cannot change while the daemon runs.
type restartError struct{ settings []string }

func (e *restartError) Error() string {
	return "these take effect after a restart only: " + strings.Join(e.settings, ", ")
}

// fixedChanges names the settings that differ and cannot change.
func (d *Daemon) fixedChanges(c *config.Config) (names []string) {
	old := &d.cfg
	for _, f := range []struct {
		name string
		same bool
	}{
		{"security", old.Security == c.Security}, {"key_file", old.KeyFile == c.KeyFile || d.trust.keyless()},
		{"name", old.Name == c.Name}, {"node_id", old.NodeID == c.NodeID}, {"socket", old.Socket == c.Socket},
		{"group", old.Group == c.Group}, {"admins", slices.Equal(old.Admins, c.Admins)},
		{"mode", old.Mode == c.Mode}, {"ethertype", old.EtherType == c.EtherType},
		{"scheduler", old.Scheduler == c.Scheduler},
		{"profile", old.Profile == c.Profile}, {"window", old.Window == c.Window},
		{"checksum", old.Checksum == c.Checksum},
		{"poll", old.Poll == c.Poll}, {"copy", old.Copy == c.Copy}, {"spin", old.Spin == c.Spin},
		{"op_window", old.OpWindow == c.OpWindow}, {"shards", old.Shards == c.Shards},
		{"receivers", old.Receivers == c.Receivers}, {"metrics", old.Metrics == c.Metrics},
		{"misses", old.Misses == c.Misses}, {"prefetch", old.Prefetch == c.Prefetch},
		{"dial_timeout", old.DialTimeout == c.DialTimeout}, {"dead_time", old.DeadTime == c.DeadTime},
		{"keep_alive", old.KeepAlive == c.KeepAlive}, {"hello_time", old.HelloTime == c.HelloTime},
		{"limits.queue", old.Limits.Queue == c.Limits.Queue}, {"log.format", old.Log.Format == c.Log.Format},
	} {
		if !f.same {
			names = append(names, f.name)
		}
	}
	return names
}

// relink makes the configured links those of the list. It runs on the keeper's goroutine.
func (k *keeper) relink(want []config.Link) error {
	var errs []error
	var links, changed []*kept
	for _, l := range k.links {
		i := indexOf(want, l.cfg.Name)
		if i < 0 || want[i].Lanes != l.cfg.Lanes {
			k.closed(l)
			k.everySlot(l, func(s *shard.Shard, _ mono.Time, slot *shard.Link) { s.RemoveLink(slot) })
			continue
		}
		if l.cfg != want[i] {
			k.closed(l)
			changed = append(changed, l)
			l.cfg = want[i]
			for i, slot := range l.slots {
				s, lane := k.d.shards[i%len(k.d.shards)], l.cfg.Lane(i/len(k.d.shards))
				_ = s.Do(func(mono.Time) { s.Configure(slot, lane) })
			}
		}
		links = append(links, l)
	}
	k.links = links
	for _, l := range changed { // opened anew with their new settings
		l.failed = ""
		if k.reconcile(l); l.failed != "" {
			errs = append(errs, fmt.Errorf("%s (will be retried)", l.failed))
		}
	}
	for _, cfg := range want {
		if k.has(cfg.Name) {
			continue
		}
		if k.lanes()+cfg.Lanes > engine.MaxLinks {
			errs = append(errs, fmt.Errorf("link %s: all %d links are in use", cfg.Name, engine.MaxLinks))
			continue
		}
		slots, err := k.d.addLink(cfg)
		if err != nil {
			return err
		}
		l := &kept{cfg: cfg, slots: slots}
		k.links = append(k.links, l)
		drvs, err := k.openDriver(l, cfg.Name)
		if err != nil {
			l.failed = err.Error()
			errs = append(errs, fmt.Errorf("%w (will be retried)", err))
			continue
		}
		k.opened(l, drvs)
	}
	return errors.Join(errs...)
}

// lanes is how many numbers of the engine the links take.
func (k *keeper) lanes() (n int) {
	for _, l := range k.links {
		n += l.cfg.Lanes
	}
	return n
}

func (k *keeper) has(name string) bool {
	for _, l := range k.links {
		if l.cfg.Name == name {
			return true
		}
	}
	return false
}

func indexOf(links []config.Link, name string) int {
	for i := range links {
		if links[i].Name == name {
			return i
		}
	}
	return -1
}
