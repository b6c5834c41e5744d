package workload

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"multiedge/bench/proc"
	"multiedge/bench/report"
	"multiedge/edge"
	"multiedge/edge/node"
)

// Probe reads what the transport that serves a Device has counted so far, and what its process has consumed.
type Probe struct {
	dev      *edge.Device
	embedded bool
}

// Reading is what one end has used and counted up to a moment.
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

// daemonStatus and linkStatus are the parts of the daemon's answers that matter here.
type daemonStatus struct {
	PID       int               `json:"pid"`
	User      float64           `json:"cpu_user_seconds"`
	System    float64           `json:"cpu_system_seconds"`
	Scheduler string            `json:"scheduler"`
	Checksum  string            `json:"checksum"`
	Security  string            `json:"security"`
	Poll      string            `json:"poll"`
	LinksUp   int               `json:"links_up"`
	Counters  map[string]uint64 `json:"counters"`
	Calls     map[string]uint64 `json:"system_calls"`
}

type linkStatus struct {
	Name     string            `json:"name"`
	Up       bool              `json:"up"`
	MTU      int               `json:"mtu"`
	Driver   string            `json:"driver"`
	Kernel   map[string]uint64 `json:"kernel"`
	Counters map[string]uint64 `json:"counters"`
}

// Read takes a reading.
func (p *Probe) Read(ctx context.Context) (*Reading, error) {
	r, err := readDaemon(ctx, func(ctx context.Context, what string) (json.RawMessage, error) {
		return node.Status(ctx, p.dev, what)
	})
	if err != nil {
		return nil, err
	}
	own := proc.Self()
	r.cpu.ProcessUser, r.cpu.ProcessSystem = own.User, own.System
	r.process = ProcessEffort(p.dev)
	if p.embedded { // the transport is in this process
		r.process = r.process.Add(r.transport)
		r.faults, r.daemon, r.cpu.DaemonUser, r.cpu.DaemonSystem = 0, report.Effort{}, 0, 0
	}
	r.faults += own.Faults
	return r, nil
}

// asks is how the status of a daemon is asked for: node.Status, for one.
type asks = func(ctx context.Context, what string) (json.RawMessage, error)

// readDaemon reads what a daemon, or a transport that is embedded, has counted so far.
func readDaemon(ctx context.Context, ask asks) (*Reading, error) {
	var st daemonStatus
	body, err := ask(ctx, "status")
	if err == nil {
		err = json.Unmarshal(body, &st)
	}
	if err != nil {
		return nil, fmt.Errorf("status of the transport: %w", err)
	}
	r := &Reading{counters: CountersOf(st.Counters), Info: Info{Scheduler: st.Scheduler, Checksum: st.Checksum,
		Security: st.Security, Poll: st.Poll, Links: st.LinksUp}}
	r.cpu.DaemonUser, r.cpu.DaemonSystem = st.User, st.System
	r.transport = report.Effort{WakeUps: st.Calls["wakes"],
		SystemCalls: st.Calls["wakes"] + st.Calls["sleeps"] + st.Calls["yields"] + st.Calls["looks"]}
	if err := r.readLinks(ctx, ask); err != nil {
		return nil, fmt.Errorf("status of the links: %w", err)
	}
	used, _ := proc.Of(st.PID) // of another host: nothing
	r.faults, r.daemon = used.Faults, r.transport
	r.daemon.Voluntary, r.daemon.Involuntary = used.Voluntary, used.Involuntary
	return r, nil
}

func (r *Reading) readLinks(ctx context.Context, ask asks) error {
	body, err := ask(ctx, "link")
	if err != nil {
		return err
	}
	links, err := joinPages(body)
	if err != nil {
		return err
	}
	for _, l := range links {
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
	return nil
}

// DaemonEffort is what a daemon has spent so far.
func DaemonEffort(ctx context.Context, ask asks) (report.Effort, error) {
	r, err := readDaemon(ctx, ask)
	if err != nil {
		return report.Effort{}, err
	}
	return r.daemon, nil
}

// ProcessEffort is what this process, which uses a Device, has spent so far.
func ProcessEffort(d *edge.Device) report.Effort {
	c, own := d.Counters(), proc.Self()
	return report.Effort{SystemCalls: c.Wakes + c.Sleeps + c.Yields + c.Clears, WakeUps: c.Wakes,
		Voluntary: own.Voluntary, Involuntary: own.Involuntary}
}

// joinPages decodes a list that may have come as a list of pages.
func joinPages(body json.RawMessage) ([]linkStatus, error) {
	var links []linkStatus
	if err := json.Unmarshal(body, &links); err == nil {
		return links, nil
	}
	var pages [][]linkStatus
	if err := json.Unmarshal(body, &pages); err != nil {
		return nil, err
	}
	return slices.Concat(pages...), nil
}

// CountersOf picks the counters of a report from those of a daemon's status.
func CountersOf(c map[string]uint64) report.Counters {
	return report.Counters{
		FramesSent: c["frames_sent"], FramesReceived: c["frames_received"],
		FramesRetransmitted: c["frames_retransmitted"],
		FramesDuplicated:    c["frames_duplicated"],
		FramesReordered:     c["frames_reordered"],
		FramesLost:          c["frames_lost"],
		AcksExplicit:        c["acks_explicit"],
		FramesInPlace:       c["frames_in_place"], FramesExchanged: c["frames_exchanged"],
		FramesShuffled: c["frames_shuffled"],
		FramesRejected: c["rejected_malformed"] + c["rejected_header_sum"] + c["rejected_payload_sum"] +
			c["rejected_version"] + c["rejected_no_room"],
	}
}

// usage is what happened between two readings.
type usage struct {
	cpu      report.End
	faults   uint64
	process  report.Effort
	daemon   report.Effort
	counters report.Counters
	dropped  uint64
	links    []report.LinkLoad
}

// since returns what happened from the reading o to r.
func (r *Reading) since(o *Reading) usage {
	u := usage{counters: r.counters.Sub(o.counters), dropped: r.dropped - o.dropped, links: []report.LinkLoad{}}
	u.faults = r.faults - o.faults
	u.process, u.daemon = r.process.Since(o.process), r.daemon.Since(o.daemon)
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
