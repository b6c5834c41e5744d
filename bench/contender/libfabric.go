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

// Libfabric is fi_pingpong over one of libfabric's providers.
type Libfabric struct {
	Provider string
	Over     // of the provider "tcp"
}

func (Libfabric) Name() string { return report.TransportLibfabric }
func (c Libfabric) Variant() string {
	if c.Provider == "tcp" {
		return c.variant(c.Provider)
	}
	return c.Provider
}
func (Libfabric) Missing() string {
	return missing("fi_pingpong", "apt install libfabric-bin, dnf install libfabric")
}
func (Libfabric) Does(test string) bool { return test == report.PingPong }

const libfabricPort = 47592

// Run implements Contender.
func (c Libfabric) Run(ctx context.Context, j *Job) *report.Row {
	j, row := c.begin(c, j)
	if c.Provider == "tcp" {
		c.probe(row, j)
	}
	row.Security = config.Plaintext
	endpoint := "msg"
	if c.Provider == "udp" {
		if endpoint = "dgram"; j.Size > 1400 {
			kit.Fail("datagrams carry small messages only")
		}
	}
	iterations := max(100, int(j.Duration.Seconds()*40e3)/(1+j.Size/16384))
	args := []string{"fi_pingpong", "-p", c.Provider, "-e", endpoint, "-S", strconv.Itoa(max(j.Size, 1)), "-I",
		strconv.Itoa(iterations)}
	x := &external{server: args, client: append(append([]string{}, args...), j.Hosts[1].IP(0).String()),
		port: libfabricPort}
	var text string
	text, row.CPU = x.run(ctx, j)
	return kit.Get(c.parse(row, text, iterations))
}

// parse fills a row from the line under the header "bytes #sent #ack total time MB/sec usec/xfer Mxfers/sec".
func (c Libfabric) parse(row *report.Row, text string, iterations int) (*report.Row, error) {
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) < 8 {
			continue
		}
		us, err := strconv.ParseFloat(f[len(f)-2], 64)
		if err != nil {
			continue
		}
		row.Operations = 2 * uint64(iterations)
		row.Bytes = row.Operations * uint64(row.MessageBytes)
		row.Seconds = us * float64(row.Operations) / 1e6
		row.Latency = report.Latency{Count: uint64(iterations), P50: us * 1e3, Mean: us * 1e3}
		return finish(row), nil
	}
	return nil, errors.New("fi_pingpong's answer has no line of figures")
}
