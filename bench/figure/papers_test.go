package figure

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"multiedge/bench/report"
)

// asInThePaper are results in which every claim of the paper holds. The value that the claim "worse" is about is worse
// by a factor.
type asInThePaper struct {
	worse   string
	sources []Source // one for each command
}

func (p *asInThePaper) by(name string, factor float64) float64 {
	if name == p.worse {
		return factor
	}
	return 1
}

func (p *asInThePaper) command(name string) {
	p.sources = append(p.sources, Source{Name: name, File: report.NewFile(report.Head{})})
}

func (p *asInThePaper) row(test string, size int, change func(r *report.Row)) {
	r := report.Row{Test: test, Transport: report.TransportEdge, MessageBytes: size, Links: 1, MTU: 9000, Seconds: 1,
		Setup: report.Setup{Attach: "daemon", Scheduler: "adaptive", Poll: "adaptive"}}
	change(&r)
	f := p.sources[len(p.sources)-1].File
	f.Results = append(f.Results, r)
}

func took(ns float64) report.Latency { return report.Latency{Count: 9, P50: ns} }

func (p *asInThePaper) measure() []Source {
	p.base()
	p.command("polling")
	for _, test := range []string{report.OneWay, report.TwoWay} {
		for poll, rate := range map[string]float64{"busy": 1.4 * p.by("MultiEdge 3.3", 0.6), "block": 1} {
			p.row(test, 1<<20, func(r *report.Row) { r.Poll, r.Throughput = poll, rate*1e9 })
		}
	}
	p.zeroCopy()
	p.command("schedulers")
	for name, rate := range map[string]float64{"wsrr": 1, "wd": 1.11 * p.by("MultiEdge 3.5", 0.9)} {
		p.row(report.OneWay, 1<<20, func(r *report.Row) {
			r.Links, r.LinkRates = 5, strings.Fields("2gbit 200mbit 200mbit 200mbit 200mbit")
			r.Scheduler, r.Throughput = name, rate*1e8
		})
	}
	return p.sources
}

func (p *asInThePaper) base() {
	p.command("base")
	for _, links := range []int{1, 2} {
		for _, test := range []string{report.OneWay, report.TwoWay, report.PingPong} {
			for _, size := range []int{64, 1 << 20} {
				p.row(test, size, func(r *report.Row) {
					r.Links, r.Throughput = links, 1e9
					r.Latency, r.Post = took(20e3*p.by("latency", 2)), took(1e3*p.by("posting", 3))
					end := report.End{Breakdown: report.Breakdown{report.LabelPacket: 0.2,
						report.LabelTxCopy: 0.8 * p.by("MultiEdge 3.2", 0.5)}}
					r.CPU = report.CPU{Client: end, Server: end}
				})
			}
		}
	}
	p.command("links")
	for _, links := range []int{1, 2, 8} {
		p.row(report.OneWay, 1<<20, func(r *report.Row) {
			r.Links, r.Throughput = links, 124e6*float64(links)*p.by("MultiEdge 3.1, right", 0.5)
			r.LinkRates = strings.Fields(strings.Repeat("1gbit ", links))
		})
	}
}

func (p *asInThePaper) zeroCopy() {
	p.command("zero-copy")
	for _, test := range []string{report.OneWay, report.TwoWay} {
		for name, rate := range map[string]float64{"cp": 1, "notx": 1.3 * p.by("notx", 0.7),
			"pinmap": 1.95 * p.by("pinmap", 0.5), "nocp": 2 * p.by("MultiEdge 3.4", 0.5)} {
			p.row(test, 1<<20, func(r *report.Row) { r.Copy, r.Alignment, r.Throughput = name, "best", rate*1e9 })
		}
		for name, rate := range map[string]float64{"middle": 1.9, "worst": 1.9 * p.by("MultiEdge 3.11", 0.7)} {
			p.row(test, 1<<20, func(r *report.Row) { r.Copy, r.Alignment, r.Throughput = "pinmap", name, rate*1e9 })
		}
	}
	for size, ns := range map[int]float64{4: 23e3, 2048: 25e3 * p.by("MultiEdge 3.9", 1.3)} {
		p.row(report.PingPong, size, func(r *report.Row) {
			r.Copy, r.Alignment, r.Latency = "pinmap", "best", took(ns)
		})
	}
	for _, size := range []int{4096, 1 << 20} {
		for way, perByte := range map[string]float64{report.PlaceCopy: 0.9 * p.by("MultiEdge 3.6", 2),
			report.PlaceExchange: 0.25 * p.by("MultiEdge 3.7", 2)} {
			p.row(report.Place, size, func(r *report.Row) {
				r.Transport, r.Latency = report.TransportMemory, took(perByte*float64(size))
				r.Variant = report.PlaceVariant(way, report.PlaceCold)
			})
		}
	}
}

// Each claim is judged, agrees with results as the paper has them, and differs when those it is about are worse.
func TestClaims(t *testing.T) {
	verdicts := func(worse string) (differ []string) {
		claims := Claims((&asInThePaper{worse: worse}).measure())
		if len(claims) != len(statements) {
			t.Fatalf("%d claims of %d are judged", len(claims), len(statements))
		}
		for _, c := range claims {
			if !c.Agrees {
				differ = append(differ, c.Exhibit+": "+c.Says)
				if c.Why == "" {
					t.Errorf("%s: no reason", c.Says)
				}
			}
		}
		return differ
	}
	if differ := verdicts(""); len(differ) > 0 {
		t.Errorf("as in the paper, and yet: %q", differ)
	}
	for worse, says := range map[string]string{"latency": "latency of ping-pong", "posting": "Initiating",
		"MultiEdge 3.1, right": "One and two links", "MultiEdge 3.2": "Copies are most", "MultiEdge 3.3": "Polling",
		"MultiEdge 3.4": "Without copies", "MultiEdge 3.5": "WD has", "MultiEdge 3.6": "A processor copies",
		"MultiEdge 3.7": "Remapping", "pinmap": "Exchanging", "notx": "Sending", "MultiEdge 3.9": "Ping-pong of 2 KiB",
		"MultiEdge 3.11": "Destinations"} {
		differ := verdicts(worse)
		if len(differ) == 0 || !strings.Contains(strings.Join(differ, "\n"), says) {
			t.Errorf("%s worse: %q differ, want %q among them", worse, differ, says)
		}
	}
}

// The page and claims.json have the claims; results without any have none.
func TestClaimsAreWritten(t *testing.T) {
	dir := t.TempDir()
	if _, err := WriteIndex(dir, "All", (&asInThePaper{worse: "pinmap"}).measure(), nil); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(dir, "index.html"))
	if err != nil || !strings.Contains(string(page), "DIFFERS") || !strings.Contains(string(page), "(paper 1.87)") {
		t.Errorf("the page has no claim that differs, with its numbers: %v", err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "claims.json"))
	var claims []Claim
	if err == nil {
		err = json.Unmarshal(text, &claims)
	}
	if err != nil || len(claims) != len(statements) {
		t.Errorf("claims.json has %d claims of %d: %v", len(claims), len(statements), err)
	}
	if rate := Claims(of(linkSweep()...)); len(rate) > 1 {
		t.Errorf("results of links alone judge %d claims", len(rate))
	}
}
