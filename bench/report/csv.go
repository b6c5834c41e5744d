package report

import (
	"encoding/csv"
	"io"
	"reflect"
	"strconv"
	"strings"
)

// csvWriter writes a header line and one record for each row.
type csvWriter struct {
	plain
	w      io.Writer
	header bool
}

// columns are those of the CSV format: fields of a row, named as in the JSON, nested ones with an underscore; or what
// derived has.
var columns = strings.Fields(`
	test transport attach round message_bytes bidirectional queue_depth connections shards receivers region_bytes
	links link_rates mtu scheduler checksum security poll driver copy alignment variant tcp_congestion_control cores
	offloads operations bytes seconds throughput_bytes_per_second throughput_from_client_bytes_per_second
	throughput_from_server_bytes_per_second throughput_peak_bytes_per_second operations_per_second latency_kind
	latency_ns_min latency_ns_mean latency_ns_p50 latency_ns_p90 latency_ns_p99 latency_ns_p99_9 latency_ns_p99_99
	latency_ns_max post_ns_p50 cpu_seconds_client cpu_seconds_server cpu_seconds_total system_calls_each
	switches_each wake_ups_each frames_sent frames_received frames_retransmitted frames_duplicated frames_reordered
	frames_lost frames_rejected frames_dropped_by_kernel acks_explicit frames_in_place frames_exchanged
	frames_shuffled integrity_checked integrity_errors error`)

// derived are columns that are no field of the JSON; empty where nothing was measured.
func derived(r *Row) map[string]any {
	more := map[string]any{"cpu_seconds_client": r.CPU.Client.Total, "cpu_seconds_server": r.CPU.Server.Total}
	for i, v := range r.EachWay {
		more["throughput_from_"+[]string{"client", "server"}[i]+"_bytes_per_second"] = v
	}
	if calls, switches, wakes, ok := r.PerMessage(); ok {
		more["system_calls_each"], more["switches_each"], more["wake_ups_each"] = calls, switches, wakes
	}
	return more
}

// flatten adds the fields of a struct by their names in the JSON.
func flatten(v reflect.Value, prefix string, into map[string]any) {
	for i := range v.NumField() {
		field, of := v.Type().Field(i), v.Field(i)
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		switch {
		case field.Anonymous:
			flatten(of, prefix, into)
		case of.Kind() == reflect.Struct:
			flatten(of, prefix+name+"_", into)
		default:
			into[prefix+name] = of.Interface()
		}
	}
}

// text is a value as CSV has it.
func text(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case bool:
		return strconv.FormatBool(v)
	case int:
		return strconv.Itoa(v)
	case uint64:
		return strconv.FormatUint(v, 10)
	case float64:
		return strconv.FormatFloat(v, 'g', -1, 64)
	case []string:
		return strings.Join(v, " ")
	}
	return ""
}

func (c *csvWriter) Row(r *Row) error {
	records := [][]string{columns, make([]string, len(columns))}
	values := derived(r)
	flatten(reflect.ValueOf(*r), "", values)
	for i, name := range columns {
		records[1][i] = text(values[name])
	}
	if c.header {
		records = records[1:]
	}
	c.header = true
	return csv.NewWriter(c.w).WriteAll(records)
}
