package figure

import (
	"bytes"
	"fmt"
	"math"
	"strings"
	"testing"

	"multiedge/bench/report"
)

// of returns results made by synthRow and changed by set, as one source.
func of(rows ...report.Row) []Source {
	f := report.NewFile(report.Head{})
	f.Results = rows
	return []Source{{File: f}}
}

// What was measured to compare one property has figures of its own, and only those.
func TestSweepsHaveTheirFigures(t *testing.T) {
	var poll, conns []report.Row
	for _, mode := range []string{"block", "adaptive", "busy"} {
		for _, test := range []string{report.OneWay, report.TwoWay, report.PingPong} {
			for _, size := range []int{4096, 65536} {
				r := synthRow(test, 1, size)
				r.Poll = mode
				poll = append(poll, r)
			}
		}
	}
	for _, n := range []int{1, 10, 1000, 1} {
		one, rate := synthRow(report.OneWay, 1, 65536), synthRow(report.Rate, 1, 8)
		one.Connections, rate.Connections = n, n
		conns = append(conns, one, rate)
	}
	for _, c := range []struct {
		rows []report.Row
		want string // figures with their panels
	}{
		{poll, "[polling 3] [polling-cpu 3]"},
		{conns, "[connections 2]"},
		{linkSweep(), "[links 3]"},
		{copySweep(), "[zero-copy 2] [zero-copy-cpu 6] [zero-copy-latency 3] [alignment 2] [exchange 2]"},
		{shardSweep(), "[shards 2] [shards-cpu 2]"},
	} {
		got := ""
		for _, f := range Build(of(c.rows...)) {
			got += fmt.Sprintf(" [%s %d]", f.ID, len(f.Panels))
			if svg := f.SVG(); bytes.Contains(svg, []byte("NaN")) {
				t.Errorf("%s", f.ID)
			}
		}
		if got[1:] != c.want {
			t.Errorf("figures%s, want %s", got, c.want)
		}
	}
}

// linkSweep is three rounds over 1, 2 and 4 links, of 1 Gbit/s each and not limited.
func linkSweep() (rows []report.Row) {
	for round := range 3 {
		for _, n := range []int{1, 2, 4} {
			r := synthRow(report.OneWay, n, 1<<20)
			r.Throughput = 3e9 - float64(n)*1e8 + float64(round)
			rows = append(rows, r)
			for range n {
				r.LinkRates = append(r.LinkRates, "1gbit")
			}
			r.Throughput = 0.98e9 / 8 * float64(n)
			rows = append(rows, r)
		}
	}
	return rows
}

// shardSweep is three rounds with 1 and 2 shards, 1 and 8 connections.
func shardSweep() (rows []report.Row) {
	for round := range 3 {
		for _, shards := range []int{2, 1} {
			for _, test := range []string{report.TwoWay, report.OneWay} {
				for _, conns := range []int{1, 8} {
					r := synthRow(test, 2, 1<<20)
					r.Shards, r.Connections, r.Bytes = shards, conns, 1<<30
					r.Throughput = 1e9 * float64(shards) * (1 + float64(round)/10)
					for _, host := range []string{"client", "server"} {
						for i := range shards {
							r.ShardLoad = append(r.ShardLoad, report.ShardLoad{Host: host, Shard: i,
								CPU: 0.25 * float64(i+round)})
						}
					}
					rows = append(rows, r)
				}
			}
		}
	}
	return rows
}

func TestShardsGainOverTheFewest(t *testing.T) {
	points := Shards(of(shardSweep()...))
	if len(points) != 8 {
		t.Fatalf("%d points: %+v", len(points), points)
	}
	for i, p := range points {
		one := i%2 == 0
		if p.Test != []string{report.TwoWay, report.OneWay}[i/4] || p.Connections != []int{1, 8}[i/2%2] ||
			p.Shards != 1+i%2 {
			t.Errorf("point %d is %+v", i, p)
		}
		if one && (p.Gain != 1 || math.Abs(p.Median-1.1e9) > 1) || !one && (p.Gain != 2 || p.Min != 2e9) {
			t.Errorf("point %d: %+v", i, p)
		}
		if len(p.Client) != p.Shards || len(p.Server) != p.Shards || p.Server[0] != 0.25 {
			t.Errorf("point %d: processor time %+v", i, p)
		}
	}
}

