package daemon

import (
	"errors"
	"sync"

	"multiedge/internal/ipc"
	"multiedge/internal/mono"
	"multiedge/internal/shard"
	"multiedge/linkdrv"
	"multiedge/linkdrv/linktest"
)

// Connections of clients with each other (PROTOCOL clause 19): a dial to the own node makes the shards' links inside
// the daemon and the sessions over them, unless they are there. A daemon whose clients dial peers alone has neither.
type inside struct {
	mu  sync.Mutex
	hub *linktest.Hub
}

// Of the links inside: frames as long as the longest that are common on wires.
const (
	insideMTU   = 9000
	insideSlots = 256
)

// reach is called before a client dials.
func (ss *controlConn) reach(m *ipc.Message) error { return ss.d.reachSelf(ss.shard, m.Peer) }

// reachSelf makes what a shard needs to reach the own node, if that is what a name means.
func (d *Daemon) reachSelf(from *shard.Shard, name string) error {
	if name != d.cfg.Name && name != d.node.String() {
		return nil
	}
	d.inside.mu.Lock()
	defer d.inside.mu.Unlock()
	var missing []*shard.Shard
	err := from.Do(func(mono.Time) {
		for _, to := range d.shards {
			if from.Engine().IsSelf(name) && !from.Engine().HasSelf(to.Number()) {
				missing = append(missing, to)
			}
		}
	})
	for _, to := range missing {
		if err == nil {
			err = d.joinShards(from, to)
		}
	}
	return err
}

// joinShards makes a session for the requests of one shard to another, or to itself.
func (d *Daemon) joinShards(from, to *shard.Shard) error {
	there, err := d.setInside(to)
	if err != nil {
		return err
	}
	here, err := d.setInside(from)
	if err != nil {
		return err
	}
	var asks, answers uint32
	ask := func(now mono.Time) { asks = from.Engine().SelfSession(now, to.Number(), there, true) }
	answer := func(now mono.Time) {
		answers = to.Engine().SelfSession(now, from.Number(), here, false)
		to.Engine().OpenSelf(now, answers, asks)
	}
	open := func(now mono.Time) { from.Engine().OpenSelf(now, asks, answers) }
	if from == to {
		return from.Do(func(now mono.Time) { // at once: no probe finds an end that is not open
			ask(now)
			answer(now)
			open(now)
		})
	}
	return errors.Join(from.Do(ask), to.Do(answer), from.Do(open))
}

// setInside gives a shard its link inside the daemon and returns the address.
func (d *Daemon) setInside(s *shard.Shard) (at linkdrv.Addr, err error) {
	if d.inside.hub == nil {
		d.inside.hub = linktest.NewHub(insideMTU, insideSlots)
	}
	closed := s.Do(func(now mono.Time) {
		at, err = s.SetInside(now, func() linkdrv.Driver { return d.inside.hub.Port("inside") })
	})
	return at, errors.Join(closed, err)
}
