package xlate

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// world is data for all tables that trends are judged by: our value of a cell, by table, kernel, the rest of the row's
// label, and column. ok is whether the paper's claim holds in it.
type world func(table, app, rest, column string) float64

// synthetic makes the tables that the trends of UTLB or DHL are judged by, of a world, with the paper's numbers in the
// cells that have them.
func fill(w world, ids ...string) *runner {
	r := &runner{out: &Study{}}
	for _, name := range []string{"fft", "lu", "barnes", "radix", "water-cells", "ocean", "water"} {
		r.apps = append(r.apps, &app{name: name})
	}
	sizes := sizeNames()
	columns := map[string][]string{
		"table4": {"check misses", "NI misses", "unpins", "cost", "NI misses, intr", "unpins, intr", "cost, intr"},
		"table7": {"pin 1", "pin 16", "unpin 1", "unpin 16"}, "table8": sizes,
		"figure7": {"compulsory", "capacity", "conflict"}, "figure8": {"1", "2", "4", "8", "16", "32"},
		"vmmc-table3": {"of the footprint, %", "hits, %"},
		"dhl-figure3": {"static table", "cache"}, "dhl-figure5": {"all"}, "dhl-figure7": {"best", "run time"},
	}
	columns["table5"], columns["vmmc-table4"] = columns["table4"], columns["vmmc-table3"]
	var configs, caches, prefetch []string
	for _, c := range dhlConfigs() {
		configs = append(configs, " "+c.Name())
	}
	for _, c := range table8Rows {
		caches = append(caches, " "+c.name)
	}
	for _, size := range sizes {
		prefetch = append(prefetch, " "+size+", pre-pinned", " "+size+", pre-pinned, us")
	}
	spaced := func(list []string) (out []string) {
		for _, s := range list {
			out = append(out, " "+s)
		}
		return out
	}
	rests := map[string][]string{"table4": spaced(sizes), "table5": spaced(sizes), "table8": caches,
		"figure7": spaced(sizes), "figure8": prefetch, "dhl-figure5": configs}
	for _, id := range ids {
		t := Table{ID: strings.TrimPrefix(id, "dhl-"), Columns: append([]string{"kernel"}, columns[id]...)}
		for _, a := range r.apps {
			for _, rest := range append(rests[id], "")[:max(1, len(rests[id]))] {
				row := Row{Label: a.name + rest}
				for _, c := range columns[id] {
					cell := ours(w(id, a.name, strings.TrimSpace(rest), c))
					if p, ok := printed(id, a.name, strings.TrimSpace(rest), c); ok {
						cell.Paper = &p
					}
					row.Cells = append(row.Cells, cell)
				}
				t.Rows = append(t.Rows, row)
			}
		}
		r.out.Tables = append(r.out.Tables, t)
	}
	return r
}

// printed is the paper's number of a cell, of those that trends are judged by.
func printed(table, app, rest, column string) (float64, bool) {
	switch {
	case table == "table4" && column == "NI misses":
		p, ok := Facts.UTLB.Table4.Apps[app]
		i := slices.Index(sizeNames(), rest)
		if !ok {
			return 0, false
		}
		return p.UTLB.At(i).NI, true
	case table == "vmmc-table3" && column == "hits, %":
		p, ok := Facts.VMMC.Table3[app]
		return p.Hit, ok
	case table == "vmmc-table4" && column == "hits, %":
		p, ok := Facts.VMMC.Table4[app]
		return p.Hit, ok
	}
	return 0, false
}

// asClaimed is a world in which every claim of both papers holds.
func asClaimed(table, app, rest, column string) float64 {
	if p, ok := printed(table, app, rest, column); ok {
		return p
	}
	small := rest == "1K"
	pick := func(yes bool, a, b float64) float64 {
		if yes {
			return a
		}
		return b
	}
	switch table + " " + column {
	case "table4 check misses":
		p, ok := Facts.UTLB.Table4.Apps[app]
		if !ok {
			return 0.3
		}
		return p.UTLB.At(0).Check
	case "table4 NI misses", "table5 NI misses", "table5 NI misses, intr":
		return 0.4
	case "table4 NI misses, intr":
		return asClaimed(table, app, rest, "NI misses")
	case "table4 unpins, intr", "table5 unpins, intr":
		return 0.2
	case "table4 cost", "table5 cost":
		return pick(small, 6, 5)
	case "table4 cost, intr", "table5 cost, intr":
		return pick(small, 20, 10)
	case "table7 pin 1", "table7 unpin 1":
		return pick(app == "fft", 1, 9)
	case "table7 pin 16", "table7 unpin 16":
		return pick(app == "fft", 9, 1)
	case "figure7 compulsory":
		return 0.5
	case "figure8 1":
		return 10
	case "figure8 16": // irregular programs gain no time
		return pick(strings.HasSuffix(rest, "us") && app != "fft" && app != "lu", 11, 5)
	case "dhl-figure3 static table":
		return 256
	case "dhl-figure3 cache":
		return 75
	case "dhl-figure7 run time":
		return pick(app == "radix", 1.07, 1.01)
	case "dhl-figure5 all":
		return dhlClaimed(rest)
	}
	if table == "table8" {
		return pick(rest == "direct-nohash", 0.5, 0.3)
	}
	return 0
}

