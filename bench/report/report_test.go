package report

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// sample returns a file with a throughput row and a latency row, every field that writers show set.
func sample() *File {
	f := NewFile(Head{
		Created: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Command: []string{"edgebench", "one-way"},
		Machine: Machine{Hostname: "h", CPUs: 2, Card: &Card{SystemCall: 97, YieldSwitch: 682, CopyHot: 4.4e10}},
		Lab:     &Lab{Hosts: 2, Links: 2, MTU: 9000}, Notes: []string{"a note"},
	})
	cpu := Ends(End{ProcessUser: 0.1, ProcessSystem: 0.2, DaemonUser: 0.3, DaemonSystem: 0.4}, End{DaemonUser: 1})
	f.Results = []Row{
		{
			Test: OneWay, Transport: TransportEdge, Setup: Setup{Attach: "daemon"}, MessageBytes: 65536, QueueDepth: 64,
			RegionBytes: 256 << 20, Links: 2, MTU: 9000,
			Operations: 1000, Bytes: 65536000, Seconds: 2, Throughput: 3.2768e7, PeakThroughput: 4e7,
			OperationsPerSecond: 500,
			LatencyKind:         LatencyCompletion, CPU: cpu,
			Latency: Latency{Count: 1000, P50: 1500, P99: 3000, Max: 9000},
			Counters: Counters{FramesSent: 8200, FramesRetransmitted: 3, FramesLost: 2, FramesDuplicated: 1,
				FramesReordered: 7, AcksExplicit: 41},
			Client: &Counters{FramesSent: 8200}, Integrity: Integrity{IntegrityChecked: true},
		},
		{
			Test: PingPong, Transport: TransportEdge, MessageBytes: 8, QueueDepth: 1, Links: 2, MTU: 9000,
			Operations: 10, Seconds: 1, LatencyKind: LatencyHalfRTT,
			Latency: Latency{Count: 10, Min: 2000, Mean: 3000, P50: 2500, P90: 3500, P99: 4000, P999: 5000,
				P9999: 6000, Max: 7000},
			Efforts: &Efforts{ClientProcess: Effort{SystemCalls: 20, WakeUps: 5, Voluntary: 4, Involuntary: 3},
				ServerDaemon: Effort{SystemCalls: 11, WakeUps: 1}},
			Integrity: Integrity{IntegrityChecked: true, IntegrityErrors: 2,
				IntegrityDetail: []string{"message 3: wrong"}},
		},
	}
	return f
}

func render(t *testing.T, format string, s Style) string {
	t.Helper()
	var b bytes.Buffer
	w, err := NewWriter(format, &b, s)
	must(t, err)
	f := sample()
	must(t, w.Head(f.Head))
	for i := range f.Results {
		must(t, w.Row(&f.Results[i]))
	}
	must(t, w.Close())
	return b.String()
}

func TestJSONFormatsComeBackWhole(t *testing.T) {
	for _, format := range []string{"json", "jsonl"} {
		got, err := Parse([]byte(render(t, format, Style{})))
		if err != nil {
			t.Fatalf("%s: %v", format, err)
		}
		if want := sample(); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: read back\n%+v\nwant\n%+v", format, got, want)
		}
	}
}

// The names that users' scripts rely on.
func TestJSONNames(t *testing.T) {
	var doc struct {
		Version int
		Results []map[string]any
	}
	must(t, json.Unmarshal([]byte(render(t, "json", Style{})), &doc))
	for _, key := range []string{
		"test", "message_bytes", "links", "throughput_bytes_per_second", "operations_per_second", "latency_ns",
		"cpu_seconds", "frames_sent",
		"frames_retransmitted", "frames_duplicated", "frames_reordered", "frames_lost", "acks_explicit",
		"integrity_errors", "mtu",
	} {
		if _, ok := doc.Results[0][key]; !ok {
			t.Errorf("a row has no %q", key)
		}
	}
	for _, key := range []string{"p50", "p90", "p99", "p99_9", "p99_99", "max"} {
		if _, ok := doc.Results[0]["latency_ns"].(map[string]any)[key]; !ok {
			t.Errorf("latency_ns has no %q", key)
		}
	}
	for _, end := range []string{"client", "server"} {
		if _, ok := doc.Results[0]["cpu_seconds"].(map[string]any)[end]; !ok {
			t.Errorf("cpu_seconds has no %q", end)
		}
	}
}

