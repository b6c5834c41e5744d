package figure

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"image/png"
	"io"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"multiedge/bench/report"
)

// synthetic returns results of every kind that figures are drawn of, with plausible shapes.
func synthetic() []Source {
	f := report.NewFile(report.Head{
		Created: time.Date(2026, 1, 2, 3, 4, 0, 0, time.UTC), Command: []string{"edgebench", "demo", "<&>"},
		Notes:   []string{"regions fitted to </script> 8 MiB"},
		Machine: report.Machine{Hostname: "host", Kernel: "Linux 6.18", CPUModel: "Some CPU", CPUs: 2, Go: "go1.26"},
		Lab:     &report.Lab{Hosts: 2, Links: 2, MTU: 9000},
	})
	for _, links := range []int{1, 2, 8} {
		for _, test := range []string{report.OneWay, report.TwoWay, report.PingPong, report.Read} {
			for size := 8; size <= 4<<20; size *= 4 {
				f.Results = append(f.Results, synthRow(test, links, size))
			}
		}
	}
	for i, name := range []string{"srr", "wsrr", "wd", "adaptive"} {
		for size := 4096; size <= 1<<20; size *= 4 {
			r := synthRow(report.OneWay, 5, size)
			r.Scheduler, r.LinkRates = name, []string{"1gbit", "250mbit", "250mbit", "250mbit", "250mbit"}
			r.Throughput = []float64{1.2e9, 1.9e9, 1.95e9, 1.97e9}[i] / 8 * float64(size) / float64(size+8192)
			f.Results = append(f.Results, r)
		}
	}
	for round := 1; round <= 5; round++ {
		for i, tr := range []string{report.TransportRaw, report.TransportEdge, report.TransportTCP} {
			r := synthRow(report.OneWay, 1, 1<<20)
			r.Transport, r.Round = tr, round
			r.Throughput = (28 - 4*float64(i) + 0.3*float64(round)) * 1e9 / 8
			f.Results = append(f.Results, r)
		}
	}
	rate := synthRow(report.Rate, 1, 8)
	rate.OperationsPerSecond = 2.1e6
	f.Results = append(f.Results, rate)
	return []Source{{Name: "demo", File: f}}
}

func synthRow(test string, links, size int) report.Row {
	r := report.Row{Test: test, Transport: report.TransportEdge, MessageBytes: size, Links: links,
		MTU: 9000, QueueDepth: 64, Setup: report.Setup{Attach: "daemon", Scheduler: "adaptive"}, Seconds: 1,
		Integrity: report.Integrity{IntegrityChecked: true}}
	peak := 28e9 / 8 * (1 + 0.02*float64(links))
	r.Throughput = peak * float64(size) / float64(size+20000)
	base := 3000 + float64(size)/3
	switch test {
	case report.TwoWay:
		r.Throughput *= 1.4
	case report.PingPong:
		r.Throughput *= 0.8
		r.Latency = report.Latency{Count: 1000, Min: base * 0.9, P50: base, P90: base * 1.1, P99: base * 1.6,
			P999: base * 3, P9999: base * 8, Max: base * 30}
	case report.Read:
		r.Latency = report.Latency{Count: 1000, P50: base * 2, P99: base * 4, P999: base * 5, Max: base * 9}
	}
	if test == report.OneWay || test == report.TwoWay {
		r.Post = report.Latency{Count: 1000, P50: 300 + 40*math.Log2(float64(size)), P99: 900}
	}
	r.Bytes = uint64(r.Throughput)
	r.Operations = r.Bytes / uint64(size)
	r.OperationsPerSecond = float64(r.Operations)
	r.CPU = report.Ends(report.End{ProcessUser: 0.03, ProcessSystem: 0.02, DaemonUser: 0.3, DaemonSystem: 0.6},
		report.End{ProcessUser: 0.02, DaemonUser: 0.7, DaemonSystem: 0.1})
	return r
}

func TestBuildFindsAllFigures(t *testing.T) {
	want := map[string]int{"throughput": 4, "latency": 4, "percentiles": 3, "cpu": 4, "rate": 1, "schedulers": 2,
		"compare-one-way-1M-mtu9000": 2}
	figs := Build(synthetic())
	for _, f := range figs {
		if len(f.Panels) != want[f.ID] {
			t.Errorf("figure %s has %d panels, want %d", f.ID, len(f.Panels), want[f.ID])
		}
		delete(want, f.ID)
	}
	for id := range want {
		t.Errorf("no figure %s", id)
	}
}

func TestBuildOfOneRowAndOfNothing(t *testing.T) {
	one := report.NewFile(report.Head{})
	one.Results = []report.Row{synthRow(report.PingPong, 1, 8)}
	for _, f := range Build([]Source{{File: one}}) {
		if svg := f.SVG(); len(svg) < 1000 {
			t.Errorf("%s: %d bytes", f.ID, len(svg))
		}
	}
	if figs := Build([]Source{{File: report.NewFile(report.Head{})}}); len(figs) != 0 {
		t.Errorf("%d figures of no results", len(figs))
	}
	zero := report.NewFile(report.Head{})
	zero.Results = []report.Row{{Test: report.OneWay, Transport: report.TransportEdge, Links: 1},
		{Test: report.PingPong, Transport: report.TransportEdge, Links: 1}}
	var b bytes.Buffer
	if err := HTML(&b, "t", []Source{{File: zero}}); err != nil {
		t.Error(err)
	}
}

