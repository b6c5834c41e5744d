package daemon

import (
	"context"
	"errors"
	"runtime"
	"sync"

	"multiedge/internal/config"
	"multiedge/internal/ipc"
	"multiedge/internal/mono"
	"multiedge/internal/shard"
	"multiedge/linkdrv"
)

// A daemon with several shards is so many transports behind one name (PROTOCOL clause 1.7): each has its thread,
// engine, clients and, on every link, a receive queue of its own, which the kernel fills by session number. They share
// nothing on the packet path. Links come, go and change for all of them at once; a client belongs to one of them for
// its life.

// opener opens one link for every shard.
type opener func(config.Link, linkdrv.Options) ([]linkdrv.Driver, error)

// openSockets is the opener of links of the kernel's.
func openSockets(shards int) opener {
	return func(l config.Link, o linkdrv.Options) ([]linkdrv.Driver, error) {
		return linkdrv.OpenShards(l.Name, shards, o)
	}
}

// openOne is the opener of links in memory, which have one receive queue.
func openOne(open func(config.Link, linkdrv.Options) (linkdrv.Driver, error)) opener {
	return func(l config.Link, o linkdrv.Options) ([]linkdrv.Driver, error) {
		d, err := open(l, o)
		if err != nil {
			return nil, err
		}
		return []linkdrv.Driver{d}, nil
	}
}

// startShards starts the shards' threads and what serves them.
func (d *Daemon) startShards(ctx context.Context) (done chan struct{}) {
	if least := shard.OtherProcs + len(d.shards)*(1+d.cfg.Receivers); runtime.GOMAXPROCS(0) < least {
		runtime.GOMAXPROCS(least)
	}
	done = make(chan struct{})
	d.running.Store(true)
	var running sync.WaitGroup
	for _, s := range d.shards {
		s.Start(&running)
	}
	go func() {
		running.Wait()
		close(done)
	}()
	d.tasks.Go(func() { d.keeper.run(ctx, d.ns) })
	if d.trust != nil {
		d.tasks.Go(func() { d.followEndpoints(ctx) })
	}
	return done
}

// everyShard runs f as each shard, one after the other.
func (d *Daemon) everyShard(f func(s *shard.Shard, now mono.Time)) error {
	for _, s := range d.shards {
		if err := s.Do(func(now mono.Time) { f(s, now) }); err != nil {
			return err
		}
	}
	return nil
}

// addLink gives each lane of a link its number, the same at each shard.
func (d *Daemon) addLink(cfg config.Link) (slots []*shard.Link, err error) {
	for k := range cfg.Lanes {
		err = errors.Join(err, d.everyShard(func(s *shard.Shard, _ mono.Time) {
			slots = append(slots, s.AddLink(cfg.Lane(k)))
		}))
	}
	return slots, err
}

// place chooses the shard of a new client: the wished one, counted from 1, or the one with the fewest clients. unplace
// takes the choice back.
func (d *Daemon) place(wish int) (*shard.Shard, error) {
	if wish < 0 || wish > len(d.shards) {
		return nil, ipc.Errorf(ipc.CodeInvalid, "there is no shard %d; this daemon has shards 1 to %d, and 0 means any",
			wish, len(d.shards))
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	best := max(wish, 1) - 1
	for i, n := range d.placed {
		if wish == 0 && n < d.placed[best] {
			best = i
		}
	}
	d.placed[best]++
	return d.shards[best], nil
}

func (d *Daemon) unplace(s *shard.Shard) {
	d.mu.Lock()
	d.placed[s.Number()]--
	d.mu.Unlock()
}

// checkShards refuses what only links of the kernel's can do.
func checkShards(cfg *config.Config, o *Options) error {
	if cfg.Shards > 1 && o.Open != nil {
		return errors.New("shards: links in memory have one receive queue; leave shards out of the configuration")
	}
	return nil
}
