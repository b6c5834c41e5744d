package contender

import (
	"math"
	"strings"
	"testing"

	"multiedge/bench/report"
)

// What the foreign programs print, as they printed it.
const (
	ucxBandwidth = `+--------------+--------------+------------------------------+---------------------+-----------------------+
|              |              |       overhead (usec)        |   bandwidth (MB/s)  |  message rate (msg/s) |
+--------------+--------------+----------+---------+---------+----------+----------+-----------+-----------+
|    Stage     | # iterations | 50.0%ile | average | overall |  average |  overall |  average  |  overall  |
+--------------+--------------+----------+---------+---------+----------+----------+-----------+-----------+
Final:                  1621      0.410   613.497   613.497     1630.00    1630.00        1630        1630
`
	ucxLatency = "Final:                 20000      7.210     7.300     7.310        1.05       1.05      136986     " +
		" 136986\n"
	fabric = `bytes   #sent   #ack     total       time     MB/sec    usec/xfer   Mxfers/sec
8       10k     =10k     156k        0.17s      0.96       8.36       0.12
`
	iperf = `{"end":{"sum_received":{"bytes":1000000000,"seconds":1.0},"sum_received_bidir_reverse":{"bytes":500000000,"seconds":1.25},
"sender_tcp_congestion":"cubic","receiver_tcp_congestion":"cubic",
"cpu_utilization_percent":{"host_user":10,"host_system":70,"remote_user":5,"remote_system":55}}}`
)

func TestParseUCX(t *testing.T) {
	r, err := UCX{}.parse(&report.Row{Test: report.OneWay, MessageBytes: 1 << 20}, ucxBandwidth)
	if err != nil || r.Operations != 1621 || math.Abs(r.Throughput/(1<<20)-1630) > 1 {
		t.Errorf("%+v, %v", r, err)
	}
	r, err = UCX{}.parse(&report.Row{Test: report.PingPong, MessageBytes: 8}, ucxLatency)
	if err != nil || r.Latency.P50 != 7210 || r.Operations != 40000 {
		t.Errorf("%+v, %v", r, err)
	}
	if _, err := (UCX{}).parse(&report.Row{}, "Destination is unreachable"); err == nil {
		t.Error("an error message was taken for a result")
	}
}

func TestParseLibfabric(t *testing.T) {
	r, err := Libfabric{Provider: "tcp"}.parse(&report.Row{Test: report.PingPong, MessageBytes: 8}, fabric, 10000)
	if err != nil || r.Latency.P50 != 8360 || r.Operations != 20000 {
		t.Errorf("%+v, %v", r, err)
	}
	if _, err := (Libfabric{}).parse(&report.Row{}, "fi_getinfo(): -61", 1); err == nil {
		t.Error("an error message was taken for a result")
	}
}

func TestParseIperf3(t *testing.T) {
	r, err := Iperf3{}.parse(&report.Row{Test: report.TwoWay, MessageBytes: 1 << 20}, iperf)
	if err != nil || r.Congestion != "cubic" || r.Bytes != 1_500_000_000 || r.Seconds != 1.25 ||
		math.Abs(r.CPU.Client.Total-1) > 1e-9 {
		t.Errorf("%+v, %v", r, err)
	}
	if _, err := (Iperf3{Over{Congestion: "bbr"}}).parse(&report.Row{}, iperf); err == nil ||
		!strings.Contains(err.Error(), "cubic") {
		t.Errorf("cubic's result was taken for bbr's: %v", err)
	}
	for _, bad := range []string{`{"error":"unable to connect"}`, "iperf3: error"} {
		if _, err := (Iperf3{}).parse(&report.Row{}, bad); err == nil {
			t.Errorf("%q was taken for a result", bad)
		}
	}
}

func TestMissingSaysHowToInstall(t *testing.T) {
	if s := missing("no-such-program-anywhere", "apt install it"); !strings.Contains(s, "no-such-program-anywhere") ||
		!strings.Contains(s, "apt install it") {
		t.Errorf("%q", s)
	}
	if s := missing("sh", ""); s != "" {
		t.Errorf("sh: %q", s)
	}
}