func TestSVGIsWellFormedAndFinite(t *testing.T) {
	for _, f := range Build(synthetic()) {
		svg := f.SVG()
		dec := xml.NewDecoder(bytes.NewReader(svg))
		for {
			if _, err := dec.Token(); err == io.EOF {
				break
			} else if err != nil {
				t.Fatalf("%s: %v", f.ID, err)
			}
		}
		if bytes.Contains(svg, []byte("NaN")) || bytes.Contains(svg, []byte("Inf")) {
			t.Errorf("%s has coordinates that are no numbers", f.ID)
		}
		for _, e := range f.Legend {
			if !bytes.Contains(svg, []byte(">"+e.Text+"<")) {
				t.Errorf("%s: legend entry %q is not drawn", f.ID, e.Text)
			}
		}
	}
}

func TestWriteDir(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "deep", "out")
	names, err := WriteDir(dir, "Results", synthetic())
	if err != nil {
		t.Fatal(err)
	}
	if len(names) != 2*7+1 {
		t.Errorf("%d files: %v", len(names), names)
	}
	f, err := os.Open(filepath.Join(dir, "throughput.png"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	img, err := png.Decode(f)
	if err != nil || img.Bounds().Dx() < 1000 {
		t.Errorf("PNG: %v, %v", img, err)
	}
}

// The page must work from a mail attachment: nothing is loaded, nothing escapes from the data.
func TestPageIsSelfContained(t *testing.T) {
	var b bytes.Buffer
	if err := HTML(&b, "Results", synthetic()); err != nil {
		t.Fatal(err)
	}
	page := b.String()
	for _, re := range []string{`(?i)<link\b`, `(?i)<img\b`, `\bsrc=`, `href="http`, `@import`, `url\(`} {
		if loc := regexp.MustCompile(re).FindString(page); loc != "" {
			t.Errorf("the page refers to something outside: %q", loc)
		}
	}
	_, data, _ := strings.Cut(page, `id="results">`)
	data, _, ok := strings.Cut(data, "</script>")
	var files []*report.File
	if err := json.Unmarshal([]byte(data), &files); !ok || err != nil {
		t.Fatalf("results in the page: %v", err)
	}
	if got, want := len(files[0].Results), len(synthetic()[0].File.Results); got != want {
		t.Errorf("%d results in the page, want %d", got, want)
	}
}

func TestRatios(t *testing.T) {
	for _, r := range Ratios(synthetic()) {
		if r.What == "throughput" && r.Base == "raw" {
			if want := 24.9 / 28.9; math.Abs(r.Median-want) > 1e-9 || r.Rounds != 5 || r.Min > r.Median ||
				r.Max < r.Median {
				t.Errorf("%+v, want a median of %f over 5 rounds", r, want)
			}
			return
		}
	}
	t.Error("edge was not compared with raw")
}

// Each variant of edge is compared with what differs from it in one respect.
func TestRatiosOfVariants(t *testing.T) {
	f := report.NewFile(report.Head{})
	for _, name := range []string{"", "crc32c", "encrypted", "udp", "udp encrypted", "stream", "stream encrypted",
		"udp stream", "udp stream encrypted"} {
		r := synthRow(report.OneWay, 1, 1<<20)
		r.Round, r.Variant = 1, name
		f.Results = append(f.Results, r)
	}
	tcp := synthRow(report.OneWay, 1, 1<<20)
	tcp.Round, tcp.Transport = 1, report.TransportTCP
	f.Results = append(f.Results, tcp)
	got := map[string]string{}
	for _, r := range Ratios([]Source{{File: f}}) {
		if r.What == "throughput" {
			got[r.Over] += r.Base + ", "
		}
	}
	for over, want := range map[string]string{
		"edge": "tcp, ", "edge encrypted": "edge, edge crc32c, tcp, ", "edge udp": "edge, tcp, ",
		"edge udp encrypted": "edge encrypted, edge udp, tcp, ",
		"edge stream":        "edge, tcp, ", "edge stream encrypted": "edge encrypted, edge stream, tcp, ",
		"edge udp stream":           "edge udp, edge stream, tcp, ",
		"edge udp stream encrypted": "edge udp encrypted, edge stream encrypted, edge udp stream, tcp, ",
	} {
		if got[over] != want {
			t.Errorf("%s is compared with %s, want %s", over, got[over], want)
		}
	}
}

func TestTicks(t *testing.T) {
	if got := niceMax(29.7); got != 30 {
		t.Errorf("niceMax(29.7) = %v", got)
	}
	for _, c := range []struct {
		v    float64
		want string
	}{{0.5, "0.5"}, {10, "10"}, {25000, "25,000"}, {1e6, "1,000,000"}, {0.30000000000000004, "0.3"}} {
		if got := number(c.v); got != c.want {
			t.Errorf("number(%v) = %q, want %q", c.v, got, c.want)
		}
	}
	labels := 0
	for _, tick := range (sizeTicks{}).Ticks(1, 1<<30) {
		if tick.Label != "" {
			labels++
		}
	}
	if labels < 4 || labels > 10 {
		t.Errorf("%d labels on an axis from 1 B to 1 GiB", labels)
	}
}