func TestParseRefusesWhatItDoesNotKnow(t *testing.T) {
	for name, text := range map[string]string{
		"future version": `{"format":"edgebench","version":99,"results":[]}`,
		"other program":  `{"format":"iperf","version":1,"results":[]}`,
		"no JSON":        "#bytes #iterations",
		"empty":          "",
		"future lines":   `{"format":"edgebench","version":2,"test":"one-way"}`,
		"null results":   `{"format":"edgebench","version":1,"results":null}`,
	} {
		if _, err := Parse([]byte(text)); !errors.Is(err, ErrFormat) {
			t.Errorf("%s: error %v, want ErrFormat", name, err)
		}
	}
}

func TestReadFileNamesTheFile(t *testing.T) {
	name := filepath.Join(t.TempDir(), "x.json")
	must(t, os.WriteFile(name, []byte("nonsense"), 0o600))
	if _, err := ReadFile(name); err == nil || !strings.Contains(err.Error(), name) {
		t.Errorf("error %v does not name the file", err)
	}
}

func TestCSV(t *testing.T) {
	recs, err := csv.NewReader(strings.NewReader(render(t, "csv", Style{}))).ReadAll()
	must(t, err)
	if len(recs) != 3 {
		t.Fatalf("%d records, want a header and two rows", len(recs))
	}
	at := slices.Index(recs[0], "throughput_bytes_per_second")
	if at < 0 || recs[1][at] != "3.2768e+07" {
		t.Errorf("throughput column %d of %v", at, recs[1])
	}
}

// Every column is a field of the JSON or is derived, of a kind that can be written.
func TestCSVColumns(t *testing.T) {
	r := sample().Results[1]
	r.EachWay = []float64{1, 2}
	values := derived(&r)
	flatten(reflect.ValueOf(r), "", values)
	for _, name := range columns {
		v, ok := values[name]
		if s, isText := v.(string); !ok || !isText && text(v) == "" && !reflect.ValueOf(v).IsZero() {
			t.Errorf("column %s: %#v %q", name, v, s)
		}
	}
}

