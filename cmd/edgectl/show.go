package main

import (
	"fmt"
	"io"
	"slices"
	"sort"
	"strings"

	"multiedge/internal/daemon"
	"multiedge/internal/ipc"
)

type statusCmd struct {
	All bool `short:"a" help:"Show counters that are zero, too."`
}

func (c *statusCmd) Run(g *globals) error {
	st, done, err := fetch[daemon.Status](g, ipc.Message{Kind: ipc.KindStatus})
	if err != nil || done {
		return err
	}
	var b strings.Builder
	state := "serving"
	if st.Draining {
		state = "draining"
	}
	fmt.Fprintf(&b, "node       %s (%s), %s\n", st.Name, st.Node, state)
	fmt.Fprintf(&b, "daemon     version %s, process %d, up %s, cpu %.2fs user %.2fs system\n", st.Version, st.PID, seconds(st.UptimeSeconds), st.CPUUserSeconds, st.CPUSystemSeconds)
	fmt.Fprintf(&b, "links      %d of %d up\n", st.LinksUp, st.Links)
	fmt.Fprintf(&b, "peers      %d\n", st.Peers)
	fmt.Fprintf(&b, "clients    %d with %d connections, %d evicted so far\n", st.Clients, st.Connections, st.Evictions)
	if len(st.Shards) > 1 || len(st.Shards) == 1 && st.Shards[0].Receivers > 0 {
		for _, s := range st.Shards {
			fmt.Fprintf(&b, "shard %-3d  %d clients with %d connections, thread %d, cpu %.2fs user %.2fs system", s.Shard, s.Clients, s.Connections, s.Thread, s.CPUUserSeconds, s.CPUSystemSeconds)
			if s.Receivers > 0 {
				fmt.Fprintf(&b, ", %.2fs of %d receivers for %d frames", s.CPUReceivers, s.Receivers, s.Counters["frames_from_readers"])
			}
			fmt.Fprintln(&b)
		}
	}
	fmt.Fprintf(&b, "memory     %d regions, %s pinned, %d exports\n", st.Regions, bytesText(st.PinnedBytes), st.Exports)
	fmt.Fprintf(&b, "security   %s\n", securityText(&st))
	fmt.Fprintf(&b, "policy     scheduler %s, profile %s, poll %s, ethertype %s\n", st.Scheduler, st.Profile, st.Poll, st.EtherType)
	names := make([]string, 0, len(st.Counters))
	for name, n := range st.Counters {
		if n > 0 || c.All {
			names = append(names, name)
		}
	}
	sort.Strings(names)
	for _, name := range names {
		fmt.Fprintf(&b, "  %-26s %d\n", name, st.Counters[name])
	}
	_, err = io.WriteString(g.out, b.String())
	return err
}

type devCmd struct{}

// Run shows what a program gets that opens a device here: as rdma dev does, in a line. There is one, of all links.
func (*devCmd) Run(g *globals) error {
	st, done, err := fetch[daemon.Status](g, ipc.Message{Kind: ipc.KindStatus})
	if err != nil || done {
		return err
	}
	return table(g.out, "DEVICE NODE STATE LINKS SHARDS SECURITY SCHEDULER CLIENTS CONNS REGIONS PINNED", [][]any{{
		st.Name, st.Node, yesNo(st.Draining, "draining", "serving"), fmt.Sprintf("%d/%d", st.LinksUp, st.Links), len(st.Shards), st.Security, st.Scheduler, st.Clients,
		st.Connections, st.Regions, bytesText(st.PinnedBytes),
	}})
}

type linkCmd struct{}

