package figure

import (
	"cmp"
	"fmt"
	"slices"

	"multiedge/bench/report"
)

// ShardPoint is the result of one test with one number of shards and of connections: medians over the rounds.
type ShardPoint struct {
	Test              string
	Size              int // bytes of a message
	Shards, Receivers int
	Connections       int
	report.Spread               // bytes per second
	Gain              float64   // of the median over that of the fewest threads
	CPU               float64   // seconds per GiB, everything
	Apps              float64   // of it, the benchmark's processes
	Client, Server    []float64 // of it, each shard's thread, and then the receivers of each shard
}

// Shards returns the sources' measurements over different numbers of shards.
func Shards(sources []Source) []ShardPoint {
	rows, _ := shardRows(entries(sources, func(r *report.Row) bool {
		return r.Transport == report.TransportEdge && r.Error == ""
	}))
	return shardPoints(rows)
}

// shardRows splits off the rows that were measured to compare numbers of shards.
func shardRows(rows []entry) (shards, rest []entry) {
	return split(rows, func(e entry) bool { return e.Shards > 0 })
}

func shardPoints(rows []entry) (out []ShardPoint) {
	groups := grouped(rows, func(e entry) string {
		return fmt.Sprint(e.Test, " ", e.MessageBytes, e.Connections, e.Shards, e.Receivers)
	})
	first := func(c config) int { // tests in order of appearance
		return slices.IndexFunc(rows, func(e entry) bool {
			return e.Test == c.rows[0].Test && e.MessageBytes == c.rows[0].MessageBytes
		})
	}
	slices.SortFunc(groups, func(a, b config) int {
		x, y := a.rows[0], b.rows[0]
		return cmp.Or(first(a)-first(b), x.Connections-y.Connections, x.Shards-y.Shards, x.Receivers-y.Receivers)
	})
	for _, g := range groups {
		p := shardPoint(g.rows)
		i := slices.IndexFunc(out, func(o ShardPoint) bool {
			return o.Test == p.Test && o.Size == p.Size && o.Connections == p.Connections
		})
		if p.Gain = 1; i >= 0 && out[i].Median > 0 {
			p.Gain = p.Median / out[i].Median
		}
		out = append(out, p)
	}
	return out
}

// shardPoint puts the rounds of one set-up together.
func shardPoint(rows []entry) ShardPoint {
	e := rows[0]
	p := ShardPoint{Test: e.Test, Size: e.MessageBytes, Shards: e.Shards, Receivers: e.Receivers,
		Connections: e.Connections}
	over := func(value func(entry) float64) (v []float64) {
		for _, e := range rows {
			v = append(v, value(e))
		}
		return v
	}
	per := func(value func(entry) float64) float64 {
		return report.Median(over(func(e entry) float64 { return value(e) / max(float64(e.Bytes)/(1<<30), 1e-9) }))
	}
	p.Spread = report.SpreadOf(over(func(e entry) float64 { return e.Throughput }))
	p.CPU = per(func(e entry) float64 { return e.CPU.Total })
	p.Apps = per(func(e entry) float64 {
		return e.CPU.Client.ProcessUser + e.CPU.Client.ProcessSystem + e.CPU.Server.ProcessUser +
			e.CPU.Server.ProcessSystem
	})
	p.Client = shardThreads(rows, "client", per)
	p.Server = shardThreads(rows, "server", per)
	return p
}

// shardThreads returns the processor time of a host's shards, each, and of their receivers, if there are any.
func shardThreads(rows []entry, host string, per func(func(entry) float64) float64) (cpu []float64) {
	for receivers := range min(2, 1+rows[0].Receivers) {
		for i, s := range rows[0].ShardLoad {
			if s.Host != host {
				continue
			}
			cpu = append(cpu, per(func(e entry) float64 {
				switch {
				case i >= len(e.ShardLoad):
					return 0
				case receivers > 0:
					return e.ShardLoad[i].ReceiversCPU
				}
				return e.ShardLoad[i].CPU
			}))
		}
	}
	return cpu
}

// shardPanels makes a panel for each test, a group for each number of connections, a bar for each number of shards.
func shardPanels(rows []entry, ylabel string, bar func(p ShardPoint) Bar) (panels []Panel) {
	for _, p := range shardPoints(rows) {
		title := p.Test + " of " + report.Bytes(p.Size)
		i := slices.IndexFunc(panels, func(q Panel) bool { return q.Title == title })
		if i < 0 {
			i, panels = len(panels), append(panels, Panel{Title: title, XLabel: "connections", YLabel: ylabel})
		}
		q, name := &panels[i], fmt.Sprint(p.Connections)
		g := slices.Index(q.Names, name)
		if g < 0 {
			g, q.Names, q.Bars = len(q.Names), append(q.Names, name), append(q.Bars, nil)
		}
		q.Bars[g] = append(q.Bars[g], bar(p))
	}
	return panels
}

// shardScaling draws throughput by numbers of shards and connections.
func shardScaling(rows []entry) Figure {
	f := Figure{ID: "shards", Title: "Several cores",
		Caption: "Throughput of connections between as many pairs of processes, with one and with several threads " +
			"serving the links; medians, the whiskers are the slowest and the fastest round."}
	var st styles
	f.Panels = shardPanels(rows, "throughput (Gbit/s)", func(p ShardPoint) Bar {
		const bits = 8 / 1e9
		return Bar{
			Parts:  []Part{{Value: p.Median * bits, Color: st.of(report.Threads(p.Shards, p.Receivers))}},
			Label:  significant(p.Median * bits),
			Spread: [2]float64{p.Min * bits, p.Max * bits},
		}
	})
	f.Legend = Boxes(st)
	return f.trim()
}

// shardCPU draws where the processor time went.
func shardCPU(rows []entry) Figure {
	f := Figure{ID: "shards-cpu", Title: "Several cores: processor time",
		Caption: "Processor time per GiB of payload: of each thread that serves links, and of the applications. One " +
			"bar for each set-up, from left to right as in the figure of throughput."}
	var st styles
	f.Panels = shardPanels(rows, "CPU (seconds per GiB)", func(p ShardPoint) Bar {
		var b Bar
		for end, cpu := range [][]float64{p.Client, p.Server} {
			for i, v := range cpu {
				name := []string{"client, ", "server, "}[end] + p.thread(i)
				b.Parts = append(b.Parts, Part{Value: v, Color: st.of(name)})
			}
		}
		b.Parts = append(b.Parts, Part{Value: p.Apps, Color: st.of("applications")})
		return b
	})
	f.Legend = Boxes(st)
	return f.trim()
}

// thread names entry i of Client and Server.
func (p *ShardPoint) thread(i int) string {
	if i < p.Shards {
		return fmt.Sprintf("shard %d", i)
	}
	return fmt.Sprintf("receivers of shard %d", i-p.Shards)
}

// Boxes explain the parts of bars, in the order of their colours.
func Boxes(labels []string) []Entry {
	l := legend(labels)
	for i := range l {
		l[i].Bar = true
	}
	return l
}