func TestPerftestText(t *testing.T) {
	out := render(t, "perftest", Style{Gbits: true, CPU: true, Notes: true})
	for _, want := range []string{
		"#bytes", "BW average[Gb/sec]", "MsgRate[Mpps]", "t_typical[usec]", "99.9% percentile[usec]",
		"half a round trip", "retrans", "acks", "lost",
		" Machine: system call 97 ns; yield switch 682 ns; copy, hot 44.0 GB/s",
		"calls/msg", "3.10      0.70         0.60",
		"client 2.00 calls, 0.40+0.30 switches, 0.50 wake-ups; its daemon 0.00 calls",
		" 65536      1000", "0.26", "2.50", "Note: a note", "integrity: message 3: wrong", "cli_cpu[%]",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	if mib := render(t, "perftest", Style{}); !strings.Contains(mib, "BW average[MB/sec]") || !strings.Contains(mib,
		"31.25") {
		t.Errorf("without --report-gbits the unit must be 2^20 bytes:\n%s", mib)
	}
}

func TestTableText(t *testing.T) {
	out := render(t, "table", Style{CPU: true, Notes: true})
	lines := strings.Split(strings.TrimRight(out, "\n"), "\n")
	if len(lines) != 8 { // machine, note, header, rule, row, row, effort, integrity detail
		t.Errorf("%d lines:\n%s", len(lines), out)
	}
	for _, want := range []string{"64 KiB", "0.262", "2.50 us", "    3.10     0.70     0.60",
		"machine: system call 97 ns"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
}

func TestUnknownFormat(t *testing.T) {
	if _, err := NewWriter("xml", nil, Style{}); err == nil || !strings.Contains(err.Error(), "perftest") {
		t.Errorf("error %v does not list the formats", err)
	}
}

func TestRecorderAgainstSorting(t *testing.T) {
	r := NewRecorder()
	rng := rand.New(rand.NewPCG(1, 2))
	vals := make([]float64, 20000)
	for i := range vals {
		v := 1000 + rng.ExpFloat64()*5000
		vals[i] = v
		r.Record(time.Duration(v))
	}
	slices.Sort(vals)
	s := r.Summary(0.5)
	if s.Count != 20000 {
		t.Errorf("count %d, want 20000", s.Count)
	}
	for _, c := range []struct {
		name      string
		got, want float64
	}{
		{"min", s.Min, vals[0] / 2}, {"p50", s.P50, vals[9999] / 2}, {"p90", s.P90, vals[17999] / 2},
		{"p99", s.P99, vals[19799] / 2},
		{"p99.9", s.P999, vals[19979] / 2}, {"max", s.Max, vals[19999] / 2},
	} {
		if c.got < c.want*0.995 || c.got > c.want*1.005 {
			t.Errorf("%s = %.1f, want %.1f within half a percent", c.name, c.got, c.want)
		}
	}
}

func TestRecorderKeepsExtremes(t *testing.T) {
	r := NewRecorder()
	r.Record(-5)
	r.Record(time.Hour)
	s := r.Summary(1)
	if s.Count != 2 || s.Min != 1 || s.Max < 0.99e11 {
		t.Errorf("%+v: a value out of range was lost", s)
	}
	if n := testing.AllocsPerRun(100, func() { r.Record(5 * time.Microsecond) }); n != 0 {
		t.Errorf("Record allocates %v times", n)
	}
}

func TestParseBytes(t *testing.T) {
	for s, want := range map[string]int{"0": 0, "4096": 4096, "64k": 65536, "64K": 65536, "64KiB": 65536, "1m": 1 << 20,
		"1MiB": 1 << 20, "2g": 2 << 30, "8B": 8} {
		if got, err := ParseBytes(s); err != nil || got != want {
			t.Errorf("ParseBytes(%q) = %d, %v; want %d", s, got, err, want)
		}
	}
	for _, s := range []string{"", "k", "-1", "1.5m", "12q", "9999999999g", "0x10"} {
		if got, err := ParseBytes(s); err == nil {
			t.Errorf("ParseBytes(%q) = %d, want an error", s, got)
		}
	}
	for _, s := range []string{"9999999999g", "9223372036854775808"} {
		if _, err := ParseBytes(s); err == nil || !strings.Contains(err.Error(), "too large") {
			t.Errorf("ParseBytes(%q): %v, want to hear that it is too large", s, err)
		}
	}
}

func TestRates(t *testing.T) {
	for _, c := range []struct {
		rates []string
		links int
		want  string
	}{
		{nil, 1, "1 link"}, {nil, 4, "4 links"}, {[]string{"1gbit", "1gbit"}, 2, "2x1gbit"},
		{[]string{"1gbit", "250mbit", "250mbit"}, 3, "1x1gbit + 2x250mbit"},
	} {
		if got := Rates(c.rates, c.links); got != c.want {
			t.Errorf("Rates(%v, %d) = %q, want %q", c.rates, c.links, got, c.want)
		}
	}
	if v, err := ParseRate("2.5gbit"); err != nil || v != 2.5e9 {
		t.Errorf("2.5gbit = %v, %v", v, err)
	}
	if _, err := ParseRate("fast"); err == nil {
		t.Error("a rate without a unit was accepted")
	}
}

func TestProgressRewritesOneLine(t *testing.T) {
	var b bytes.Buffer
	p := newProgress(&b, 4)
	p.Update("one-way 64 KiB", 0.5)
	p.Step()
	p.Update("one-way 1 MiB", 0)
	p.Clear()
	out := b.String()
	if strings.Contains(out, "\n") || !strings.Contains(out, "test 1 of 4: one-way 64 KiB") ||
		!strings.Contains(out, "test 2 of 4") ||
		!strings.HasSuffix(out, "\r\x1b[K") {
		t.Errorf("%q", out)
	}
	f, err := os.CreateTemp(t.TempDir(), "")
	must(t, err)
	defer f.Close()
	if NewProgress(f, 1) != nil {
		t.Error("progress is shown on a file")
	}
	steps := NewSteps(f, 3) // a file gets a line for each step, which says how much time is left
	steps.Limit = time.Minute
	steps.Update("one-way of 8 B", 0)
	steps.Update("one-way of 8 B", 0.5)
	steps.Step()
	steps.Update("two-way of 8 B", 0)
	steps.SetTotal(2)
	steps.Clear()
	text, err := os.ReadFile(f.Name())
	must(t, err)
	want := "test 1 of 3: one-way of 8 B; at most 1m0s left\ntest 2 of 3: two-way of 8 B; at most 1m0s left\n"
	if want != string(text) {
		t.Errorf("%q, want %q", text, want)
	}
	var none *Progress
	none.Update("x", 0)
	none.Step()
	none.Clear()
}

// A depth that falls with the message size is a column and begins no new block; connections do.
func TestPerftestBlocks(t *testing.T) {
	var b bytes.Buffer
	w, err := NewWriter("perftest", &b, Style{})
	must(t, err)
	for i, depth := range []int{128, 16, 16} {
		r := Row{Test: OneWay, Transport: TransportEdge, Links: 1, MTU: 9000, MessageBytes: 64 << i, QueueDepth: depth,
			Setup: Setup{Connections: 1 + i/2*999}}
		must(t, w.Row(&r))
	}
	text := b.String()
	if n := strings.Count(text, "Write BW Test"); n != 2 {
		t.Errorf("%d blocks, want 2:\n%s", n, text)
	}
	if !strings.Contains(text, "1000, sharing") || !strings.Contains(text, "depth") {
		t.Errorf("connections or depth are missing:\n%s", text)
	}
}

// must ends a test that cannot go on.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
