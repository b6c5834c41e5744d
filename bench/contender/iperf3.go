package contender

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"multiedge/bench/kit"
	"multiedge/bench/report"
	"multiedge/internal/config"
)

// Iperf3 is TCP as iperf3 drives it: a second opinion on TCP. Its memory is a message at each end, which caches hold
// whatever the region.
type Iperf3 struct{ Over }

func (Iperf3) Name() string      { return report.TransportIperf3 }
func (c Iperf3) Variant() string { return c.variant() }
func (Iperf3) Missing() string {
	return missing("iperf3", "apt install iperf3, dnf install iperf3")
}
func (Iperf3) Does(test string) bool { return test == report.OneWay || test == report.TwoWay }

const iperfPort = 5201

// iperfResult is the part of iperf3's JSON that matters.
type iperfResult struct {
	Error string `json:"error"`
	End   struct {
		Received     iperfSum `json:"sum_received"`
		BackReceived iperfSum `json:"sum_received_bidir_reverse"`
		Sender       string   `json:"sender_tcp_congestion"`
		Receiver     string   `json:"receiver_tcp_congestion"`
		CPU          struct {
			HostUser     float64 `json:"host_user"`
			HostSystem   float64 `json:"host_system"`
			RemoteUser   float64 `json:"remote_user"`
			RemoteSystem float64 `json:"remote_system"`
		} `json:"cpu_utilization_percent"`
	} `json:"end"`
}

type iperfSum struct {
	Bytes   uint64  `json:"bytes"`
	Seconds float64 `json:"seconds"`
}

// Run implements Contender.
func (c Iperf3) Run(ctx context.Context, j *Job) *report.Row {
	j, row := c.begin(c, j)
	row.Security = config.Plaintext
	length := strconv.Itoa(min(max(j.Size, 4), 1<<20)) // iperf3's limit
	x := &external{
		server: []string{"iperf3", "-s", "-1"}, port: iperfPort,
		client: []string{"iperf3", "-c", j.Hosts[1].IP(0).String(), "-t",
			fmt.Sprint(max(1, int(j.Duration.Seconds()+0.5))), "-l", length, "-J"},
	}
	if j.Test == report.TwoWay {
		x.client = append(x.client, "--bidir")
	}
	if j.Warmup > 0 {
		x.client = append(x.client, "-O", fmt.Sprint(max(1, int(j.Warmup.Seconds()+0.5)))) // whole seconds only
	}
	text, _ := x.run(ctx, j)
	return kit.Get(c.parse(row, text))
}

// parse fills a row from iperf3's JSON. Its processor percentages are of one processor.
func (c Iperf3) parse(row *report.Row, text string) (*report.Row, error) {
	var r iperfResult
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		return nil, fmt.Errorf("iperf3's answer: %w", err)
	}
	if r.Error != "" {
		return nil, errors.New("iperf3: " + r.Error)
	}
	e := &r.End
	if err := c.confirm(row, e.Receiver, e.Sender); err != nil {
		return nil, fmt.Errorf("iperf3: %w", err)
	}
	row.Bytes, row.Seconds = e.Received.Bytes+e.BackReceived.Bytes, max(e.Received.Seconds, e.BackReceived.Seconds)
	share := row.Seconds / 100
	row.CPU = report.Ends(
		report.End{ProcessUser: e.CPU.HostUser * share, ProcessSystem: e.CPU.HostSystem * share},
		report.End{ProcessUser: e.CPU.RemoteUser * share, ProcessSystem: e.CPU.RemoteSystem * share})
	return finish(row), nil
}
