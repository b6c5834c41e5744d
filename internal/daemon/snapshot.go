package daemon

import (
	"fmt"
	"net"
	"os"
	"reflect"
	"runtime"
	"runtime/metrics"
	"strings"
	"time"
	"unicode"

	"multiedge/internal/engine"
	"multiedge/internal/ipc"
	"multiedge/internal/mono"
	"multiedge/regmem"

	"golang.org/x/sys/unix"
)

// Snapshot is everything at one moment.
type Snapshot struct {
	Status   Status
	Counters engine.Counters // what Status.Counters shows by name
	Latency  engine.Latency
	Links    []LinkStatus
	Peers    []PeerStatus
	Conns    []ConnStatus
	Regions  []RegionStatus
	Clients  []ClientStatus
	Claim    *Claim // nil: nobody else has claimed the node's identity

	Authorised []AuthorisedStatus
}

// Snapshot copies the daemon's state, on each shard between two iterations, and puts the shards together.
func (d *Daemon) Snapshot() (*Snapshot, error) {
	parts := make([]part, len(d.shards))
	err := d.everyShard(func(s *shard, now mono.Time) {
		parts[s.number].raw = s.eng.Snapshot(now)
		s.describe(&parts[s.number].Snapshot)
	})
	if err != nil {
		return nil, err
	}
	var shards []ShardStatus
	for i, s := range d.shards {
		parts[i].fill(i)
		shards = append(shards, s.status(&parts[i]))
	}
	out, counters := join(parts)
	out.Status.Shards = shards
	d.fill(out, counters)
	return out, nil
}

// describe copies what the shard itself knows.
func (s *shard) describe(out *Snapshot) {
	out.Status.Draining, out.Status.Evictions, out.Status.Exports = s.draining, s.evictions, s.grants.Len()
	for _, l := range s.active {
		out.Links = append(out.Links, l.status(s))
	}
	for _, c := range s.clients {
		if c == nil {
			continue
		}
		cred := c.session.cred
		cs := ClientStatus{
			PID: cred.PID, UID: cred.UID, State: "attached", Depth: len(c.ops), InFlight: c.inflight, Connections: len(c.conns), Regions: c.regions.n,
			Services: someOf(c.names), Age: time.Since(c.session.since).Seconds(),
		}
		if c.rings == nil {
			cs.State = "dying"
		}
		out.Clients = append(out.Clients, cs)
		c.regions.all(func(r *regmem.Region) {
			out.Regions = append(out.Regions, RegionStatus{
				ID: r.ID, PID: cred.PID, UID: cred.UID, Bytes: r.Mem.Len(), Pinned: r.Mem.Pinned(), InFlight: r.InFlight, Exported: r.Granted(),
			})
		})
	}
	for id, cn := range s.conns {
		out.Conns = append(out.Conns, ConnStatus{ID: uint32(id), PID: cn.client.session.cred.PID, Exports: len(cn.exports)})
	}
}

// someOf returns the names that fit in an entry of a page, however they are spelt.
func someOf(names []string) []string {
	const most = pageRoom / 2 / (6*ipc.MaxName + 3)
	if len(names) <= most {
		return append([]string{}, names...)
	}
	return append(append([]string{}, names[:most]...), fmt.Sprintf("and %d more", len(names)-most))
}

func (l *link) status(s *shard) LinkStatus {
	st := LinkStatus{
		Name: l.cfg.Name, Number: l.index, Weight: l.cfg.Weight, Opens: l.opens, Discards: l.discards, Error: l.lastErr,
		Blocked: s.blockedLinks&(1<<l.index) != 0, Kernel: countsOf(l.stats()),
	}
	if l.drv != nil {
		st.Up, st.MAC, st.MTU, st.Driver, st.RxSlots = true, l.info.MAC.String(), l.info.MTU, l.info.Kind, l.info.RxSlots
		if l.info.Name != l.cfg.Name {
			st.Device = l.info.Name
		}
	}
	return st
}

