package report

import (
	"encoding/csv"
	"io"
	"strconv"
	"strings"
)

// csvWriter writes a header line and one record for each row. Columns are named as in the JSON, nested ones with an
// underscore.
type csvWriter struct {
	w      io.Writer
	header bool
}

// A column of the CSV format.
type column struct {
	name  string
	value func(*Row) string
}

func itoa[T ~int | ~uint64](v T) string { return strconv.FormatInt(int64(v), 10) }
func ftoa(v float64) string             { return strconv.FormatFloat(v, 'g', -1, 64) }

// oneWay is the throughput of one direction, where both were measured.
func oneWay(r *Row, i int) string {
	if i >= len(r.EachWay) {
		return ""
	}
	return ftoa(r.EachWay[i])
}

// perMessage is one of the figures of Row.PerMessage; empty where nothing was counted.
func perMessage(r *Row, i int) string {
	calls, switches, wakes, ok := r.PerMessage()
	if !ok {
		return ""
	}
	return ftoa([]float64{calls, switches, wakes}[i])
}

var columns = []column{
	{"test", func(r *Row) string { return r.Test }},
	{"transport", func(r *Row) string { return r.Transport }},
	{"attach", func(r *Row) string { return r.Attach }},
	{"round", func(r *Row) string { return itoa(r.Round) }},
	{"message_bytes", func(r *Row) string { return itoa(r.MessageBytes) }},
	{"bidirectional", func(r *Row) string { return strconv.FormatBool(r.Bidirectional) }},
	{"queue_depth", func(r *Row) string { return itoa(r.QueueDepth) }},
	{"connections", func(r *Row) string { return itoa(r.Connections) }},
	{"shards", func(r *Row) string { return itoa(r.Shards) }},
	{"receivers", func(r *Row) string { return itoa(r.Receivers) }},
	{"region_bytes", func(r *Row) string { return itoa(r.RegionBytes) }},
	{"links", func(r *Row) string { return itoa(r.Links) }},
	{"link_rates", func(r *Row) string { return strings.Join(r.LinkRates, " ") }},
	{"mtu", func(r *Row) string { return itoa(r.MTU) }},
	{"scheduler", func(r *Row) string { return r.Scheduler }},
	{"checksum", func(r *Row) string { return r.Checksum }},
	{"security", func(r *Row) string { return r.Security }},
	{"poll", func(r *Row) string { return r.Poll }},
	{"driver", func(r *Row) string { return r.Driver }},
	{"copy", func(r *Row) string { return r.Copy }},
	{"alignment", func(r *Row) string { return r.Alignment }},
	{"variant", func(r *Row) string { return r.Variant }},
	{"tcp_congestion_control", func(r *Row) string { return r.Congestion }},
	{"cores", func(r *Row) string { return r.Cores }},
	{"offloads", func(r *Row) string { return r.Offloads }},
	{"operations", func(r *Row) string { return itoa(r.Operations) }},
	{"bytes", func(r *Row) string { return itoa(r.Bytes) }},
	{"seconds", func(r *Row) string { return ftoa(r.Seconds) }},
	{"throughput_bytes_per_second", func(r *Row) string { return ftoa(r.Throughput) }},
	{"throughput_from_client_bytes_per_second", func(r *Row) string { return oneWay(r, 0) }},
	{"throughput_from_server_bytes_per_second", func(r *Row) string { return oneWay(r, 1) }},
	{"throughput_peak_bytes_per_second", func(r *Row) string { return ftoa(r.PeakThroughput) }},
	{"operations_per_second", func(r *Row) string { return ftoa(r.OperationsPerSecond) }},
	{"latency_kind", func(r *Row) string { return r.LatencyKind }},
	{"latency_ns_min", func(r *Row) string { return ftoa(r.Latency.Min) }},
	{"latency_ns_mean", func(r *Row) string { return ftoa(r.Latency.Mean) }},
	{"latency_ns_p50", func(r *Row) string { return ftoa(r.Latency.P50) }},
	{"latency_ns_p90", func(r *Row) string { return ftoa(r.Latency.P90) }},
	{"latency_ns_p99", func(r *Row) string { return ftoa(r.Latency.P99) }},
	{"latency_ns_p99_9", func(r *Row) string { return ftoa(r.Latency.P999) }},
	{"latency_ns_p99_99", func(r *Row) string { return ftoa(r.Latency.P9999) }},
	{"latency_ns_max", func(r *Row) string { return ftoa(r.Latency.Max) }},
	{"post_ns_p50", func(r *Row) string { return ftoa(r.Post.P50) }},
	{"cpu_seconds_client", func(r *Row) string { return ftoa(r.CPU.Client.Total) }},
	{"cpu_seconds_server", func(r *Row) string { return ftoa(r.CPU.Server.Total) }},
	{"cpu_seconds_total", func(r *Row) string { return ftoa(r.CPU.Total) }},
	{"system_calls_each", func(r *Row) string { return perMessage(r, 0) }},
	{"switches_each", func(r *Row) string { return perMessage(r, 1) }},
	{"wake_ups_each", func(r *Row) string { return perMessage(r, 2) }},
	{"frames_sent", func(r *Row) string { return itoa(r.FramesSent) }},
	{"frames_received", func(r *Row) string { return itoa(r.FramesReceived) }},
	{"frames_retransmitted", func(r *Row) string { return itoa(r.FramesRetransmitted) }},
	{"frames_duplicated", func(r *Row) string { return itoa(r.FramesDuplicated) }},
	{"frames_reordered", func(r *Row) string { return itoa(r.FramesReordered) }},
	{"frames_lost", func(r *Row) string { return itoa(r.FramesLost) }},
	{"frames_rejected", func(r *Row) string { return itoa(r.FramesRejected) }},
	{"frames_dropped_by_kernel", func(r *Row) string { return itoa(r.Dropped) }},
	{"acks_explicit", func(r *Row) string { return itoa(r.AcksExplicit) }},
	{"frames_in_place", func(r *Row) string { return itoa(r.FramesInPlace) }},
	{"frames_exchanged", func(r *Row) string { return itoa(r.FramesExchanged) }},
	{"frames_shuffled", func(r *Row) string { return itoa(r.FramesShuffled) }},
	{"integrity_checked", func(r *Row) string { return strconv.FormatBool(r.IntegrityChecked) }},
	{"integrity_errors", func(r *Row) string { return itoa(r.IntegrityErrors) }},
	{"error", func(r *Row) string { return r.Error }},
}

func (c *csvWriter) Head(Head) error { return nil }

func (c *csvWriter) Row(r *Row) error {
	cw := csv.NewWriter(c.w)
	if !c.header {
		c.header = true
		names := make([]string, len(columns))
		for i, col := range columns {
			names[i] = col.name
		}
		if err := cw.Write(names); err != nil {
			return err
		}
	}
	rec := make([]string, len(columns))
	for i, col := range columns {
		rec[i] = col.value(r)
	}
	if err := cw.Write(rec); err != nil {
		return err
	}
	cw.Flush()
	return cw.Error()
}

func (c *csvWriter) Close() error { return nil }
