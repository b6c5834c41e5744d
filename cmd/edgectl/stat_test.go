package main

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"
	"testing"
	"time"

	"multiedge/internal/config"
	"multiedge/internal/inspect"
	"multiedge/linkdrv/linktest"
)

// asker is what a command is run with; between two samples it does something else than wait.
func asker(socket string, out io.Writer, pause func()) *globals {
	return &globals{Socket: socket, Timeout: 10 * time.Second, out: out, pause: func(time.Duration) { pause() }}
}

func each(interval time.Duration, count int, link string) *statCmd {
	return &statCmd{Interval: &interval, Count: count, Link: link}
}

// pingBetween is traffic from a to b.
func pingBetween(t *testing.T, a string) func() {
	return func() {
		if code, _, errs := ctl("-s", a, "ping", "b", "-c", "1"); code != 0 {
			t.Error(errs)
		}
	}
}

func TestStatTotals(t *testing.T) {
	a, _ := pair(t, config.Encrypted)
	pingBetween(t, a)()
	code, out, errs := ctl("-s", a, "stat")
	lines := strings.Split(out, "\n")
	if code != 0 || len(lines) != 3 || strings.Join(strings.Fields(lines[0]), " ") !=
		"IN OUT FRAMES-IN FRAMES-OUT OPS APPLIED RETRANS LOST DUP REORDER REJECTED ACKS PINNED CONNS" ||
		len(strings.Fields(lines[1])) != 14 {
		t.Errorf("stat: %d %s%s", code, out, errs)
	}
	if code, out, errs := ctl("-s", a, "stat", "--link", "mem"); code != 0 || !strings.Contains(out, "LINK") ||
		!strings.Contains(out, "\nmem ") || strings.Contains(out, "OPS") {
		t.Errorf("stat --link: %d %s%s", code, out, errs)
	}
	code, out, errs = ctl("-j", "-s", a, "stat")
	var r statReport
	if err := json.Unmarshal([]byte(out), &r); code != 0 || err != nil || r.Totals["frames_sent"] == 0 ||
		r.Rates != nil || r.Interval != 0 || strings.Count(out, "\n") != 1 {
		t.Fatalf("stat -j: %d %v %s%s", code, err, out, errs)
	}
	if len(r.Links) != 1 || r.Links[0].Totals["frames_sent"] == 0 || r.Links[0].Totals["kernel_sent"] == 0 {
		t.Errorf("links: %+v", r.Links)
	}
	for _, interval := range []string{"0.001", "1ms"} {
		if code, out, _ := ctl("-s", a, "stat", "-i", interval, "-n", "2"); code != 0 || strings.Count(out,
			"\n") != 3 || !strings.Contains(out, "IN-BIT/S") {
			t.Errorf("stat -i %s -n 2: %d %s", interval, code, out)
		}
	}
}

func TestStatRates(t *testing.T) {
	a, _ := pair(t, config.Encrypted)
	var out bytes.Buffer
	g := asker(a, &out, pingBetween(t, a))
	g.JSON = true
	must(t, each(time.Second, 3, "").Run(g))
	dec, lines := json.NewDecoder(&out), 0
	for ; dec.More(); lines++ {
		var r statReport
		must(t, dec.Decode(&r))
		if r.Rates["bytes_sent"] <= 0 || r.Totals != nil || r.Interval <= 0 || r.Restarted || len(r.Links) != 1 ||
			r.Links[0].Rates["frames_received"] <= 0 {
			t.Errorf("%+v", r)
		}
	}
	if lines != 3 {
		t.Errorf("%d lines", lines)
	}
	g = asker(a, &out, pingBetween(t, a))
	if err := each(time.Second, 2, "all").Run(g); err != nil || strings.Count(out.String(), "\nmem ") != 2 ||
		strings.Count(out.String(), "LINK") != 1 {
		t.Errorf("%v %s", err, &out)
	}
}

