package daemon

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"multiedge/internal/engine"
	"multiedge/internal/mono"
)

// Reload makes a new configuration effective as far as that is possible while running: links come, go and change their weight, limits
// apply to what is asked for next, peers are authorised or not any more. Changes that need a restart are not made; they are named in the error, as are links that cannot be opened.
func (d *Daemon) Reload(cfg Config) error {
	if err := cfg.Normalize(); err != nil {
		return err
	}
	d.mu.Lock()
	running := d.running.Load() && !d.closing
	d.mu.Unlock()
	if !running {
		return errStopped
	}
	if err := d.reloadTrust(&cfg); err != nil {
		return err
	}
	fixed := d.fixedChanges(&cfg)
	done := make(chan error, 1)
	job := func() { done <- d.keeper.relink(cfg.Links) }
	select {
	case d.keeper.jobs <- job:
	case <-d.stopped:
		return errStopped
	}
	err := <-done
	if e := d.everyShard(func(s *shard, _ mono.Time) { s.limits = cfg.Limits }); e != nil {
		return e
	}
	d.accounts.setLimits(cfg.Limits)
	d.announce()
	if len(fixed) > 0 {
		err = errors.Join(err, fmt.Errorf("these take effect after a restart only: %s", strings.Join(fixed, ", ")))
	}
	return err
}

// fixedChanges names the settings that differ and cannot change.
func (d *Daemon) fixedChanges(c *Config) (names []string) {
	old := &d.cfg
	for _, f := range []struct {
		name string
		same bool
	}{
		{"security", old.Security == c.Security}, {"key_file", old.KeyFile == c.KeyFile || d.trust.keyless()},
		{"name", old.Name == c.Name}, {"node_id", old.NodeID == c.NodeID}, {"socket", old.Socket == c.Socket}, {"group", old.Group == c.Group},
		{"mode", old.Mode == c.Mode}, {"ethertype", old.EtherType == c.EtherType}, {"scheduler", old.Scheduler == c.Scheduler},
		{"profile", old.Profile == c.Profile}, {"window", old.Window == c.Window}, {"checksum", old.Checksum == c.Checksum},
		{"poll", old.Poll == c.Poll}, {"copy", old.Copy == c.Copy}, {"spin", old.Spin == c.Spin}, {"op_window", old.OpWindow == c.OpWindow}, {"shards", old.Shards == c.Shards}, {"receivers", old.Receivers == c.Receivers}, {"metrics", old.Metrics == c.Metrics},
		{"dial_timeout", old.DialTimeout == c.DialTimeout}, {"dead_time", old.DeadTime == c.DeadTime},
		{"keep_alive", old.KeepAlive == c.KeepAlive}, {"hello_time", old.HelloTime == c.HelloTime}, {"limits.queue", old.Limits.Queue == c.Limits.Queue}, {"log.format", old.Log.Format == c.Log.Format},
	} {
		if !f.same {
			names = append(names, f.name)
		}
	}
	return names
}

// relink makes the configured links those of the list. It runs on the keeper's goroutine.
func (k *keeper) relink(want []Link) error {
	var errs []error
	var links, changed []*kept
	for _, l := range k.links {
		i := indexOf(want, l.cfg.Name)
		if i < 0 {
			k.closed(l)
			k.d.everyShard(func(s *shard, _ mono.Time) { s.removeLink(l.slots[s.number]) })
			continue
		}
		if l.cfg != want[i] {
			k.closed(l)
			changed = append(changed, l)
			l.cfg = want[i]
			k.d.everyShard(func(s *shard, _ mono.Time) { l.slots[s.number].cfg = l.cfg })
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
		if len(k.links) == engine.MaxLinks {
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

func (k *keeper) has(name string) bool {
	for _, l := range k.links {
		if l.cfg.Name == name {
			return true
		}
	}
	return false
}

func indexOf(links []Link, name string) int {
	for i := range links {
		if links[i].Name == name {
			return i
		}
	}
	return -1
}

// removeLink forgets a link that has no driver any more; its number is free for another.
func (s *shard) removeLink(l *link) {
	s.byIndex[l.index] = nil
	for i, other := range s.active {
		if other == l {
			s.active = slices.Delete(s.active, i, i+1)
			return
		}
	}
}
