package workload

import (
	"context"
	"encoding/json"
	"slices"

	"multiedge/bench/kit"
	"multiedge/bench/proc"
	"multiedge/bench/report"
	"multiedge/edge"
	"multiedge/edge/node"
	"multiedge/internal/inspect"
)

// Probe reads what the transport that serves a Device has counted so far, and what its process has consumed.
type Probe struct {
	dev      *edge.Device
	embedded bool
}

// Reading is what one end has used and counted up to a moment, or between two.
type Reading struct {
	cpu      report.End
	faults   uint64        // minor page faults of both
	process  report.Effort // of the process
	daemon   report.Effort // of the daemon that serves it
	counters report.Counters
	dropped  uint64
	links    []report.LinkLoad
	Info     Info

	transport report.Effort // calls alone, of whichever has the transport
}

// Info describes the transport of one end.
type Info struct {
	Links     int    `json:"links"`
	MTU       int    `json:"mtu"` // the smallest of the links'
	Scheduler string `json:"scheduler"`
	Checksum  string `json:"checksum"`
	Security  string `json:"security"`
	Poll      string `json:"poll"`
	Driver    string `json:"driver"` // of the last of the links
}

// Read takes a reading, or ends by kit.Check.
func (p *Probe) Read(ctx context.Context) *Reading {
	r := readDaemon(ctx, func(ctx context.Context, what string) (json.RawMessage, error) {
		return node.Status(ctx, p.dev, what)
	})
	own := proc.Self()
	r.cpu.ProcessUser, r.cpu.ProcessSystem = own.User, own.System
	r.process = ProcessEffort(p.dev)
	if p.embedded { // the transport is in this process
		r.process = r.process.Add(r.transport)
		r.faults, r.daemon, r.cpu.DaemonUser, r.cpu.DaemonSystem = 0, report.Effort{}, 0, 0
	}
	r.faults += own.Faults
	return r
}

// asks is how the status of a daemon is asked for: node.Status, for one.
type asks = func(ctx context.Context, what string) (json.RawMessage, error)

// readDaemon reads what a daemon, or a transport that is embedded, has counted so far.
func readDaemon(ctx context.Context, ask asks) *Reading {
	r := &Reading{}
	kit.Doing(func() { r.readStatus(kit.Get(ask(ctx, "status"))) }, "status of the transport")
	kit.Doing(func() { r.readLinks(kit.Get(ask(ctx, "link"))) }, "status of the links")
	r.daemon.SystemCalls, r.daemon.WakeUps = r.transport.SystemCalls, r.transport.WakeUps
	return r
}

func (r *Reading) readStatus(body json.RawMessage) {
	var st inspect.Status
	kit.Check(json.Unmarshal(body, &st))
	r.counters, r.Info = CountersOf(st.Counters), Info{Scheduler: st.Scheduler, Checksum: st.Checksum,
		Security: st.Security, Poll: st.Poll, Links: st.LinksUp}
	r.cpu.DaemonUser, r.cpu.DaemonSystem = st.CPUUserSeconds, st.CPUSystemSeconds
	r.transport = report.Effort{WakeUps: st.Calls["wakes"],
		SystemCalls: st.Calls["wakes"] + st.Calls["sleeps"] + st.Calls["yields"] + st.Calls["looks"]}
	used, _ := proc.Of(st.PID) // of another host: nothing
	r.faults, r.daemon = used.Faults, report.Effort{Voluntary: used.Voluntary, Involuntary: used.Involuntary}
}

// readLinks reads a list, which may have come as a list of pages.
func (r *Reading) readLinks(body json.RawMessage) {
	var links []inspect.LinkStatus
	if json.Unmarshal(body, &links) != nil {
		var pages [][]inspect.LinkStatus
		kit.Check(json.Unmarshal(body, &pages))
		links = slices.Concat(pages...)
	}
	for i := range links {
		l := &links[i]
		if l.Up && (r.Info.MTU == 0 || l.MTU < r.Info.MTU) {
			r.Info.MTU = l.MTU
		}
		if l.Up {
			r.Info.Driver = l.Driver
		}
		r.dropped += l.Kernel["dropped"]
		r.transport.SystemCalls += l.Kernel["send_calls"] + l.Kernel["recv_calls"]
		r.links = append(r.links, report.LinkLoad{
			Link: l.Name, FramesSent: l.Counters["frames_sent"], BytesSent: l.Counters["bytes_sent"],
			FramesRetransmitted: l.Counters["frames_retransmitted"],
		})
	}
}

// DaemonEffort is what a daemon has spent so far. It ends by kit.Check if the daemon does not tell.
func DaemonEffort(ctx context.Context, ask asks) report.Effort { return readDaemon(ctx, ask).daemon }

// ProcessEffort is what this process, which uses a Device, has spent so far.
func ProcessEffort(d *edge.Device) report.Effort {
	c, own := d.Counters(), proc.Self()
	return report.Effort{SystemCalls: c.Wakes + c.Sleeps + c.Yields + c.Clears, WakeUps: c.Wakes,
		Voluntary: own.Voluntary, Involuntary: own.Involuntary}
}

// CountersOf picks the counters of a report from those of a daemon's status.
func CountersOf(c map[string]uint64) report.Counters {
	return report.Counters{
		FramesSent: c["frames_sent"], FramesReceived: c["frames_received"],
		FramesRetransmitted: c["frames_retransmitted"], FramesDuplicated: c["frames_duplicated"],
		FramesReordered: c["frames_reordered"], FramesLost: c["frames_lost"], AcksExplicit: c["acks_explicit"],
		FramesInPlace: c["frames_in_place"], FramesExchanged: c["frames_exchanged"],
		FramesShuffled: c["frames_shuffled"],
		FramesRejected: c["rejected_malformed"] + c["rejected_header_sum"] + c["rejected_payload_sum"] +
			c["rejected_version"] + c["rejected_no_room"],
	}
}

// since returns what happened from the reading o to r.
func (r *Reading) since(o *Reading) *Reading {
	u := &Reading{counters: r.counters.Sub(o.counters), dropped: r.dropped - o.dropped, faults: r.faults - o.faults,
		process: r.process.Since(o.process), daemon: r.daemon.Since(o.daemon), links: []report.LinkLoad{}}
	u.cpu = report.End{
		ProcessUser: r.cpu.ProcessUser - o.cpu.ProcessUser, ProcessSystem: r.cpu.ProcessSystem - o.cpu.ProcessSystem,
		DaemonUser: r.cpu.DaemonUser - o.cpu.DaemonUser, DaemonSystem: r.cpu.DaemonSystem - o.cpu.DaemonSystem,
	}.Sum()
	for i, l := range r.links {
		if i < len(o.links) && o.links[i].Link == l.Link {
			l.FramesSent -= o.links[i].FramesSent
			l.BytesSent -= o.links[i].BytesSent
			l.FramesRetransmitted -= o.links[i].FramesRetransmitted
		}
		u.links = append(u.links, l)
	}
	return u
}