// Receivers are threads of their own, behind the shards.
func TestShardsWithReceivers(t *testing.T) {
	rows := shardSweep()
	for i := range rows {
		rows[i].Receivers = 1
		for k := range rows[i].ShardLoad {
			rows[i].ShardLoad[k].ReceiversCPU = 0.5
		}
	}
	for _, p := range Shards(of(append(rows, shardSweep()...)...)) {
		if want := p.Shards * (1 + p.Receivers); len(p.Client) != want || len(p.Server) != want || p.Receivers > 0 &&
			p.Server[want-1] != 0.5 {
			t.Errorf("%+v", p)
		}
	}
}

func TestLinksShareOfNominalAndOfOneLink(t *testing.T) {
	curves := Links(of(linkSweep()...))
	if len(curves) != 2 {
		t.Fatalf("%d curves: %+v", len(curves), curves)
	}
	free, shaped := curves[0], curves[1]
	if free.Rate != "" || shaped.Rate != "1gbit" || len(free.Points) != 3 || len(shaped.Points) != 3 {
		t.Fatalf("%+v", curves)
	}
	for i, n := range []int{1, 2, 4} {
		p, q := shaped.Points[i], free.Points[i]
		if p.Links != n || math.Abs(p.Share-0.98) > 1e-9 || p.Nominal != float64(n)*1e9/8 {
			t.Errorf("shaped: %+v", p)
		}
		if q.Nominal != 0 || math.Abs(q.Share-(3e9-float64(n)*1e8+1)/(2.9e9+1)) > 1e-9 || q.Max-q.Min != 2 {
			t.Errorf("not shaped: %+v", q)
		}
	}
}

// Of two raw receive paths the better is the limit, and the base; reads are compared with writes, too.
func TestLimitIsTheBetterReceivePath(t *testing.T) {
	var rows []report.Row
	add := func(test, transport, variant string, round int, throughput, latency float64) {
		r := synthRow(test, 1, 4096)
		r.Transport, r.Variant, r.Round, r.Throughput, r.Latency = transport, variant, round, throughput,
			report.Latency{Count: 1, P50: latency}
		rows = append(rows, r)
	}
	for round := 1; round <= 3; round++ {
		for _, test := range []string{report.Read, report.PingPong} {
			add(test, report.TransportRaw, "ring", round, 10, 2000)
			add(test, report.TransportRaw, "mmsg", round, 20, 1000)
			add(test, report.TransportRaw, "ring sealed", round, 10, 3000)
			add(test, report.TransportRaw, "ring sealed stdlib", round, 5, 12000)
			add(test, report.TransportRaw, "udp", round, 40, 4000)
			add(test, report.TransportRaw, "udp sealed", round, 20, 5000)
			add(test, report.TransportEdge, "", round, 15, 1500)
			add(test, report.TransportEdge, "encrypted", round, 8, 6000)
			add(test, report.TransportEdge, "udp", round, 30, 3000)
			add(test, report.TransportEdge, "udp encrypted", round, 16, 6000)
		}
		add(report.Read, report.TransportEdge, "write", round, 16, 0)
	}
	limits := map[string]bool{"raw mmsg": true, "raw ring sealed": true, "raw udp": true, "raw udp sealed": true}
	want := map[string]float64{
		"read edge/raw mmsg": 0.75, "read edge write/raw mmsg": 0.8, "read edge/edge write": 15.0 / 16,
		"ping-pong edge/raw mmsg":      1.5,
		"read edge encrypted/raw mmsg": 0.4, "read edge encrypted/raw ring sealed": 0.8,
		"read edge encrypted/raw ring sealed stdlib": 1.6, "read edge encrypted/edge": 8.0 / 15,
		"read edge encrypted/edge write": 0.5,
		"read edge udp/raw udp":          0.75, "read edge udp/edge": 2, "read edge udp/edge write": 30.0 / 16,
		"read edge udp encrypted/raw udp": 0.4, "read edge udp encrypted/raw udp sealed": 0.8,
		"read edge udp encrypted/edge udp":       16.0 / 30,
		"read edge udp encrypted/edge encrypted": 2, "read edge udp encrypted/edge write": 1,
		"ping-pong edge encrypted/raw mmsg": 6, "ping-pong edge encrypted/raw ring sealed": 2,
		"ping-pong edge encrypted/raw ring sealed stdlib": 0.5, "ping-pong edge encrypted/edge": 4,
		"ping-pong edge udp/raw udp": 0.75, "ping-pong edge udp/edge": 2,
		"ping-pong edge udp encrypted/raw udp": 1.5, "ping-pong edge udp encrypted/raw udp sealed": 1.2,
		"ping-pong edge udp encrypted/edge udp":       2,
		"ping-pong edge udp encrypted/edge encrypted": 1,
	}
	for _, s := range Summarize(of(rows...)) {
		for _, c := range s.Contenders {
			if c.Limit != limits[c.Name] {
				t.Errorf("%s: %s is a limit: %v", s.Work, c.Name, c.Limit)
			}
		}
		test, _, _ := strings.Cut(s.Work, ",")
		for _, r := range s.Ratios {
			if r.What != "throughput" && r.What != "median latency" {
				continue
			}
			k := test + " " + r.Over + "/" + r.Base
			if want[k] == 0 || math.Abs(r.OfMedians-want[k]) > 1e-9 || math.Abs(r.Median-want[k]) > 1e-9 {
				t.Errorf("%s: %v, want %v", k, r.OfMedians, want[k])
			}
			delete(want, k)
		}
	}
	for k := range want {
		t.Errorf("no ratio %s", k)
	}
}

