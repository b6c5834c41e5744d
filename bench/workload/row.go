package workload

import (
	"multiedge/bench/proc"
	"multiedge/bench/report"
)

// row returns the row of a measurement that has not begun.
func (c *Client) row(s *Spec) *report.Row {
	r := &report.Row{
		Test: s.Test, Transport: report.TransportEdge, MessageBytes: s.Size,
		QueueDepth: s.Depth, RegionBytes: s.Region, Links: c.info.Links, MTU: c.info.MTU,
		Setup: report.Setup{
			Attach: c.Attached, Bidirectional: s.serverSends(), Connections: s.conns(),
			Scheduler: c.info.Scheduler, Checksum: c.info.Checksum, Security: c.info.Security,
			Poll: c.info.Poll, Driver: c.info.Driver, Alignment: s.Align,
		},
		Integrity: report.Integrity{IntegrityChecked: s.Integrity}, LatencyKind: report.LatencyCompletion,
	}
	switch {
	case s.Test == report.PingPong, s.Test == report.SendLatency:
		r.LatencyKind, r.QueueDepth = report.LatencyHalfRTT, 1
	case s.ByteStream:
		r.LatencyKind = "" // a Write that has returned is not complete
	}
	return r
}

// fill completes a row from what both ends saw.
func fill(r *report.Row, s *Spec, out *outcome, here *Reading, there *Report) {
	r.Operations = out.sent
	if s.serverSends() || report.IsLatencyTest(s.Test) { // the server's messages count as well
		r.Operations += there.Sent
	}
	r.Bytes = r.Operations * uint64(s.Size)
	r.Seconds = out.elapsed.Seconds()
	if s.serverSends() {
		r.Seconds = max(r.Seconds, there.Seconds)
	}
	r.Rated()
	if s.serverSends() && r.Seconds > 0 {
		size := float64(s.Size)
		r.EachWay = []float64{float64(out.sent) * size / r.Seconds, float64(there.Sent) * size / r.Seconds}
	}
	if !s.serverSends() {
		r.PeakThroughput = max(out.peak, r.Throughput)
	}
	if out.lat != nil {
		r.Latency, r.Post = out.lat.Summary(out.scale), out.post.Summary(1)
	}
	r.CPU = report.Ends(here.CPU, there.CPU)
	r.Efforts = &report.Efforts{ClientProcess: here.Process, ClientDaemon: here.Daemon, ServerProcess: there.Process,
		ServerDaemon: there.Daemon}
	r.Switches = r.Efforts.Total().Involuntary
	r.PageFaults = here.Faults + there.Faults
	// meaningless unless both ends are on this machine: the cluster keeps it, others drop it
	r.OtherCPU = max(0, r.OtherCPU-r.CPU.Total)
	client, server := here.Counters, there.Counters
	r.Client, r.Server, r.Counters = &client, &server, proc.Sum(client, server)
	r.Dropped = here.Dropped + there.Dropped
	r.Paths = here.links
	integrity := out.integrity
	integrity.add(there.Integrity)
	r.IntegrityErrors, r.IntegrityDetail = integrity.Errors, integrity.Details
	r.Notes = append(out.notes, there.Notes...)
}