func (*linkCmd) Run(g *globals) error {
	links, done, err := fetch[[]daemon.LinkStatus](g, ipc.Message{Kind: ipc.KindStatus, What: "link"})
	if err != nil || done {
		return err
	}
	var rows [][]any
	for _, l := range links {
		name := l.Name
		if l.Device != "" {
			name += " (" + l.Device + ")"
		}
		rows = append(rows, []any{
			name, yesNo(l.Up, "up", "down"), l.MTU, l.MAC, l.Driver, l.RxSlots, l.Weight, l.Kernel["sent"], l.Kernel["received"], l.Kernel["dropped"], l.Discards, l.Error,
		})
	}
	return table(g.out, "LINK STATE MTU MAC DRIVER SLOTS WEIGHT SENT RECEIVED DROPPED DISCARDED ERROR", rows)
}

type peerCmd struct{}

func (*peerCmd) Run(g *globals) error {
	peers, done, err := fetch[[]daemon.PeerStatus](g, ipc.Message{Kind: ipc.KindStatus, What: "peer"})
	if err != nil || done {
		return err
	}
	sharded := slices.ContainsFunc(peers, func(p daemon.PeerStatus) bool { return p.Shard+p.PeerShard > 0 })
	var rows [][]any
	for _, p := range peers {
		if sharded {
			p.Name = fmt.Sprintf("%s (%d-%d)", p.Name, p.Shard, p.PeerShard) // shard here, shard there
		}
		if len(p.Paths) == 0 {
			rows = append(rows, []any{p.Name, p.Node, p.State, p.Connections, "", "", "", "", "", "", "", "", "", keyText(&p)})
		}
		for _, t := range p.Paths {
			rows = append(rows, []any{
				p.Name, p.Node, p.State, p.Connections, t.Link, t.PeerMAC, t.State, t.MTU, form(&t), micros(t.SRTT), fmt.Sprintf("%.1f", t.Window), t.InFlight, t.Counters["lost"], keyText(&p),
			})
		}
	}
	return table(g.out, "PEER NODE STATE CONNS LINK PEER-MAC PATH MTU FORM SRTT WINDOW IN-FLIGHT LOST KEY", rows)
}

// form says how frames travel on a path.
func form(t *daemon.PathStatus) string {
	if t.Datagrams {
		return "datagrams"
	}
	return "alone"
}

type connCmd struct{}

func (*connCmd) Run(g *globals) error {
	conns, done, err := fetch[[]daemon.ConnStatus](g, ipc.Message{Kind: ipc.KindStatus, What: "conn"})
	if err != nil || done {
		return err
	}
	var rows [][]any
	for _, c := range conns {
		rows = append(rows, []any{c.ID, c.PID, c.Peer, c.Service, c.State, yesNo(c.Ordered, "yes", "no"), c.Submitted, c.Outstanding, c.Held, c.Unread, c.Exports})
	}
	return table(g.out, "CONN PID PEER SERVICE STATE ORDERED SUBMITTED OUTSTANDING HELD UNREAD EXPORTS", rows)
}

type regionCmd struct{}

func (*regionCmd) Run(g *globals) error {
	regions, done, err := fetch[[]daemon.RegionStatus](g, ipc.Message{Kind: ipc.KindStatus, What: "region"})
	if err != nil || done {
		return err
	}
	var rows [][]any
	for _, r := range regions {
		rows = append(rows, []any{r.ID, r.PID, r.UID, bytesText(uint64(r.Bytes)), yesNo(r.Pinned, "yes", "no"), yesNo(r.Exported, "yes", "no"), r.InFlight})
	}
	return table(g.out, "REGION PID UID SIZE PINNED EXPORTED OPERATIONS", rows)
}

type clientCmd struct{}

func (*clientCmd) Run(g *globals) error {
	clients, done, err := fetch[[]daemon.ClientStatus](g, ipc.Message{Kind: ipc.KindStatus, What: "client"})
	if err != nil || done {
		return err
	}
	var rows [][]any
	for _, c := range clients {
		rows = append(rows, []any{c.PID, c.UID, c.State, seconds(c.Age), c.Depth, c.InFlight, c.Connections, c.Regions, strings.Join(c.Services, ",")})
	}
	return table(g.out, "PID UID STATE AGE DEPTH OPERATIONS CONNS REGIONS SERVICES", rows)
}
