package workload

import (
	"context"
	"encoding/json"
	"reflect"
	"slices"

	"multiedge/bench/kit"
	"multiedge/bench/proc"
	"multiedge/bench/report"
	"multiedge/edge"
	"multiedge/edge/node"
	"multiedge/internal/inspect"
	"multiedge/internal/ipc"
)

// Probe reads what the transport that serves a Device has counted so far, and what its process has consumed.
type Probe struct {
	dev      *edge.Device
	embedded bool
}

// Reading is what one end has used and counted up to a moment, or between two.
type Reading struct {
	Counted
	links  []report.LinkLoad
	Info   Info
	Status inspect.Status // that it was read from

	transport report.Effort // calls alone, of whichever has the transport
}

// Counted is the numbers of a Reading.
type Counted struct {
	CPU      report.End      `json:"cpu"`
	Faults   uint64          `json:"page_faults"`    // minor ones of both
	Process  report.Effort   `json:"process_effort"` // of the process
	Daemon   report.Effort   `json:"daemon_effort"`  // of the daemon that serves it
	Counters report.Counters `json:"counters"`
	Dropped  uint64          `json:"dropped"` // frames, by the kernel
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
	r.CPU.ProcessUser, r.CPU.ProcessSystem = own.User, own.System
	r.Process = ProcessEffort(p.dev)
	if p.embedded { // the transport is in this process
		r.Process = proc.Sum(r.Process, r.transport)
		r.Faults, r.Daemon, r.CPU.DaemonUser, r.CPU.DaemonSystem = 0, report.Effort{}, 0, 0
	}
	r.Faults += own.Faults
	return r
}

// asks is how the status of a daemon is asked for: node.Status, for one.
type asks = func(ctx context.Context, what string) (json.RawMessage, error)

// readDaemon reads what a daemon, or a transport that is embedded, has counted so far.
func readDaemon(ctx context.Context, ask asks) *Reading {
	r := &Reading{}
	kit.Doing(func() { r.readStatus(kit.Get(ask(ctx, "status"))) }, "status of the transport")
	kit.Doing(func() { r.readLinks(kit.Get(ask(ctx, "link"))) }, "status of the links")
	r.Daemon.SystemCalls, r.Daemon.WakeUps = r.transport.SystemCalls, r.transport.WakeUps
	return r
}

func (r *Reading) readStatus(body json.RawMessage) {
	st := &r.Status
	kit.Check(json.Unmarshal(body, st))
	r.Counters, r.Info = CountersOf(st.Counters), Info{Scheduler: st.Scheduler, Checksum: st.Checksum,
		Security: st.Security, Poll: st.Poll, Links: st.LinksUp}
	r.CPU.DaemonUser, r.CPU.DaemonSystem = st.CPUUserSeconds, st.CPUSystemSeconds
	r.transport = report.Effort{WakeUps: st.Calls["wakes"],
		SystemCalls: st.Calls["wakes"] + st.Calls["sleeps"] + st.Calls["yields"] + st.Calls["looks"]}
	used, _ := proc.Of(st.PID) // of another host: nothing
	r.Faults, r.Daemon = used.Faults, report.Effort{Voluntary: used.Voluntary, Involuntary: used.Involuntary}
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
		r.Dropped += l.Kernel["dropped"]
		r.transport.SystemCalls += l.Kernel["send_calls"] + l.Kernel["recv_calls"]
		r.links = append(r.links, report.LinkLoad{
			Link: l.Name, FramesSent: l.Counters["frames_sent"], BytesSent: l.Counters["bytes_sent"],
			FramesRetransmitted: l.Counters["frames_retransmitted"],
		})
	}
}

// ReadDaemon reads what the daemon at a socket has counted so far. It ends by kit.Check if the daemon does not tell.
func ReadDaemon(ctx context.Context, socket string) *Reading {
	return readDaemon(ctx, func(ctx context.Context, what string) (json.RawMessage, error) {
		return ipc.Ask(ctx, socket, ipc.Message{Kind: ipc.KindStatus, What: what})
	})
}

// ProcessEffort is what this process, which uses a Device, has spent so far.
func ProcessEffort(d *edge.Device) report.Effort {
	c, own := d.Counters(), proc.Self()
	return report.Effort{SystemCalls: c.Wakes + c.Sleeps + c.Yields + c.Clears, WakeUps: c.Wakes,
		Voluntary: own.Voluntary, Involuntary: own.Involuntary}
}

// CountersOf picks the counters of a report, by their names in JSON, from those of a daemon's status.
func CountersOf(c map[string]uint64) (n report.Counters) {
	v := reflect.ValueOf(&n).Elem()
	for i := range v.NumField() {
		v.Field(i).SetUint(c[v.Type().Field(i).Tag.Get("json")])
	}
	n.FramesRejected = c["rejected_malformed"] + c["rejected_header_sum"] + c["rejected_payload_sum"] +
		c["rejected_version"] + c["rejected_no_room"]
	return n
}

// Since returns what happened from the reading o to r.
func (r *Reading) Since(o *Reading) *Reading {
	u := *r
	u.Counted, u.links = proc.Since(r.Counted, o.Counted), []report.LinkLoad{}
	u.CPU = u.CPU.Sum()
	for i, l := range r.links {
		if i < len(o.links) && o.links[i].Link == l.Link {
			l = proc.Since(l, o.links[i])
		}
		u.links = append(u.links, l)
	}
	return &u
}
