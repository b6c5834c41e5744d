package figure

import (
	"fmt"
	"slices"
	"strings"

	"multiedge/bench/report"
)

// Summary is one piece of work of an interleaved comparison: what each contender reached, and how edge compares.
type Summary struct {
	Work       string // "one-way, 1 MiB, region 4 MiB, 1 link, MTU 9000, offloads TSO, GSO"
	Latency    bool   // values are medians of half round trips in nanoseconds, else bytes per second
	Contenders []Standing
	Ratios     []Ratio

	limits map[service]string // raw packet sockets in the form that is best here
}

// service is what separates contenders of which one is no limit for the other.
type service struct{ datagrams, sealed, stdlib, stream bool }

func serviceOf(r *report.Row) service {
	words := strings.Fields(r.Variant)
	has := func(word string) bool { return slices.Contains(words, word) }
	return service{has("udp") || r.Driver == "udp", has("sealed") || has("encrypted"), has("stdlib"), has("stream")}
}

// Standing is one contender's result over all rounds.
type Standing struct {
	Name     string
	Security string // "encrypted" or "plaintext"; empty where nobody said
	report.Spread
	// of both ends, median: seconds per GiB or, where latency is compared, microseconds per message
	CPU   float64
	Limit bool // nothing that does the same can beat it
}

// Ratio compares two contenders: the ratio of their medians, and the ratios within each round.
type Ratio struct {
	Work, What    string // what was done; what is compared
	Over, Base    string // contenders: Over divided by Base
	OfMedians     float64
	report.Spread // of the ratios within rounds
}

// Summarize groups the interleaved rows of sources by work.
func Summarize(sources []Source) []Summary {
	var out []Summary
	for _, g := range grouped(entries(sources, interleaved), func(e entry) string {
		w := fmt.Sprintf("%s, %s, %s, %s, MTU %d", e.Test, report.Bytes(e.MessageBytes), region(e), linksOf(e), e.MTU)
		if e.Offloads != "" {
			w += ", " + offload(e)
		}
		return w
	}) {
		s := Summary{Work: g.label, Latency: report.IsLatencyTest(g.rows[0].Test)}
		s.fill(contenders(g.rows))
		out = append(out, s)
	}
	return out
}

func (s *Summary) fill(cs []config) {
	main, cost := s.mainMetric(), s.cpuMetric()
	s.findLimits(cs)
	for _, c := range cs {
		st := Standing{Name: c.label, Security: c.rows[0].Security, Spread: report.SpreadOf(values(c.rows, main.value)),
			CPU:   report.Median(values(c.rows, cost.value)),
			Limit: s.limits[serviceOf(c.rows[0].Row)] == c.label && !serviceOf(c.rows[0].Row).stdlib}
		if st.Rounds > 0 {
			s.Contenders = append(s.Contenders, st)
		}
	}
	for _, over := range cs {
		for _, base := range cs {
			if over.rows[0].Transport == report.TransportEdge && s.isBase(over, base) {
				s.Ratios = append(s.Ratios, s.compareRounds(over, base)...)
			}
		}
	}
}

// isBase reports whether edge is compared with base: with the other transports (with those that encrypt only if it
// does, too), with raw packet sockets that do the
// same (and with those that do not seal, or seal by the standard library) where they are at their best, reads with
// writes, encrypted frames with plaintext ones, frames in datagrams with frames alone, and streams with writes.
func (s *Summary) isBase(over, base config) bool {
	r, a, b := base.rows[0].Row, serviceOf(over.rows[0].Row), serviceOf(base.rows[0].Row)
	switch {
	case r.Transport == report.TransportRaw:
		return base.label == s.limits[b] && a.datagrams == b.datagrams && (a.sealed || !b.sealed)
	case r.Transport != report.TransportEdge:
		return a.sealed || r.Security != "encrypted"
	case r.Variant == "write":
		return r.Test == report.Read && over.label != base.label
	case a.datagrams && !b.datagrams:
		return without(over.rows[0].Variant, "udp") == r.Variant
	case a.stream && !b.stream:
		return without(over.rows[0].Variant, "stream") == r.Variant
	}
	return a.sealed && !b.sealed && a.datagrams == b.datagrams && a.stream == b.stream && !strings.HasSuffix(r.Variant,
		"embedded")
}

// without returns a variant's name without one of its words.
func without(variant, word string) string {
	return strings.Join(slices.DeleteFunc(strings.Fields(variant), func(w string) bool { return w == word }), " ")
}

// findLimits finds the raw contender with the best median for each service.
func (s *Summary) findLimits(cs []config) {
	s.limits = map[service]string{}
	best := map[service]float64{}
	for _, c := range cs {
		v := values(c.rows, s.mainMetric().value)
		if c.rows[0].Transport != report.TransportRaw || len(v) == 0 {
			continue
		}
		does := serviceOf(c.rows[0].Row)
		if m := report.Median(v); s.limits[does] == "" || (m < best[does]) == s.Latency && m != best[does] {
			best[does], s.limits[does] = m, c.label
		}
	}
}

// metric is a property in which contenders are compared.
type metric struct {
	name  string
	value func(entry) float64
}

func (s *Summary) mainMetric() metric {
	if s.Latency {
		return metric{"median latency", func(e entry) float64 { return e.Latency.P50 }}
	}
	return metric{"throughput", func(e entry) float64 { return e.Throughput }}
}

// cpuMetric is the cost of what mainMetric is the benefit.
func (s *Summary) cpuMetric() metric {
	if s.Latency {
		return metric{"CPU per message",
			func(e entry) float64 { return 1e6 * e.CPU.Total / float64(max(e.Operations, 1)) }}
	}
	return metric{"CPU per GiB", entry.PerGiB}
}

// values of rows, without those that were not measured.
func values(rows []entry, value func(entry) float64) []float64 {
	var v []float64
	for _, e := range rows {
		if x := value(e); x > 0 {
			v = append(v, x)
		}
	}
	return v
}

// compareRounds divides over by base round by round.
func (s *Summary) compareRounds(over, base config) []Ratio {
	var out []Ratio
	for _, m := range []metric{s.mainMetric(), s.cpuMetric()} {
		var v []float64
		for _, a := range over.rows {
			for _, b := range base.rows {
				if a.Round == b.Round && m.value(a) > 0 && m.value(b) > 0 {
					v = append(v, m.value(a)/m.value(b))
				}
			}
		}
		if len(v) > 0 {
			of := report.Median(values(over.rows, m.value)) / report.Median(values(base.rows, m.value))
			out = append(out, Ratio{Work: s.Work, OfMedians: of, What: m.name, Over: over.label, Base: base.label,
				Spread: report.SpreadOf(v)})
		}
	}
	return out
}

// Ratios returns the ratios of all works.
func Ratios(sources []Source) []Ratio {
	var out []Ratio
	for _, s := range Summarize(sources) {
		out = append(out, s.Ratios...)
	}
	return out
}
