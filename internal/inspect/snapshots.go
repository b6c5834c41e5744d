package inspect

import (
	"sync"
	"time"

	"multiedge/internal/engine"
	"multiedge/internal/mono"
	"multiedge/internal/shard"
)

// How snapshots stay cheap for the shards, however many programs ask and however often:
//
//   - Lists are walked in slices, each at most sliceConns long, with an iteration of the shard between two.
//   - A caller gets a snapshot that began after its call; all callers meanwhile share it.
//   - Between the end of one and the start of the next there is a pause, several times as long as the snapshot took.

// Most that one iteration of a shard copies, in entries.
const (
	SliceConns   = 256
	slicePeers   = 16
	SliceRegions = 256
)

// The pause after a snapshot: pauseShare times what it took, within these bounds.
const (
	pauseShare = 4
	leastPause = 10 * time.Millisecond
	mostPause  = 500 * time.Millisecond
)

// pageAge is how old the snapshot may be that further pages of a list are cut from.
const pageAge = time.Second

// snapshots makes one after the other, for everybody.
type snapshots struct {
	mu   sync.Mutex
	next *making // asked for, and not begun; nil: none
	busy bool    // one is being made, or its pause lasts
	last *Snapshot
	at   mono.Time // when last was made
}

// making is a snapshot that somebody waits for.
type making struct {
	done chan struct{} // closed when snap or err is there
	snap *Snapshot
	err  error
}

// Snapshot returns the node's state, as it was after the call began. It is shared: nobody may change it.
func (in *Inspector) Snapshot() (*Snapshot, error) {
	c := &in.snaps
	c.mu.Lock()
	m := c.next
	if m == nil {
		m = &making{done: make(chan struct{})}
		c.next = m
		if !c.busy {
			c.busy = true
			go in.makeSnapshots()
		}
	}
	c.mu.Unlock()
	<-m.done
	return m.snap, m.err
}

// Recent returns the latest snapshot if it is of the last pageAge, else a new one.
func (in *Inspector) Recent() (*Snapshot, error) {
	c := &in.snaps
	c.mu.Lock()
	last, at := c.last, c.at
	c.mu.Unlock()
	if last != nil && mono.Now().Sub(at) < pageAge {
		return last, nil
	}
	return in.Snapshot()
}

// makeSnapshots makes snapshots until nobody waits for one.
func (in *Inspector) makeSnapshots() {
	c := &in.snaps
	for {
		c.mu.Lock()
		m := c.next
		c.next = nil
		if c.busy = m != nil; !c.busy {
			at := c.at
			time.AfterFunc(pageAge, func() { c.forget(at) })
			c.mu.Unlock()
			return
		}
		c.mu.Unlock()
		began := mono.Now()
		m.snap, m.err = in.snapshot()
		took := mono.Now().Sub(began)
		c.mu.Lock()
		if c.last, c.at = m.snap, mono.Now(); in.stopped() {
			c.last = nil
		}
		c.mu.Unlock()
		close(m.done)
		t := time.NewTimer(min(max(pauseShare*took, leastPause), mostPause))
		select {
		case <-t.C:
		case <-in.node.Stopped:
		}
		t.Stop()
	}
}

// forget lets go of the snapshot of that time, which nobody may use any more.
func (c *snapshots) forget(at mono.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.at == at {
		c.last = nil
	}
}

// snapshot copies the state of each shard, slice by slice, and puts the shards together.
func (in *Inspector) snapshot() (*Snapshot, error) {
	parts := make([]part, len(in.node.Shards))
	var shards []ShardStatus
	for i, s := range in.node.Shards {
		if err := in.copyShard(s, &parts[i]); err != nil {
			return nil, err
		}
	}
	for i, s := range in.node.Shards {
		parts[i].fill(i)
		shards = append(shards, shardStatus(s, &parts[i]))
	}
	out, counters := join(parts)
	out.Status.Shards = shards
	in.fill(out, counters)
	return out, nil
}

// copyShard fills a part. Each function runs in an iteration of its own.
func (in *Inspector) copyShard(s *shard.Shard, p *part) error {
	var view shard.View
	err := s.Do(func(now mono.Time) {
		p.raw = s.Engine().SnapshotHead(now)
		view = s.Look(mostNames)
	})
	if err != nil {
		return err
	}
	p.show(s.Number(), &view)
	for from, more := 0, true; more && err == nil; more = from > 0 {
		room := make([]engine.PeerStatus, 0, slicePeers)
		err = s.Do(func(now mono.Time) { room, from = s.Engine().SnapshotPeers(now, room, from, slicePeers) })
		p.raw.Peers = append(p.raw.Peers, room...)
	}
	for from, more := 0, true; more && err == nil; more = from > 0 {
		room, mine := make([]engine.ConnStatus, 0, SliceConns), make([]shard.ConnView, SliceConns)
		err = s.Do(func(mono.Time) {
			room, from = s.Engine().SnapshotConns(room, from, SliceConns)
			for i := range room {
				mine[i] = s.LookAtConn(room[i].ID)
			}
		})
		for i := range room {
			p.Conns = append(p.Conns, connStatus(s.Number(), &mine[i], &room[i]))
		}
	}
	for slot := range view.Slots {
		for from, more := 0, true; more && err == nil; more = from > 0 {
			room := make([]shard.RegionView, 0, SliceRegions)
			err = s.Do(func(mono.Time) { room, from = s.LookAtRegions(room, slot, from, SliceRegions) })
			for i := range room {
				p.Regions = append(p.Regions, regionStatus(&room[i]))
			}
		}
	}
	if err != nil {
		return err
	}
	return s.Do(func(mono.Time) { // what the walk through the regions found
		v := s.LookAtSpaces()
		p.Status.Spaces = SpacesStatus{Spaces: v.Spaces, PinnedBytes: v.Pinned, Counters: countsOf(v.Counts)}
	})
}
