package contender

import (
	"context"
	"errors"
	"strconv"
	"strings"

	"multiedge/bench/kit"
	"multiedge/bench/report"
	"multiedge/internal/config"
)

// UCX is ucx_perftest over TCP on the first link: put bandwidth and put latency.
type UCX struct{ Over }

func (UCX) Name() string      { return report.TransportUCX }
func (c UCX) Variant() string { return c.variant("put") }
func (UCX) Missing() string {
	return missing("ucx_perftest", "apt install ucx-utils, dnf install ucx")
}
func (UCX) Does(test string) bool { return test == report.OneWay || test == report.PingPong }

const ucxPort = 13337

// Run implements Contender. The number of messages is chosen so that the run takes about as long as the others'.
func (c UCX) Run(ctx context.Context, j *Job) *report.Row {
	j, row := c.begin(c, j)
	c.probe(row, j)
	row.Security = config.Plaintext
	iterations, test := int(j.Duration.Seconds()*1.7e9/float64(max(j.Size, 4096))), "ucp_put_bw"
	if j.Test == report.PingPong {
		iterations, test = int(j.Duration.Seconds()*80e3)/(1+j.Size/16384), "ucp_put_lat"
	}
	port := strconv.Itoa(ucxPort)
	x := &external{
		server: []string{"ucx_perftest", "-p", port}, port: ucxPort,
		client: []string{"ucx_perftest", j.Hosts[1].IP(0).String(), "-p", port, "-t", test, "-s",
			strconv.Itoa(max(j.Size, 1)), "-n", strconv.Itoa(max(iterations, 100)), "-w",
			strconv.Itoa(max(iterations/4, 50)), "-f"},
		env: []string{"UCX_TLS=tcp,self", "UCX_NET_DEVICES=" + j.Hosts[0].LinkNames()[0]},
	}
	var text string
	text, row.CPU = x.run(ctx, j)
	return kit.Get(c.parse(row, text))
}

// parse fills a row from the final line: iterations; latency or overhead (typical, average, overall) in us; bandwidth
// (average, overall) in 2^20 bytes/s; messages/s (average, overall).
func (c UCX) parse(row *report.Row, text string) (*report.Row, error) {
	for line := range strings.Lines(text) {
		line = strings.TrimPrefix(strings.TrimSpace(line), "Final:")
		v := numbers(strings.ReplaceAll(line, "|", " "))
		if len(v) < 8 {
			continue
		}
		row.Operations = uint64(v[0])
		row.Bytes = row.Operations * uint64(row.MessageBytes)
		if v[7] > 0 {
			row.Seconds = v[0] / v[7]
		}
		if row.Test == report.PingPong {
			row.Latency = report.Latency{Count: row.Operations, P50: v[1] * 1e3, Mean: v[3] * 1e3}
			row.Operations, row.Bytes = 2*row.Operations, 2*row.Bytes // messages of both directions
		}
	}
	if row.Operations == 0 {
		return nil, errors.New("ucx_perftest's answer has no final line")
	}
	return finish(row), nil
}
