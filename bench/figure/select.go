package figure

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"multiedge/bench/report"
)

// Source is a result file with the name it is shown under when several are drawn together.
type Source struct {
	Name string
	File *report.File
}

// entry is a row with its source.
type entry struct {
	*report.Row
	source string
}

// A dim is one property by which configurations can differ. Those that do differ make up a curve's label.
type dim struct {
	name string
	of   func(e entry) string
}

var dims = []dim{
	{"links", linksOf},
	{"mtu", func(e entry) string { return fmt.Sprintf("MTU %d", e.MTU) }},
	{"transport", func(e entry) string { return named("over", e.Transport) }},
	{"attach", func(e entry) string { return e.Attach }},
	{"scheduler", func(e entry) string { return e.Scheduler }},
	{"checksum", func(e entry) string { return named("checksum", e.Checksum) }},
	{"security", func(e entry) string { return e.Security }},
	{"poll", func(e entry) string { return named("poll", e.Poll) }},
	{"driver", func(e entry) string { return named("driver", e.Driver) }},
	{"copy", func(e entry) string { return e.Copy }},
	{"alignment", func(e entry) string { return e.Alignment }},
	{"connections", func(e entry) string { return report.Plural(max(e.Connections, 1), "connection") }},
	{"source", func(e entry) string { return e.source }},
}

func linksOf(e entry) string { return report.Rates(e.LinkRates, e.Links) }

// varied splits off the rows of configurations that differ in the dim of that name and in nothing else: what was
// measured to compare it. apart adds to what must be equal.
func varied(rows []entry, name string, apart func(e entry) string) (varied, rest []entry) {
	var value func(e entry) string
	for _, d := range dims {
		if d.name == name {
			value = d.of
		}
	}
	key := func(e entry) string {
		parts := []string{apart(e)}
		for _, d := range dims {
			if d.name != name {
				parts = append(parts, d.of(e))
			}
		}
		return strings.Join(parts, "/")
	}
	first, mixed := map[string]string{}, map[string]bool{}
	for _, e := range rows {
		k := key(e)
		if v, ok := first[k]; ok && v != value(e) {
			mixed[k] = true
		} else if !ok {
			first[k] = value(e)
		}
	}
	return split(rows, func(e entry) bool { return mixed[key(e)] })
}

// nothing is the apart of varied that adds nothing.
func nothing(entry) string { return "" }

func named(what, value string) string {
	if value == "" {
		return ""
	}
	return what + " " + value
}

// config is one configuration: a curve, or a bar in each group.
type config struct {
	label string
	rows  []entry
}

// configs groups rows by configuration, in order of appearance.
func configs(rows []entry) []config {
	if len(rows) > 0 && rows[0].Round > 0 {
		return contenders(rows)
	}
	var differ []dim
	for _, d := range dims {
		if slices.ContainsFunc(rows, func(e entry) bool { return d.of(e) != d.of(rows[0]) }) {
			differ = append(differ, d)
		}
	}
	if len(differ) == 0 {
		differ = dims[:1]
	}
	return grouped(rows, func(e entry) string { return labelOf(e, differ) })
}

// grouped groups rows by their labels, in order of appearance.
func grouped(rows []entry, label func(entry) string) (out []config) {
	for _, e := range rows {
		name := label(e)
		i := slices.IndexFunc(out, func(c config) bool { return c.label == name })
		if i < 0 {
			i, out = len(out), append(out, config{label: name})
		}
		out[i].rows = append(out[i].rows, e)
	}
	return out
}

func labelOf(e entry, differ []dim) string {
	var parts []string
	for _, d := range differ {
		if s := d.of(e); s != "" {
			parts = append(parts, s)
		}
	}
	return strings.Join(parts, ", ")
}

// entries returns all rows of the sources that want accepts.
func entries(sources []Source, want func(r *report.Row) bool) []entry {
	var out []entry
	for _, s := range sources {
		for i := range s.File.Results {
			if r := &s.File.Results[i]; want(r) {
				out = append(out, entry{r, s.Name})
			}
		}
	}
	return out
}

// where returns the rows of which is holds, split the others, too.
func where(rows []entry, is func(entry) bool) []entry {
	those, _ := split(rows, is)
	return those
}

func split(rows []entry, is func(entry) bool) (those, rest []entry) {
	for _, e := range rows {
		if is(e) {
			those = append(those, e)
		} else {
			rest = append(rest, e)
		}
	}
	return those, rest
}

// only returns the rows of one test.
func only(rows []entry, test string) []entry {
	return where(rows, func(e entry) bool { return e.Test == test })
}

// sizes returns the message sizes of rows in ascending order.
func sizes(rows []entry) []int { return counts(rows, func(e entry) int { return e.MessageBytes }) }

// line is a configuration's curve: at each size the median of value, the range over repeats, and whether the machine
// was busy. Sizes without a value (NaN) are left out.
func line(rows []entry, style int, value func(entry) float64) Line {
	l := Line{Style: style}
	for _, size := range sizes(rows) {
		at := where(ofSize(rows, size), func(e entry) bool { return !math.IsNaN(value(e)) })
		var v []float64
		for _, e := range at {
			v = append(v, value(e))
		}
		l.add(max(float64(size), 1), v, mostlyBusy(at))
	}
	return l
}

// add adds a point to a curve, if there are values.
func (l *Line) add(x float64, v []float64, busy bool) {
	if s := report.SpreadOf(v); s.Rounds > 0 {
		l.X, l.Y, l.Lo, l.Hi, l.Busy = append(l.X, x), append(l.Y, s.Median), append(l.Lo, s.Min), append(l.Hi, s.Max),
			append(l.Busy, busy)
	}
}

// micros is a latency in microseconds; NaN where none was measured.
func micros(l report.Latency, ns float64) float64 {
	if l.Count == 0 {
		return math.NaN()
	}
	return ns / 1e3
}

// nominal returns the summed rate of a row's links in Gbit/s, 0 when they are not limited.
func nominal(r *report.Row) float64 {
	sum := 0.0
	for _, s := range r.LinkRates {
		bits, err := report.ParseRate(s)
		if err != nil {
			return 0
		}
		sum += bits / 1e9
	}
	if r.Test == report.TwoWay || r.Bidirectional {
		sum *= 2
	}
	return sum
}