// copySweep is every way to copy at the best alignment, one at all alignments, and runs of pages, to exchange which
// pays from 64 KiB on when cold.
func copySweep() (rows []report.Row) {
	for _, how := range []string{"cp", "notx", "pinmap", "shuffle", "nocp", "default"} {
		for _, test := range []string{report.OneWay, report.TwoWay, report.PingPong} {
			for _, align := range []string{"best", "middle", "worst"} {
				if align != "best" && (how != "pinmap" || test == report.PingPong) {
					continue
				}
				for _, size := range []int{4096, 65536} {
					r := synthRow(test, 1, size)
					r.Copy, r.Alignment = how, align
					rows = append(rows, r)
				}
			}
		}
	}
	for _, size := range []int{4 << 10, 64 << 10, 1 << 20} {
		for _, state := range []string{report.PlaceWarm, report.PlaceCold} {
			for way, ns := range map[string]float64{report.PlaceCopy: float64(size), report.PlaceExchange: 40_000 +
				float64(size)/3} {
				if state == report.PlaceWarm && way == report.PlaceCopy {
					ns /= 8
				}
				rows = append(rows, report.Row{
					Test: report.Place, Transport: report.TransportMemory,
					Setup:        report.Setup{Variant: report.PlaceVariant(way, state)},
					MessageBytes: size,
					Latency:      report.Latency{Count: 9, P50: ns, P99: 2 * ns},
				})
			}
		}
	}
	return rows
}

func TestCrossover(t *testing.T) {
	rows := copySweep()
	if cold, warm := report.Crossover(rows, report.PlaceCold), report.Crossover(rows,
		report.PlaceWarm); cold != 64<<10 || warm != 0 {
		t.Errorf("exchange pays from %d bytes on when cold, %d when warm", cold, warm)
	}
	want := "exchanging pages is cheaper than copying from runs of 64 KiB on when no cache holds the place, at none " +
		"of these sizes when one does"
	if got := report.CrossoverText(rows); got != want {
		t.Errorf("%q", got)
	}
	for _, f := range Build(of(rows...)) {
		if f.ID == "exchange" && !strings.Contains(f.Caption, want) {
			t.Errorf("caption: %s", f.Caption)
		}
		if f.ID == "alignment" && fmt.Sprint(f.Legend) != "[{best 0 false} {middle 1 false} {worst 2 false}]" {
			t.Errorf("legend of the alignments: %v", f.Legend)
		}
		if f.ID == "zero-copy" && len(f.Legend) != 6 {
			t.Errorf("legend of the ways to copy: %v", f.Legend)
		}
	}
	if report.Crossover(nil, report.PlaceCold) != 0 {
		t.Error("a crossover without measurements")
	}
}
