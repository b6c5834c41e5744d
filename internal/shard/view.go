package shard

import (
	"slices"

	"multiedge/internal/config"
	"multiedge/internal/engine"
	"multiedge/linkdrv"
	"multiedge/regmem"
)

// Read-only views of a shard, for package inspect. The functions run by Do and return copies: nothing that they return
// belongs to the shard.

// View is what a shard knows, but for connections and regions, which may be many.
type View struct {
	Draining  bool
	Evictions uint64
	Calls     Calls
	Exports   int
	Slots     int // places of clients, for LookAtRegions
	Links     []LinkView
	Clients   []ClientView
}

// SpacesView is what all spaces of a shard did.
type SpacesView struct {
	Spaces int
	Pinned uint64 // bytes
	Counts regmem.SpaceCounters
}

// LinkView is one configured link.
type LinkView struct {
	Config   config.Link
	Number   int
	Up       bool
	Info     linkdrv.Info // of its driver, if it is up
	Blocked  bool
	Opens    uint64
	Discards uint64
	Error    string        // the latest; empty: none
	Stats    linkdrv.Stats // under all its drivers so far
}

// ClientView is one client.
type ClientView struct {
	Label    Label
	Dying    bool // gone, but its memory is still in use
	Depth    int
	InFlight int
	Posted   int // buffers for messages
	Conns    int
	Regions  int
	Services []string // some of them
	Offered  int      // how many they are
}

// ConnView is what a shard knows of a connection besides its engine.
type ConnView struct {
	Label   Label // its client's
	Exports int

	// of the oldest of its exports
	Rights regmem.Perm
	Bytes  uint64
}

// RegionView is one region.
type RegionView struct {
	Label    Label // its client's
	ID       uint32
	Bytes    int
	Ready    bool // it is mapped, and operations may use it
	InFlight int
	Exported bool
	Space    *SpaceView // nil: all of it is pinned
}

// SpaceView is what a region has that is a space.
type SpaceView struct {
	Pinned, Budget uint64 // bytes
	Counts         regmem.SpaceCounters
}

// Look returns what the shard knows, with so many names of services of each client at most.
func (s *Shard) Look(names int) View {
	v := View{Draining: s.draining, Evictions: s.clients.evictions, Calls: s.systemCalls(),
		Exports: s.grants.Len(), Slots: len(s.clients.list)}
	for _, l := range s.links.active {
		if l.inside {
			continue
		}
		v.Links = append(v.Links, LinkView{
			Config: l.cfg, Number: l.index, Up: l.drv != nil, Info: l.info,
			Blocked: s.links.blockedLinks&(1<<l.index) != 0,
			Opens:   l.opens, Discards: l.discards, Error: l.lastErr, Stats: l.stats(),
		})
	}
	for _, c := range s.clients.list {
		if c != nil {
			v.Clients = append(v.Clients, ClientView{
				Label: c.label, Dying: c.rings == nil, Depth: len(c.flight.ops), InFlight: c.flight.inflight,
				Posted:  c.receives.posted,
				Conns:   len(c.conns),
				Regions: c.regions.n, Services: slices.Clone(c.names[:min(names, len(c.names))]), Offered: len(c.names),
			})
		}
	}
	return v
}

// LookAtConn returns what the shard knows of a connection; nothing of one that is no client's.
func (s *Shard) LookAtConn(id engine.ConnID) ConnView {
	cn := s.clients.conns[id]
	if cn == nil {
		return ConnView{}
	}
	v := ConnView{Label: cn.client.label, Exports: s.grants.Owned(uint64(cn.id))}
	v.Rights, v.Bytes = s.grants.Oldest(uint64(cn.id))
	return v
}

// LookAtRegions appends regions of the client in a slot, in n places from one on, and returns where to go on: 0 at the
// end.
func (s *Shard) LookAtRegions(out []RegionView, slot, from, n int) (_ []RegionView, next int) {
	if slot >= len(s.clients.list) || s.clients.list[slot] == nil {
		return out, 0
	}
	c := s.clients.list[slot]
	next = c.regions.some(from, n, func(r *regmem.Region) {
		v := RegionView{Label: c.label, ID: r.ID, Bytes: r.Mem.Len(), Ready: c.regions.get(r.ID) != nil,
			InFlight: r.InFlight, Exported: r.Granted()}
		if sp, ok := r.Back.(*regmem.Space); ok {
			s.spaces.tell(sp)
			v.Space = &SpaceView{Pinned: sp.Pinned(), Budget: sp.Budget(), Counts: sp.Count}
		}
		out = append(out, v)
	})
	return out, next
}

// LookAtSpaces returns what all spaces did, of those that are there as LookAtRegions found them last: an iteration goes
// through some, whoever asks and however many there are. What is told of counts never goes back.
func (s *Shard) LookAtSpaces() SpacesView {
	v := s.spaces.told
	v.Spaces = len(s.spaces.byBacking)
	return v
}
