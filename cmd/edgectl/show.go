package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"multiedge/internal/inspect"
	"multiedge/internal/ipc"
)

type statusCmd struct {
	All bool `short:"a" help:"Show counters that are zero, too."`
}

func (c *statusCmd) Run(g *globals) error {
	st, done, err := fetch[inspect.Status](g, ipc.Message{Kind: ipc.KindStatus})
	if err != nil || done {
		return err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "node       %s (%s), %s\n", st.Name, st.Node, yesNo(st.Draining, "draining", "serving"))
	fmt.Fprintf(&b, "daemon     version %s, process %d, up %s, cpu %.2fs user %.2fs system\n", st.Version, st.PID,
		seconds(st.UptimeSeconds), st.CPUUserSeconds, st.CPUSystemSeconds)
	if text := otherVersion(st.Version); text != "" {
		fmt.Fprintf(&b, "           %s: %s\n", text, versionRemedy)
	}
	if r := st.Reload; r != nil {
		fmt.Fprintf(&b, "reload     %s at %s", r.Result, r.At.Format(time.DateTime))
		if r.Error != "" {
			fmt.Fprintf(&b, ": %s", strings.ReplaceAll(r.Error, "\n", "; "))
		}
		fmt.Fprintln(&b)
	}
	fmt.Fprintf(&b, "links      %d of %d up\n", st.LinksUp, st.Links)
	for _, down := range st.LinksDown {
		fmt.Fprintf(&b, "           %s\n", down)
	}
	fmt.Fprintf(&b, "peers      %d\n", st.Peers)
	fmt.Fprintf(&b, "clients    %d with %d connections, %d evicted so far\n", st.Clients, st.Connections, st.Evictions)
	if len(st.Shards) > 1 || len(st.Shards) == 1 && st.Shards[0].Receivers > 0 {
		for _, s := range st.Shards {
			fmt.Fprintf(&b, "shard %-3d  %d clients with %d connections, thread %d, cpu %.2fs user %.2fs system",
				s.Shard, s.Clients, s.Connections, s.Thread, s.CPUUserSeconds, s.CPUSystemSeconds)
			if s.Receivers > 0 {
				fmt.Fprintf(&b, ", %.2fs of %d receivers for %d frames", s.CPUReceivers, s.Receivers,
					s.Counters["frames_from_readers"])
			}
			fmt.Fprintln(&b)
		}
	}
	fmt.Fprintf(&b, "memory     %d regions, %s pinned, %d exports\n", st.Regions, bytesText(st.PinnedBytes), st.Exports)
	fmt.Fprintf(&b, "limits     %d of %d clients, %d of %d regions, %s charged; pinning leaves %s free\n",
		st.Clients, st.ClientsLimit, st.RegionsCharged, st.RegionsLimit, chargedText(&st.Charges),
		bytesText(st.ReserveBytes))
	fmt.Fprintf(&b, "security   %s\n", securityText(&st))
	fmt.Fprintf(&b, "policy     scheduler %s, profile %s, poll %s, ethertype %s\n", st.Scheduler, st.Profile, st.Poll,
		st.EtherType)
	for _, name := range slices.Sorted(maps.Keys(st.Counters)) {
		if n := st.Counters[name]; n > 0 || c.All {
			fmt.Fprintf(&b, "  %-26s %d\n", name, n)
		}
	}
	_, err = io.WriteString(g.out, clean(b.String()))
	return err
}

// chargedText says what is charged of what can be, which RLIMIT_MEMLOCK may limit more than the configuration does.
func chargedText(c *inspect.Charges) string {
	if c.MemlockLimit == 0 || c.MemlockLimit >= c.PinnedLimit {
		return fmt.Sprintf("%s of %s", bytesText(c.ChargedBytes), bytesText(c.PinnedLimit))
	}
	return fmt.Sprintf("%s of %s (RLIMIT_MEMLOCK, less than limits.pinned_total: edgectl doctor)",
		bytesText(c.ChargedBytes), bytesText(c.MemlockLimit))
}

type devCmd struct{}

// Run shows what a program gets that opens a device here: as rdma dev does, in a line. There is one, of all links.
func (*devCmd) Run(g *globals) error {
	st, done, err := fetch[inspect.Status](g, ipc.Message{Kind: ipc.KindStatus})
	if err != nil || done {
		return err
	}
	return table(g.out, "DEVICE NODE STATE LINKS SHARDS SECURITY SCHEDULER CLIENTS CONNS REGIONS PINNED", [][]any{{
		st.Name, st.Node, yesNo(st.Draining, "draining", "serving"), fmt.Sprintf("%d/%d", st.LinksUp, st.Links),
		len(st.Shards), st.Security, st.Scheduler, st.Clients,
		st.Connections, st.Regions, bytesText(st.PinnedBytes),
	}})
}

type linkCmd struct{}

func (*linkCmd) Run(g *globals) error {
	links, done, err := fetch[[]inspect.LinkStatus](g, ipc.Message{Kind: ipc.KindStatus, What: "link"})
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
			name, yesNo(l.Up, "up", "down"), l.MTU, l.MAC, l.Driver, l.RxSlots, l.Weight, l.Kernel["sent"],
			l.Kernel["received"], l.Kernel["dropped"], l.Discards, l.Error,
		})
	}
	return table(g.out, "LINK STATE MTU ADDRESS DRIVER SLOTS WEIGHT SENT RECEIVED DROPPED DISCARDED ERROR", rows)
}