// dhlClaimed has misses that shrink with lines, halve from 16K to 32K with long ones, and mind ways little.
func dhlClaimed(config string) float64 {
	var c, l, a int
	if _, err := fmt.Sscanf(config, "C%d.L%d.A%d", &c, &l, &a); err != nil {
		panic(err)
	}
	v := map[int]float64{8: 40, 16: 24, 64: 8, 128: 4}[l] * map[int]float64{8: 1, 16: 0.8, 32: 0.75}[c]
	if l == 128 {
		v = map[int]float64{8: 8, 16: 4, 32: 1}[c]
	}
	return v + map[int]float64{2: 0.4, 4: 0.1, 8: 0}[a]
}

// swapped exchanges two columns, or two rows, of a table.
func swapped(table, a, b string) world {
	return func(id, app, rest, column string) float64 {
		if id == table {
			swap := func(s string) string {
				switch s {
				case a:
					return b
				case b:
					return a
				}
				return s
			}
			column, rest = swap(column), swap(rest)
			for _, pair := range [][2]string{{a, b}, {b, a}} { // a part of a configuration's name
				if strings.HasPrefix(id, "dhl-") && strings.Contains(rest, pair[0]) {
					rest = strings.Replace(rest, pair[0], pair[1], 1)
					break
				}
			}
		}
		return asClaimed(id, app, rest, column)
	}
}

// apps exchanges two kernels in a table.
func apps(table, a, b string) world {
	return func(id, app, rest, column string) float64 {
		if id == table && (app == a || app == b) {
			app = map[string]string{a: b, b: a}[app]
		}
		return asClaimed(id, app, rest, column)
	}
}

// times multiplies a column of a table.
func times(table, of string, by float64) world {
	return func(id, app, rest, column string) float64 {
		if v := asClaimed(id, app, rest, column); id != table || column != of {
			return v
		} else {
			return by * v
		}
	}
}

