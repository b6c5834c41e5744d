package workload

import "multiedge/bench/report"

// row returns the row of a measurement that has not begun.
func (c *Client) row(s *Spec) *report.Row {
	r := &report.Row{
		Test: s.Test, Transport: report.TransportEdge, Attach: c.Attached, MessageBytes: s.Size, Bidirectional: s.serverSends(),
		QueueDepth: s.Depth, Connections: s.conns(), RegionBytes: s.Region, Links: c.info.Links, MTU: c.info.MTU, Scheduler: c.info.Scheduler, Checksum: c.info.Checksum,
		Security: c.info.Security, Poll: c.info.Poll, Driver: c.info.Driver, Alignment: s.Align, IntegrityChecked: s.Integrity, LatencyKind: report.LatencyCompletion,
	}
	switch {
	case s.Test == report.PingPong:
		r.LatencyKind, r.QueueDepth = report.LatencyHalfRTT, 1
	case s.ByteStream:
		r.LatencyKind = "" // a Write that has returned is not complete
	}
	return r
}

// fill completes a row from what both ends saw.
func fill(r *report.Row, s *Spec, out *outcome, here usage, there *Report) {
	r.Operations = out.sent
	if s.serverSends() || s.Test == report.PingPong { // the server's messages count as well
		r.Operations += there.Sent
	}
	r.Bytes = r.Operations * uint64(s.Size)
	r.Seconds = out.elapsed.Seconds()
	if s.serverSends() {
		r.Seconds = max(r.Seconds, there.Seconds)
	}
	if r.Seconds > 0 {
		r.Throughput, r.OperationsPerSecond = float64(r.Bytes)/r.Seconds, float64(r.Operations)/r.Seconds
	}
	if !s.serverSends() {
		r.PeakThroughput = max(out.peak, r.Throughput)
	}
	if out.lat != nil {
		r.Latency, r.Post = out.lat.Summary(out.scale), out.post.Summary(1)
	}
	r.CPU = report.Ends(here.cpu, there.CPU)
	r.OtherCPU = max(0, r.OtherCPU-r.CPU.Total) // meaningless unless both ends are on this machine: the cluster keeps it, others drop it
	client, server := here.counters, there.Counters
	r.Client, r.Server, r.Counters = &client, &server, client.Add(server)
	r.Dropped = here.dropped + there.Dropped
	r.Paths = here.links
	integrity := out.integrity
	integrity.add(there.Integrity)
	r.IntegrityErrors, r.IntegrityDetail = integrity.Errors, integrity.Details
	r.Notes = append(out.notes, there.Notes...)
}