type peerCmd struct{}

func (*peerCmd) Run(g *globals) error {
	peers, done, err := fetch[[]inspect.PeerStatus](g, ipc.Message{Kind: ipc.KindStatus, What: "peer"})
	if err != nil || done {
		return err
	}
	sharded := slices.ContainsFunc(peers, func(p inspect.PeerStatus) bool { return p.Shard+p.PeerShard > 0 })
	var rows [][]any
	for _, p := range peers {
		if sharded {
			p.Name = fmt.Sprintf("%s (%d-%d)", p.Name, p.Shard, p.PeerShard) // shard here, shard there
		}
		if len(p.Paths) == 0 {
			rows = append(rows, []any{p.Name, p.Node, p.State, p.Connections, bytesText(p.Received), "", "", "", "", "",
				"", "", "", "", keyText(&p)})
		}
		for _, t := range p.Paths {
			rows = append(rows, []any{
				p.Name, p.Node, p.State, p.Connections, bytesText(p.Received), t.Link, t.PeerMAC, t.State, t.MTU,
				yesNo(t.Datagrams, "datagrams", "alone"), micros(t.SRTT), fmt.Sprintf("%.1f", t.Window), t.InFlight,
				t.Counters["lost"], keyText(&p),
			})
		}
	}
	if err := table(g.out, "PEER NODE STATE CONNS RECEIVED LINK PEER-MAC PATH MTU FORM SRTT WINDOW IN-FLIGHT LOST KEY",
		rows); err != nil {
		return err
	}
	return g.unreached(peers)
}

// unreached says below the table why peers have no session, those that no link hears too.
func (g *globals) unreached(peers []inspect.PeerStatus) error {
	var b strings.Builder
	said := map[string]bool{}
	for _, p := range peers {
		if said[p.Node] = true; p.Reason != "" {
			fmt.Fprintf(&b, "%s is %s: %s\n", p.Name, p.State, p.Reason)
		}
	}
	all, err := get[[]inspect.AuthorisedStatus](g, ipc.Message{Kind: ipc.KindStatus, What: "authorised"})
	if err != nil {
		return err
	}
	for _, a := range all {
		if a.Reason != "" && !said[a.Node] {
			fmt.Fprintf(&b, "%s: %s\n", a.Name, a.Reason)
		}
	}
	if b.Len() > 0 {
		_, err = io.WriteString(g.out, "\n"+clean(b.String()))
	}
	return err
}

type connCmd struct{}

func (*connCmd) Run(g *globals) error {
	conns, done, err := fetch[[]inspect.ConnStatus](g, ipc.Message{Kind: ipc.KindStatus, What: "conn"})
	if err != nil || done {
		return err
	}
	var rows [][]any
	for _, c := range conns {
		rows = append(rows, []any{
			c.ID, c.PID, c.Program, c.Peer, c.Service, c.State, yesNo(c.Ordered, "yes", "no"), bytesText(c.BytesIn),
			bytesText(c.BytesOut), c.Submitted, c.Outstanding, c.Held, c.Unread, c.Exports, c.Waiting, c.Credit,
			c.Receives,
		})
	}
	return table(g.out, "CONN PID PROGRAM PEER SERVICE STATE ORDERED RECEIVED SENT SUBMITTED OUTSTANDING HELD UNREAD "+
		"EXPORTS WAITING CREDIT RECEIVES", rows)
}

type regionCmd struct{}

func (*regionCmd) Run(g *globals) error {
	regions, done, err := fetch[[]inspect.RegionStatus](g, ipc.Message{Kind: ipc.KindStatus, What: "region"})
	if err != nil || done {
		return err
	}
	var rows [][]any
	for _, r := range regions {
		pinned := yesNo(r.Pinned, "all", "no")
		if r.Budget > 0 {
			pinned = bytesText(r.Budget)
		}
		rows = append(rows, []any{r.ID, r.PID, r.UID, bytesText(uint64(r.Bytes)), bytesText(r.Resident), pinned,
			r.Counters["cold"] + r.Counters["capacity"], r.Counters["evictions"],
			yesNo(r.Exported, "yes", "no"), r.InFlight})
	}
	return table(g.out, "REGION PID UID SIZE RESIDENT PINNABLE MISSES EVICTIONS EXPORTED OPERATIONS", rows)
}

type clientCmd struct{}

func (*clientCmd) Run(g *globals) error {
	clients, done, err := fetch[[]inspect.ClientStatus](g, ipc.Message{Kind: ipc.KindStatus, What: "client"})
	if err != nil || done {
		return err
	}
	var rows [][]any
	for _, c := range clients {
		rows = append(rows, []any{c.PID, c.UID, c.Program, c.State, seconds(c.Age), c.Depth, c.InFlight, c.Connections,
			c.Regions, bytesText(c.UserPinned), strings.Join(c.Services, ",")})
	}
	return table(g.out, "PID UID PROGRAM STATE AGE DEPTH OPERATIONS CONNS REGIONS USER-CHARGED SERVICES", rows)
}
