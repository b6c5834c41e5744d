package figure

import (
	"bytes"
	"strings"
	"testing"

	"multiedge/bench/report"
)

// demonstration is three rounds of edge, TCP and raw over seven sizes; the first round of TCP is disturbed, and two of
// raw with messages of 8 bytes.
func demonstration() []Source {
	var rows []report.Row
	for round := 1; round <= 3; round++ {
		for _, test := range []string{report.OneWay, report.TwoWay, report.PingPong} {
			for size := 8; size <= 1<<20; size = min(size*8, max(1<<20, size+1)) {
				for i, name := range []string{report.TransportEdge, report.TransportTCP, report.TransportRaw} {
					r := synthRow(test, 2, size)
					r.Transport, r.Round = name, round
					r.Throughput *= 1 + float64(i) + float64(round)/10
					if test == report.TwoWay {
						r.EachWay = []float64{r.Throughput / 4, r.Throughput * 3 / 4}
					}
					if name == report.TransportEdge {
						r.Variant = "encrypted checked"
					}
					if name == report.TransportTCP && round == 1 || name == report.TransportRaw && round > 1 &&
						size == 8 {
						r.Busy = "other programs used 90 % of the processors"
					}
					rows = append(rows, r)
				}
				if size == 1<<20 {
					break
				}
			}
		}
	}
	return of(rows...)
}

func TestBesides(t *testing.T) {
	all := Besides(demonstration())
	if len(all) != 3 || all[1].Test != report.TwoWay || len(all[1].Contenders) != 3 ||
		all[1].Contenders[0] != "edge encrypted checked" {
		t.Fatalf("%+v", all)
	}
	base := synthRow(report.TwoWay, 2, 8).Throughput
	near := func(a, b float64) bool { return a > b*0.999999 && a < b*1.000001 }
	c := all[1].Rows[0].Cells[1] // TCP, whose rounds reach 2.1, 2.2 and 2.3 times the base
	if c.Rounds != 3 || !near(c.Median, 2.2*base) || !near(c.Min, 2.1*base) || !near(c.Max, 2.3*base) || c.Busy {
		t.Errorf("TCP: %+v, base %f", c, base)
	}
	if len(c.EachWay) != 2 || !near(c.EachWay[0], 0.55*base) || !near(c.EachWay[1], 1.65*base) {
		t.Errorf("each way %v, want a quarter and three of %f", c.EachWay, 2.2*base)
	}
	if raw := all[1].Rows[0].Cells[2]; !raw.Busy {
		t.Error("two busy rounds of three are not called busy")
	}
	if few := Besides(synthetic()); len(few) != 0 {
		t.Errorf("a comparison of one size is shown as a sweep: %+v", few)
	}
}

// Curves show the range over repeats, and points where the machine was busy.
func TestCurvesHaveSpreadAndBusyPoints(t *testing.T) {
	figs := Build(demonstration())
	f := figs[0]
	if f.ID != "beside-throughput" || len(f.Panels) != 3 || len(f.Panels[0].Lines) != 3 {
		t.Fatalf("first figure %s with %d panels", f.ID, len(f.Panels))
	}
	raw := f.Panels[0].Lines[2]
	if !(raw.Lo[0] < raw.Y[0] && raw.Y[0] < raw.Hi[0]) || !raw.busy(0) || raw.busy(1) {
		t.Errorf("raw: %+v", raw)
	}
	if !strings.Contains(f.Caption, "whiskers") || !strings.Contains(f.Caption, "Hollow") {
		t.Errorf("the caption does not explain itself: %s", f.Caption)
	}
	plain := func(change func(l *Line)) []byte {
		g := Figure{Panels: []Panel{{SizeX: true, Lines: []Line{raw}}}}
		change(&g.Panels[0].Lines[0])
		svg := g.SVG()
		return svg
	}
	whole := plain(func(*Line) {})
	if n := plain(func(l *Line) { l.Lo, l.Hi = l.Y, l.Y }); bytes.Count(n, []byte("<path")) >= bytes.Count(whole,
		[]byte("<path")) {
		t.Error("the range is not drawn")
	}
	if n := plain(func(l *Line) { l.Busy = nil }); len(n) >= len(whole) {
		t.Error("a busy point looks like any other")
	}
}

func TestPageOfDemonstration(t *testing.T) {
	src := demonstration()
	src[0].File.Machine.CPUs, src[0].File.Machine.Load = 2, 7.5
	src[0].File.Build.Version = "0.1.0+gabc"
	var b bytes.Buffer
	if err := HTML(&b, "Demo", src); err != nil {
		t.Fatal(err)
	}
	page := b.String()
	for _, want := range []string{
		"8 B, half round trip: edge encrypted checked", "1 MiB, half round trip", "8 B, one-way, small writes",
		"1 MiB, two-way, sum of both directions",
		"TCP is measured the same way", "load average of 7.5 on 2 processors", "see busy", "edgebench 0.1.0",
		`<section id="table-two-way">`,
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page does not say %q", want)
		}
	}
	if strings.Contains(page, "nowrap") || strings.Contains(page, "overflow-x") {
		t.Error("tables may be wider than the page")
	}
}