// fill adds what needs no shard.
func (d *Daemon) fill(out *Snapshot, counters engine.Counters) {
	st := &out.Status
	out.Counters = counters
	st.Schema, st.Node, st.Name, st.Version, st.GoVersion = StatusSchema, d.node.String(), d.cfg.Name, d.version, runtime.Version()
	st.Epoch, st.PID, st.UptimeSeconds = fmt.Sprintf("%016x", d.epoch), os.Getpid(), time.Since(d.began).Seconds()
	if d.listener != nil {
		st.Socket = d.cfg.Socket
	}
	st.Scheduler, st.Profile, st.Checksum, st.Poll, st.Copy = d.cfg.Scheduler, d.cfg.Profile, d.cfg.Checksum, d.cfg.Poll, d.cfg.Copy
	st.EtherType = fmt.Sprintf("%#04x", d.cfg.EtherType)
	st.CPUUserSeconds, st.CPUSystemSeconds, st.ResidentBytes = usage()
	st.HeapBytes, st.Goroutines = heapBytes(), runtime.NumGoroutine()
	st.Counters = countsOf(counters)
	st.Links, st.Peers, st.Clients, st.Regions = len(out.Links), countNodes(out.Peers), len(out.Clients), len(out.Regions)
	st.PinnedBytes = d.accounts.pinned()
	st.Connections = len(out.Conns)
	for i := range out.Links {
		if out.Links[i].Up {
			st.LinksUp++
		}
	}
	d.trust.fill(out)
}

func peerStatus(p *engine.PeerStatus, links []LinkStatus) PeerStatus {
	st := PeerStatus{
		Name: p.Name, Node: p.ID.String(), PeerShard: p.Shard, State: "known", AgeSeconds: p.Age.Seconds(), SilentSeconds: p.Silent.Seconds(),
		Connections: p.Connections, InFlight: p.InFlight, Lost: p.Lost, Retransmitted: p.Retransmits, Paths: []PathStatus{},
	}
	if p.Open {
		st.State = "open"
	} else if p.Session {
		st.State = "connecting"
	}
	for i := range p.Paths {
		t := &p.Paths[i]
		ps := PathStatus{
			Link: nameOf(links, t.Link), PeerLink: t.PeerLink, PeerMAC: net.HardwareAddr(t.PeerMAC[:]).String(), State: t.State, MTU: t.MTU, Datagrams: t.Joined,
			SRTT: int64(t.SRTT), MinRTT: int64(t.MinRTT), Window: t.Window, InFlight: t.InFlight, Counters: countsOf(t.Counters),
		}
		st.Paths = append(st.Paths, ps)
	}
	return st
}

// nameOf returns the name of a link, or its number if it has gone.
func nameOf(links []LinkStatus, number int) string {
	for i := range links {
		if links[i].Number == number {
			return links[i].Name
		}
	}
	return fmt.Sprint(number)
}

// joinConns adds the owner, which the shard knows, to what the engine says of each connection, in the engine's order.
func joinConns(mine []ConnStatus, raw []engine.ConnStatus) []ConnStatus {
	byID := make(map[uint32]*ConnStatus, len(mine))
	for i := range mine {
		byID[mine[i].ID] = &mine[i]
	}
	out := make([]ConnStatus, 0, len(raw))
	for i := range raw {
		r := &raw[i]
		st := ConnStatus{
			ID: uint32(r.ID), Peer: r.Peer, Service: r.Service, State: r.State, Ordered: r.Ordered, Submitted: r.Submitted,
			Outstanding: r.Outstanding, Held: r.Held, Unread: r.Notes,
		}
		if m := byID[st.ID]; m != nil {
			st.PID, st.Exports = m.PID, m.Exports
		}
		out = append(out, st)
	}
	return out
}

// usage returns what the process has consumed so far.
func usage() (user, system float64, peak uint64) {
	var ru unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &ru) != nil {
		return 0, 0, 0
	}
	return float64(ru.Utime.Nano()) / 1e9, float64(ru.Stime.Nano()) / 1e9, uint64(ru.Maxrss) << 10
}

// heapBytes asks the runtime without stopping the world.
func heapBytes() uint64 {
	m := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	if metrics.Read(m); m[0].Value.Kind() != metrics.KindUint64 {
		return 0
	}
	return m[0].Value.Uint64()
}

// countsOf turns a struct of uint64 counters into Counts.
func countsOf(v any) Counts {
	rv := reflect.ValueOf(v)
	out := make(Counts, rv.NumField())
	for i := range rv.NumField() {
		if f := rv.Field(i); f.Kind() == reflect.Uint64 && rv.Type().Field(i).IsExported() {
			out[snake(rv.Type().Field(i).Name)] = f.Uint()
		}
	}
	return out
}

// snake turns FramesSent into frames_sent.
func snake(name string) string {
	var b strings.Builder
	for i, r := range name {
		if unicode.IsUpper(r) && i > 0 {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}
