package inspect

import (
	"fmt"
	"net"
	"os"
	"reflect"
	"runtime"
	"runtime/metrics"
	"strings"
	"unicode"

	"multiedge/internal/engine"
	"multiedge/internal/ipc"
	"multiedge/internal/mono"
	"multiedge/internal/shard"

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

	wrong []engine.NameTrouble
}

// PageRoom is what a page of a list may take of a control message; the rest is for the message around it.
const PageRoom = ipc.MaxMessage - 4096

// mostNames is how many names of services fit in an entry of a page, however they are spelt.
const mostNames = PageRoom / 2 / (6*ipc.MaxName + 3)

// show fills in what a shard knows.
func (p *part) show(number int, v *shard.View) {
	p.Status.Draining, p.Status.Evictions, p.Status.Exports = v.Draining, v.Evictions, v.Exports
	p.Status.Calls = countsOf(v.Calls)
	for i := range v.Links {
		p.Links = append(p.Links, linkStatus(&v.Links[i]))
	}
	for i := range v.Clients {
		p.Clients = append(p.Clients, clientStatus(number, &v.Clients[i]))
	}
}

func linkStatus(l *shard.LinkView) LinkStatus {
	st := LinkStatus{
		Name: l.Config.Name, Listen: l.Config.Listen, Number: l.Number, Weight: l.Config.Weight,
		Opens: l.Opens, Discards: l.Discards,
		Error: l.Error, Blocked: l.Blocked, Kernel: countsOf(l.Stats),
	}
	if l.Up {
		st.Up, st.MAC, st.MTU, st.Driver, st.RxSlots = true, l.Info.Addr().String(), l.Info.MTU, l.Info.Kind,
			l.Info.RxSlots
		st.index = l.Info.Index
		if l.Info.Name != l.Config.Name && l.Config.Listen == "" {
			st.Device = l.Info.Name
		}
	}
	return st
}

func clientStatus(number int, c *shard.ClientView) ClientStatus {
	st := ClientStatus{
		PID: c.Label.PID, UID: c.Label.UID, Program: c.Label.Program, Shard: number, State: "attached", Depth: c.Depth,
		InFlight: c.InFlight, Connections: c.Conns, Regions: c.Regions, Services: append([]string{}, c.Services...),
		Age: mono.Now().Sub(c.Label.Since).Seconds(),
	}
	if more := c.Offered - len(c.Services); more > 0 {
		st.Services = append(st.Services, fmt.Sprintf("and %d more", more))
	}
	if c.Dying {
		st.State = "dying"
	}
	return st
}

// connStatus puts together what the engine says of a connection and what the shard does.
func connStatus(number int, c *shard.ConnView, r *engine.ConnStatus) ConnStatus {
	st := ConnStatus{
		ID: uint32(r.ID), Peer: r.Peer, Service: r.Service, State: r.State, Ordered: r.Ordered, PID: c.Label.PID,
		Program: c.Label.Program, Shard: number, Submitted: r.Submitted, BytesIn: r.BytesIn, BytesOut: r.BytesOut,
		Outstanding: r.Outstanding, Held: r.Held, Unread: r.Notes, Exports: c.Exports,
		Waiting: r.Waiting, Credit: r.Credit, Receives: r.Receives, Sharing: r.Sharing, ExportBytes: c.Bytes,
	}
	if c.Exports > 0 {
		st.ExportRights = c.Rights.String()
	}
	return st
}

func regionStatus(r *shard.RegionView) RegionStatus {
	st := RegionStatus{ID: r.ID, PID: r.Label.PID, UID: r.Label.UID, Bytes: r.Bytes, Pinned: r.Ready,
		InFlight: r.InFlight, Exported: r.Exported, Resident: uint64(r.Bytes)}
	if sp := r.Space; sp != nil {
		st.Pinned, st.Resident, st.Budget, st.Counters = false, sp.Pinned, sp.Budget, countsOf(sp.Counts)
	}
	return st
}