// Every trend agrees where the paper's claim holds, and fails with data that is swapped or wrong.
func TestTrendsCanFail(t *testing.T) {
	for _, study := range []struct {
		name   string
		tables []string
		judge  func(*runner)
		fails  map[string]world // by trend: data that makes it fail
	}{
		{"utlb", []string{"table4", "table5", "table7", "table8", "figure7", "figure8", "vmmc-table3", "vmmc-table4"},
			(*runner).utlbTrends, map[string]world{
				"table4-unpins": swapped("table4", "unpins", "unpins, intr"), "table4-misses": times("table4",
					"NI misses", 0.5),
				"table5-unpins": swapped("table5", "unpins", "unpins, intr"), "table5-misses": times("table5",
					"NI misses", 0.5),
				"sizes": swapped("table4", "1K", "16K"), "sizes-enough": times("table4", "check misses", 0.1),
				"misses-1K": apps("table4", "barnes", "water-cells"), "misses-16K": apps("table4", "barnes", "radix"),
				"cost-small":  swapped("table4", "cost", "cost, intr"),
				"cost-steady": swapped("table4", "cost", "cost, intr"),
				"prepin":      swapped("table7", "pin 1", "pin 16"),
				"prepin-fft":  swapped("table7", "unpin 1", "unpin 16"),
				"offset":      swapped("table8", "direct", "direct-nohash"),
				"ways": func(id, app, rest, column string) float64 {
					if id == "table8" && strings.HasSuffix(rest, "-way") {
						return 0.1
					}
					return asClaimed(id, app, rest, column)
				},
				"compulsory": swapped("figure7", "compulsory", "conflict"), "prefetch": swapped("figure8", "1", "16"),
				"prefetch-cost":    apps("figure8", "fft", "barnes"), // regular and irregular
				"vmmc-table3-hits": apps("vmmc-table3", "radix", "water"),
				"vmmc-table4-hits": apps("vmmc-table4", "radix", "water"),
			}},
		{"dhl", []string{"dhl-figure3", "dhl-figure5", "dhl-figure7"}, (*runner).dhlTrends, map[string]world{
			"lines": swapped("dhl-figure5", "L8.", "L128."), "range": times("dhl-figure5", "all", 3),
			"size":   swapped("dhl-figure5", "L8.", "L128."),
			"half":   swapped("dhl-figure5", "C16.", "C32."),
			"ways-4": swapped("dhl-figure5", "A2", "A4"), "ways-8": func(id, app, rest, column string) float64 {
				if v := asClaimed(id, app, rest, column); !strings.HasSuffix(rest, "A8") {
					return v
				} else {
					return v + 10
				}
			},
			"overhead": times("dhl-figure7", "run time", 1.1),
			"memory":   swapped("dhl-figure3", "static table", "cache"),
		}},
	} {
		r := fill(asClaimed, study.tables...)
		study.judge(r)
		for _, trend := range r.out.Trends {
			if !trend.Agrees {
				t.Errorf("%s: %s fails where the claim holds: %s", study.name, trend.ID, trend.Found)
			}
			if study.fails[trend.ID] == nil {
				t.Errorf("%s: nobody showed that %s can fail", study.name, trend.ID)
			}
		}
		for id, w := range study.fails {
			r := fill(w, study.tables...)
			study.judge(r)
			i := slices.IndexFunc(r.out.Trends, func(trend Trend) bool { return trend.ID == id })
			if i < 0 || r.out.Trends[i].Agrees {
				t.Errorf("%s: %s agrees with swapped data (%d)", study.name, id, i)
			}
		}
	}
}

// The cost model's trend fails if the paper's table 6 does not follow from its table 4.
func TestCostModelCanFail(t *testing.T) {
	agrees := func() bool {
		r := &runner{out: &Study{}}
		r.costModel()
		return r.out.Trends[0].Agrees
	}
	c := &Facts.UTLB.Table6[0]
	if !agrees() {
		t.Error("the model does not give the paper's table 6")
	}
	c.UTLB, c.Intr = c.Intr, c.UTLB
	if agrees() {
		t.Error("the model gives a table 6 whose columns are swapped")
	}
	c.UTLB, c.Intr = c.Intr, c.UTLB
}

// A page says where its numbers come from, and never takes a goal for a trend of a paper.
func TestPageTellsOriginAndGoals(t *testing.T) {
	s := &Study{Title: "T", Paper: "P", Origin: "Measured on this machine."}
	s.AddTrend("a", "§1", "claim", false, "because", "found")
	s.AddGoal("b", "quick", true, "", "found")
	s.AddGoal("c", "small", false, "noise", "found")
	var page, screen bytes.Buffer
	must(t, s.HTML(&page))
	s.Print(&screen)
	for _, want := range []string{"Measured on this machine.", "goals of this project are reached", "MISSED",
		"DIFFERS"} {
		if !strings.Contains(page.String(), want) {
			t.Errorf("the page does not say %q", want)
		}
	}
	if strings.Contains(page.String(), "nothing here is measured") {
		t.Error("the page of a measured study says that nothing is measured")
	}
	var sheet bytes.Buffer
	one := ours(0.5)
	one.Paper = new(2.5)
	s.Tables = []Table{{ID: "t", Columns: []string{"row", "first", "(p99)", "last", "(p99)"},
		Rows: []Row{{Label: "r, s", Cells: []Cell{one, one, one, one}}}}}
	must(t, s.CSV(&sheet))
	for _, column := range []string{"first", "first: (p99)", "last", "last: (p99)"} {
		if want := `t,"r, s",` + column + ",0.5,2.5,\n"; !strings.Contains(sheet.String(), want) {
			t.Errorf("no %q in\n%s", want, &sheet)
		}
	}
	for _, want := range []string{"0 of 1 trends agree with the paper's", "1 of 2 goals of this project are reached"} {
		if !strings.Contains(screen.String(), want) {
			t.Errorf("no %q in\n%s", want, &screen)
		}
	}
}