// A daemon that was restarted between two samples has nothing to be compared with; one that is gone is said to be.
func TestStatOverARestart(t *testing.T) {
	for _, link := range []string{"", "mem"} {
		x, _ := linktest.Pair(9000, 256)
		dir, _ := keys(t)
		sock, stop := start(t, "a", dir, config.Encrypted, x)
		var out bytes.Buffer
		pauses := 0
		g := asker(sock, &out, func() {
			if pauses++; pauses == 1 {
				stop()
				x, _ := linktest.Pair(9000, 256)
				_, stop = start(t, "a", dir, config.Encrypted, x)
			}
		})
		must(t, each(time.Second, 1, link).Run(g))
		lines := strings.Split(out.String(), "\n")
		if len(lines) != 4 || !strings.Contains(lines[0], "-- the daemon was restarted") || !strings.Contains(lines[1],
			"IN-BIT/S") {
			t.Errorf("--link %q:\n%s", link, &out)
		}
		out.Reset()
		g = asker(sock, &out, func() { stop() })
		if err := each(time.Second, 1, link).Run(g); err == nil || !strings.Contains(err.Error(),
			"the daemon is gone: no daemon runs at "+sock) || out.Len() > 0 {
			t.Errorf("%v\n%s", err, &out)
		}
	}
}

func TestStatTroubles(t *testing.T) {
	a, _ := pair(t, config.Encrypted)
	for _, tc := range []struct {
		code       int
		args, want string
	}{
		{2, "-n 3", "stat -i 1 -n 3"},
		{2, "-i 0", "more than 0"}, {2, "--interval=-1", "more than 0"}, {2, "-i NaN", "want seconds"},
		{2, "-i 1e300", "want seconds"},
		{2, "-i 1e9", "at most"}, {2, "-i 25h", "at most"},
		{2, "-i 1 --count=-1", "at least 1"},
		{1, "--link eth7", "name one of: mem, or all"},
	} {
		if code, out, errs := ctl(append([]string{"-s", a, "stat"}, strings.Fields(tc.args)...)...); code != tc.code ||
			!strings.Contains(errs, tc.want) || out != "" {
			t.Errorf("stat %s: %d %q %q, want %d %q", tc.args, code, out, errs, tc.code, tc.want)
		}
	}
	if code, _, errs := ctl("-s", t.TempDir()+"/none.sock", "stat", "-i", "1"); code != 1 || !strings.Contains(errs,
		"start one") {
		t.Errorf("no daemon: %d %s", code, errs)
	}
}

func TestStatHeadingAndUnits(t *testing.T) {
	var out bytes.Buffer
	p := &statPrinter{g: &globals{out: &out}, terminal: true}
	r := &statReport{Rates: rates{"bytes_sent": 1.25e9, "bytes_received": 1e6, "frames_lost": 0.25, "rejected_auth": 3,
		"rejected_version": 4, "rejected_cookie": 90}, PinnedBytes: 3 << 20}
	for range 41 {
		must(t, p.print(r))
	}
	lines := strings.Split(out.String(), "\n")
	if strings.Count(out.String(), "PINNED") != 3 || lines[0] != lines[21] || lines[0] != lines[42] {
		t.Errorf("headings:\n%s", &out)
	}
	if got := strings.Join(strings.Fields(lines[1]), " "); got != "8.00M 10.00G 0 0 0 0 0 0.2 0 0 7.0 0 3.0MiB 0" {
		t.Errorf("line: %s", got)
	}
}

func TestRatesOf(t *testing.T) {
	at := func(epoch string, uptime float64, sent uint64, links map[string]uint64) *sample {
		s := &sample{status: inspect.Status{Epoch: epoch, Process: inspect.Process{UptimeSeconds: uptime},
			Counters: inspect.Counts{"frames_sent": sent}}}
		for name, n := range links {
			s.links = append(s.links, inspect.LinkStatus{Name: name, Counters: inspect.Counts{"frames_sent": n}})
		}
		return s
	}
	before := at("1", 10, 100, map[string]uint64{"eth1": 50})
	if r := ratesOf(at("1", 12, 300, map[string]uint64{"eth1": 150}), before); r.Restarted || r.Interval != 2 ||
		r.Rates["frames_sent"] != 100 || r.Links[0].Rates["frames_sent"] != 50 {
		t.Errorf("%+v", r)
	}
	if r := ratesOf(at("2", 1, 300, map[string]uint64{"eth1": 150}), before); !r.Restarted || r.Rates != nil ||
		!r.Links[0].Restarted {
		t.Errorf("another run: %+v", r)
	}
	if r := ratesOf(at("1", 12, 99, nil), before); !r.Restarted || r.Rates != nil {
		t.Errorf("counters went back: %+v", r)
	}
	for name, n := range map[string]uint64{"eth1": 49, "eth2": 60} {
		if r := ratesOf(at("1", 12, 300, map[string]uint64{name: n}), before); r.Restarted || !r.Links[0].Restarted ||
			r.Links[0].Rates != nil {
			t.Errorf("link %s at %d: %+v", name, n, r)
		}
	}
}