// fill adds what needs no shard.
func (in *Inspector) fill(out *Snapshot, counters engine.Counters) {
	n, cfg, st, id := &in.node, in.node.Config, &out.Status, in.node.Identity()
	out.Counters = counters
	st.Schema, st.Node, st.Name, st.Version, st.GoVersion = StatusSchema, n.ID.String(), cfg.Name, n.Version,
		runtime.Version()
	st.Epoch, st.PID = fmt.Sprintf("%016x", n.Epoch), os.Getpid()
	st.UptimeSeconds = mono.Now().Sub(in.began).Seconds()
	if n.Serving {
		st.Socket = cfg.Socket
	}
	st.Scheduler, st.Profile, st.Checksum = cfg.Scheduler, cfg.Profile, cfg.Checksum
	st.Poll, st.Copy = cfg.Poll, cfg.Copy
	st.EtherType = fmt.Sprintf("%#04x", cfg.EtherType)
	st.CPUUserSeconds, st.CPUSystemSeconds, st.ResidentBytes = usage()
	st.HeapBytes, st.Goroutines = heapBytes(), runtime.NumGoroutine()
	st.Counters = countsOf(counters)
	st.Links, st.Peers, st.Clients, st.Regions = len(out.Links), countNodes(out.Peers), len(out.Clients),
		len(out.Regions)
	limits := n.Ledger.Admitted()
	st.PinnedBytes = n.Ledger.Pinned()
	st.ChargedBytes, st.RegionsCharged = n.Ledger.Charged()
	st.Spaces.FilledBytes, st.Spaces.FilledLimit = n.Ledger.Filled(), uint64(limits.FilledTotal)
	st.Spaces.PinDelay, st.Spaces.PinTime = bucketsOf(&out.Latency.PinDelay), bucketsOf(&out.Latency.Pin)
	st.PinnedLimit, st.RegionsLimit, st.ReserveBytes, st.ClientsLimit = uint64(limits.PinnedTotal), limits.RegionsTotal,
		uint64(limits.Reserve), limits.Clients
	st.MemlockLimit, _ = memlockLimit() // doctor says an error
	for i := range out.Clients {
		c := &out.Clients[i]
		c.UserPinned, c.UserRegions = n.Ledger.Of(c.UID)
	}
	st.Reload = n.Reload()
	st.Connections = len(out.Conns)
	if !n.InMemory && !n.Elsewhere {
		if all, err := net.Interfaces(); err == nil {
			lookUp(out.Links, all)
		}
	}
	for i := range out.Links {
		if l := &out.Links[i]; l.Up {
			st.LinksUp++
		} else {
			st.LinksDown = append(st.LinksDown, l.Name+": "+l.downText())
		}
	}
	for i := range out.Peers {
		out.Peers[i].explain(cfg.Name, id.publicKey())
	}
	out.protection(id)
	for i := range out.Authorised {
		if a := &out.Authorised[i]; a.State == notHeard {
			a.explain(cfg.Name, id.publicKey(), out)
		}
	}
}

func peerStatus(p *engine.PeerStatus, links []LinkStatus) PeerStatus {
	st := PeerStatus{
		Name: p.Name, Node: p.ID.String(), PeerShard: p.Shard, State: "known", AgeSeconds: p.Age.Seconds(),
		SilentSeconds: p.Silent.Seconds(),
		Connections:   p.Connections, InFlight: p.InFlight, Lost: p.Lost, Retransmitted: p.Retransmits,
		Paths:    []PathStatus{},
		Received: p.Received, Sessions: p.Sessions, Flaps: p.Flaps, Twins: p.Twins, trouble: p.Trouble,
		troubleAgo: p.TroubleAgo,
	}
	if p.Open {
		st.State = "open"
	} else if p.Session {
		st.State = "connecting"
	}
	for i := range p.Paths {
		t := &p.Paths[i]
		ps := PathStatus{
			Link: nameOf(links, t.Link), PeerLink: t.PeerLink, PeerMAC: t.PeerAddr.String(),
			State: t.State, MTU: t.MTU, PeerMTU: t.PeerMTU, Datagrams: t.Joined,
			SRTT: int64(t.SRTT), MinRTT: int64(t.MinRTT), Window: t.Window,
			Congestion: t.Control, Marks: t.Marks, InFlight: t.InFlight,
			Counters: countsOf(t.Counters),
		}
		if t.SeenAs.Known() {
			ps.SeenAs = t.SeenAs.String()
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

// countsOf turns a struct of uint64 counters, or of such structs, into Counts.
func countsOf(v any) Counts {
	out := Counts{}
	out.fill(reflect.ValueOf(v))
	return out
}

func (c Counts) fill(v reflect.Value) {
	for i := range v.NumField() {
		switch f, n := v.Type().Field(i), v.Field(i); {
		case n.Kind() == reflect.Struct:
			c.fill(n)
		case n.Kind() == reflect.Uint64 && f.IsExported():
			c[snake(f.Name)] = n.Uint()
		}
	}
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
