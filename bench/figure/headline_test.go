package figure

import (
	"bytes"
	"strings"
	"testing"

	"multiedge/bench/report"
)

// The headlines name TCP's congestion control and say where edge is slower, for latency as for throughput; heads of
// columns say how many links each used.
func TestHeadlinesSayWhereEdgeIsSlower(t *testing.T) {
	src := demonstration()
	for i := range src[0].File.Results {
		r := &src[0].File.Results[i]
		r.Links = 2
		if r.Transport == report.TransportTCP {
			r.Variant = "cubic"
		}
		if r.Transport == report.TransportTCP && r.Test == report.PingPong {
			r.Latency.P50 /= 2
			if r.MessageBytes > 8 {
				r.Latency.P50 *= 6
			}
		}
	}
	all := Besides(src)
	got := map[string]string{}
	for _, h := range Headlines(all) {
		got[h.Test+" "+report.Bytes(h.Size)] = h.Verdict()
	}
	for work, want := range map[string]string{
		"ping-pong 8 B":   "slower than tcp cubic (2.00 of its time)",
		"ping-pong 1 MiB": "faster than tcp cubic (0.33 of its time)",
		"one-way 1 MiB":   "slower than tcp cubic (0.55 of its throughput)",
	} {
		if got[work] != want {
			t.Errorf("%s: %q, want %q", work, got[work], want)
		}
	}
	if heads := strings.Join(all[0].Heads(), "; "); heads !=
		"edge encrypted checked, 2 links; tcp cubic, 1 link; raw, 2 links" {
		t.Errorf("heads %s", heads)
	}
	var b bytes.Buffer
	if err := HTML(&b, "Demo", src); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"slower than tcp cubic (2.00 of its time)", "<th>tcp cubic, 1 link</th>",
		"edge may pass it"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("the page does not say %q", want)
		}
	}
}
