package bench

import (
	"context"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"multiedge/bench/contender"
	"multiedge/bench/figure"
	"multiedge/bench/kit"
	"multiedge/bench/report"
	"multiedge/bench/workload"
	"multiedge/internal/config"
	"multiedge/internal/lab"
	"multiedge/linkdrv"
)

// TestMain is also what runs in the hosts of the tests' clusters.
func TestMain(m *testing.M) { kit.Tests(m.Run) }

func cluster(t *testing.T, spec ClusterSpec) *Cluster {
	t.Helper()
	c, err := NewCluster(t.Context(), spec)
	must(t, err)
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// runPlans runs plans in one series and returns the rows.
func runPlans(t *testing.T, c *Cluster, plans ...Plan) []report.Row {
	t.Helper()
	for i := range plans {
		plans[i].Region = 4 << 20
	}
	specs, region, err := Concat(plans...)
	must(t, err)
	var rows []report.Row
	err = c.Run(t.Context(), Series{Specs: specs, Region: region, Sink: func(e Event) {
		if e.Row != nil {
			rows = append(rows, *e.Row)
		}
	}})
	must(t, err)
	if len(rows) != len(specs) {
		t.Fatalf("%d rows for %d measurements", len(rows), len(specs))
	}
	return rows
}

const shortly = 60 * time.Millisecond

// spec is of a plan.
type spec = workload.Spec

func allTests(integrity bool) (plans []Plan) {
	for _, test := range workload.Tests {
		p := Plan{Spec: spec{Test: test, Duration: shortly, Integrity: integrity, Seed: 1}, Sizes: []int{8, 70_000}}
		if test == report.Atomic {
			p.Sizes = []int{8}
		}
		if !integrity || test != report.Atomic && test != report.SendLatency && test != report.SendRate {
			plans = append(plans, p)
		}
	}
	return plans
}

func TestLabMeasuresEverything(t *testing.T) {
	for _, form := range []struct {
		name, security, checksum, driver string
		embedded                         bool
	}{
		{"daemon", config.Encrypted, "", "", false}, {"embedded", config.Encrypted, "", "", true},
		{"daemon", config.Plaintext, "full", "", false}, {"embedded", config.Plaintext, "header", "", true},
		{"daemon", config.Encrypted, "", linkdrv.KindAlone, false}, {"embedded", config.Plaintext, "header",
			linkdrv.KindAlone, true},
	} {
		name, embedded := form.name, form.embedded
		t.Run(strings.TrimSpace(name+" "+form.security+" "+form.driver), func(t *testing.T) {
			c := cluster(t, ClusterSpec{Lab: lab.Spec{Links: 2}, Embedded: embedded, Pin: true, Security: form.security,
				Checksum: form.checksum, Driver: form.driver})
			for _, r := range runPlans(t, c, allTests(true)...) {
				if r.IntegrityErrors > 0 || !r.IntegrityChecked || r.Operations == 0 || r.Attach != name ||
					r.Links != 2 || r.MTU != 9000 || r.Checksum != form.checksum || r.Security != form.security {
					t.Errorf("%+v", r)
				}
				if want := map[string]string{"": linkdrv.KindUDP,
					linkdrv.KindAlone: linkdrv.KindRing}[form.driver]; r.Driver != want {
					t.Errorf("driver %q, want %q", r.Driver, want)
				}
				if r.CPU.Client.Total <= 0 || r.CPU.Server.Total <= 0 ||
					(r.CPU.Client.DaemonUser+r.CPU.Client.DaemonSystem > 0) == embedded {
					t.Errorf("%s of %d bytes: processor time %+v", r.Test, r.MessageBytes, r.CPU)
				}
			}
		})
	}
}

func TestLossIsInjectedCountedAndSurvived(t *testing.T) {
	for _, driver := range []string{linkdrv.KindRing, linkdrv.KindUDP} {
		t.Run(driver, func(t *testing.T) { testLoss(t, driver) })
	}
}

func testLoss(t *testing.T, driver string) {
	c := cluster(t, ClusterSpec{Lab: lab.Spec{Links: 2, Faults: lab.Faults{Loss: 0.03}, Seed: 5}, Driver: driver})
	for _, r := range runPlans(t, c, Plan{Spec: spec{Test: report.OneWay, Duration: 200 * time.Millisecond,
		Integrity: true}, Sizes: []int{100_000}}) {
		if r.IntegrityErrors > 0 || r.FramesLost == 0 || r.FramesRetransmitted == 0 {
			t.Errorf("%d integrity errors, %d of %d frames lost, %d retransmitted: %v", r.IntegrityErrors, r.FramesLost,
				r.FramesSent, r.FramesRetransmitted, r.IntegrityDetail)
		}
	}
	counters, err := c.Lab().Counters()
	must(t, err)
	if counters[0].Lost == 0 || counters[1].Lost == 0 {
		t.Errorf("the wires lost nothing: %+v", counters)
	}
}

func TestRatesLimitAndWeightsFollow(t *testing.T) {
	c := cluster(t, ClusterSpec{Lab: lab.Spec{Links: 2, Rates: []string{"200mbit", "50mbit"}}})
	for _, weight := range []string{"weight = 4\n", "weight = 1\n"} {
		if !strings.Contains(c.Config(0), weight) {
			t.Errorf("no %q in\n%s", weight, c.Config(0))
		}
	}
	r := runPlans(t, c, Plan{Spec: spec{Test: report.OneWay, Duration: 300 * time.Millisecond, Depth: 16},
		Sizes: []int{65536}})[0]
	if mbit := r.Throughput * 8 / 1e6; mbit > 260 {
		t.Errorf("%.0f Mbit/s over links of 250 Mbit/s", mbit)
	}
	if l := r.Paths; len(l) != 2 || l[1].BytesSent == 0 || l[0].BytesSent < 2*l[1].BytesSent {
		t.Errorf("a link of four times the rate carried %+v", l)
	}
	if !slices.Equal(r.LinkRates, []string{"200mbit", "50mbit"}) {
		t.Errorf("rates in the row: %v", r.LinkRates)
	}
}

func TestCancelRemovesEverythingSoon(t *testing.T) {
	c := cluster(t, ClusterSpec{})
	specs, region, err := Concat(Plan{Spec: spec{Test: report.OneWay, Duration: time.Hour, Region: 4 << 20}})
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	var began time.Time
	err = c.Run(ctx, Series{Specs: specs, Region: region, Sink: func(e Event) {
		if e.Show != nil && ctx.Err() == nil {
			began = time.Now()
			cancel() // it is running
		}
	}})
	if err == nil || ctx.Err() == nil {
		t.Fatalf("ended with %v", err)
	}
	pids := []int{c.Daemon(0).Pid(), c.Daemon(1).Pid()}
	dir := c.Dir()
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if used := time.Since(began); used > 8*time.Second {
		t.Errorf("took %v", used)
	}
	for _, pid := range pids {
		if syscall.Kill(pid, 0) == nil {
			t.Errorf("daemon %d lives on", pid)
		}
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("%s is still there: %v", dir, err)
	}
}

func TestDaemonThatCannotStartIsExplained(t *testing.T) {
	_, err := NewCluster(t.Context(), ClusterSpec{Scheduler: "best"})
	if err == nil || !strings.Contains(err.Error(), "best") || !strings.Contains(err.Error(), "wsrr") {
		t.Errorf("error %v does not say what is wrong and what is possible", err)
	}
	if _, err := NewCluster(t.Context(), ClusterSpec{Checksum: "full"}); err == nil || !strings.Contains(err.Error(),
		"--security plaintext") {
		t.Errorf("a checksum of encrypted frames: %v", err)
	}
}

func TestComparisonInterleaves(t *testing.T) {
	var rows []report.Row
	steps := 0
	c := &Comparison{
		Cluster: ClusterSpec{Pin: true}, Plan: Plan{Spec: spec{Test: report.OneWay, Duration: shortly,
			Region: 8 << 20}, Sizes: []int{100_000}}, Rounds: 2,
		Edge: EdgeVariants[:4], Others: []contender.Contender{contender.Raw{Kind: "mmsg"}, contender.TCP{}},
		Row: func(r *report.Row) {
			if r.Test != report.FirstTouch {
				rows = append(rows, *r)
			}
		},
		Note: func(s string) { t.Log(s) }, Show: func(int, string) { steps++ },
	}
	must(t, c.Run(t.Context()))
	if len(rows) != 12 || steps != c.Steps() {
		t.Fatalf("%d rows and %d steps, want 12", len(rows), steps)
	}
	seen := map[string]int{}
	for _, r := range rows {
		seen[r.Contender()] += r.Round
		if want := map[string]string{"edge": config.Plaintext, "edge crc32c": config.Plaintext,
			"edge encrypted": config.Encrypted, "edge embedded": config.Plaintext, "raw mmsg": config.Plaintext,
			"tcp cubic": config.Plaintext}[r.Contender()]; r.Security != want {
			t.Errorf("%s was measured with security %q, want %q", r.Contender(), r.Security, want)
		}
		if r.Throughput <= 0 || r.Cores == "" || !strings.Contains(r.Offloads, "TSO") {
			t.Errorf("%s: %+v", r.Contender(), r)
		}
	}
	for _, name := range []string{"edge", "edge crc32c", "edge encrypted", "edge embedded", "raw mmsg", "tcp cubic"} {
		if seen[name] != 3 {
			t.Errorf("%s did not run once in each round", name)
		}
	}
	if rows[0].Contender() == rows[6].Contender() {
		t.Error("both rounds begin with the same contender")
	}
}

// Streams move bytes through daemons, and their rows are those of TCP: in the same terms, and compared with it.
func TestComparisonOfStreams(t *testing.T) {
	var variants []EdgeVariant
	for _, v := range EdgeVariants {
		if v.Stream {
			variants = append(variants, v)
		}
	}
	for _, test := range []string{report.OneWay, report.TwoWay, report.PingPong} {
		t.Run(test, func(t *testing.T) {
			file := report.NewFile(report.Head{})
			c := &Comparison{
				Cluster: ClusterSpec{Pin: true}, Plan: Plan{Spec: spec{Test: test, Duration: shortly,
					Region: 8 << 20, Integrity: true}, Sizes: []int{20_000}}, Rounds: 1,
				Edge: variants, Others: []contender.Contender{contender.TCP{}},
				Row: func(r *report.Row) { file.Results = append(file.Results, *r) }, Note: func(s string) { t.Log(s) },
				Show: func(int, string) {},
			}
			must(t, c.Run(t.Context()))
			file.Results = slices.DeleteFunc(file.Results,
				func(r report.Row) bool { return r.Test == report.FirstTouch })
			for _, r := range file.Results {
				if r.Test != test || r.Bytes == 0 || r.Bytes != r.Operations*20_000 || r.Throughput <= 0 ||
					r.Seconds < shortly.Seconds() || r.CPU.Client.Total <= 0 || r.CPU.Server.Total <= 0 {
					t.Errorf("%s: %d bytes, %d operations in %.3f s, CPU %+v", r.Contender(), r.Bytes, r.Operations,
						r.Seconds, r.CPU)
				}
				if (test == report.PingPong) != (r.Latency.Count > 0) || r.QueueDepth != 1 || r.IntegrityChecked ||
					r.Bidirectional != (test == report.TwoWay) {
					t.Errorf("%s: not as TCP's: %+v", r.Contender(), r)
				}
				if r.Transport == report.TransportEdge && (r.Attach != "daemon" ||
					r.CPU.Client.DaemonUser+r.CPU.Client.DaemonSystem <= 0 || r.FramesSent == 0 ||
					r.IntegrityErrors > 0) {
					t.Errorf("%s did not go through daemons: %+v", r.Contender(), r)
				}
			}
			with := map[string]bool{}
			for _, r := range figure.Ratios([]figure.Source{{File: file}}) {
				with[r.Over] = with[r.Over] || r.Base == "tcp cubic"
			}
			for _, v := range variants {
				if !with["edge "+v.Name] {
					t.Errorf("no ratio of edge %s to TCP: %v", v.Name, with)
				}
			}
		})
	}
}

func TestPlanDefaults(t *testing.T) {
	for _, c := range []struct {
		plan Plan
		want spec
	}{
		{Plan{Spec: spec{Test: report.OneWay}},
			spec{Test: report.OneWay, Size: 65536, Depth: 128, Batch: 1, Duration: time.Second}},
		{Plan{Spec: spec{Test: report.OneWay, Bidirectional: true, Count: 5}, Sizes: []int{1 << 20}},
			spec{Test: report.TwoWay, Size: 1 << 20, Depth: 16, Batch: 1, Count: 5}},
		{Plan{Spec: spec{Test: report.PingPong, Depth: 9}},
			spec{Test: report.PingPong, Size: 8, Depth: 1, Batch: 1, Duration: time.Second}},
		{Plan{Spec: spec{Test: report.Rate, Depth: 8}},
			spec{Test: report.Rate, Size: 8, Depth: 8, Batch: 8, Duration: time.Second}},
		{Plan{Spec: spec{Test: report.TwoWay, ByteStream: true, Depth: 9, Integrity: true, Region: 8 << 20}},
			spec{Test: report.TwoWay, Size: 65536, Depth: 1, Batch: 1, Duration: time.Second, ByteStream: true}},
		{Plan{Spec: spec{Test: report.Read, Bidirectional: true}, Sizes: []int{8 << 20}},
			spec{Test: report.Read, Size: 8 << 20, Depth: 4, Batch: 1, Duration: time.Second, Bidirectional: true}},
	} {
		specs, err := c.plan.Specs()
		if err != nil || len(specs) != 1 || specs[0] != c.want {
			t.Errorf("%+v gives %+v, %v; want %+v", c.plan, specs, err, c.want)
		}
	}
	for _, s := range []spec{{Test: "fast"}, {Test: report.PingPong, Bidirectional: true}} {
		p := Plan{Spec: s}
		if _, err := p.Specs(); err == nil {
			t.Errorf("%+v was accepted", p)
		}
	}
}

func TestSizeRange(t *testing.T) {
	for _, c := range []struct {
		lo, hi int
		want   []int
	}{{64, 256, []int{64, 128, 256}}, {100, 300, []int{100, 128, 256, 300}}, {8, 8, []int{8}}} {
		if got := SizeRange(c.lo, c.hi); !slices.Equal(got, c.want) {
			t.Errorf("SizeRange(%d, %d) = %v, want %v", c.lo, c.hi, got, c.want)
		}
	}
	if all := AllSizes(); all[0] != 2 || all[len(all)-1] != MaxSize || len(all) != 23 {
		t.Errorf("%v", all)
	}
}

func TestFitSizes(t *testing.T) {
	specs := []workload.Spec{{Size: 1 << 10}, {Size: 1 << 20}, {Size: 4 << 20}}
	kept, note := FitSizes(specs, 3<<20)
	if len(kept) != 2 || !strings.Contains(note, "1 MiB") {
		t.Errorf("%v, %q", kept, note)
	}
	if kept, note := FitSizes(specs, 64<<20); len(kept) != 3 || note != "" {
		t.Errorf("%v, %q", kept, note)
	}
}

// must ends a test that cannot go on.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
