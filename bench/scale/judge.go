package scale

import (
	"fmt"
	"slices"

	"multiedge/bench/report"
	"multiedge/bench/xlate"
)

// slack is by how much resident memory may be above that of the first time all connections were open: garbage
// collectors breathe.
const slack = 1.25

// judge divides memory by connections and compares the end with the beginning.
func (res *Result) judge() {
	at := map[string]*Moment{}
	for i := range res.Moments {
		at[res.Moments[i].What] = &res.Moments[i]
	}
	idle, open := at["warm"], at["open"]
	res.PerConnection, res.Used, res.Rested = res.perConn(idle, open), res.perConn(idle, at["used"]),
		res.perConn(idle, at["rested"])
	for i := range res.Moments {
		m := &res.Moments[i]
		what := m.What
		whole := what == "closed" || what == "cycled" || what == "closed again" // or as many connections as at first
		later := whole && what != "closed" || what == "open again"
		for i, p := range m.processes() {
			who := fmt.Sprintf("%s: %s", what, processNames[i])
			if whole {
				res.compare(who, idle.processes()[i], p)
			}
			if daemon := i < 2; daemon && (later || what == "rested") {
				res.heap(who, open.processes()[i], p)
			}
			if later {
				res.resident(who, open.processes()[i], p)
			}
		}
	}
}

// processNames are the names of what processes returns.
var processNames = []string{"the client's daemon", "the server's daemon", "the client", "the server"}

func (m *Moment) processes() []Usage {
	return []Usage{m.Client.Daemon, m.Server.Daemon, m.Client.Application, m.Server.Application}
}

func (res *Result) perConn(idle, m *Moment) (p PerConn) {
	was := idle.processes()
	for i, to := range []*float64{&p.ClientDaemon, &p.ServerDaemon, &p.ClientApplication, &p.ServerApplication} {
		*to = (float64(m.processes()[i].Resident) - float64(was[i].Resident)) / float64(res.Conns)
	}
	return p
}

// Left is all that was not given back.
func (res *Result) Left() []string { return slices.Concat(res.Leaks, res.Grown) }

// compare looks for what is counted and was not given back.
func (res *Result) compare(who string, before, after Usage) {
	for _, c := range []struct {
		what          string
		before, after int
	}{
		{"goroutines", before.Goroutines, after.Goroutines}, {"descriptors", before.Descriptors, after.Descriptors},
		{"connections", before.Connections, after.Connections},
		{"regions", before.Regions, after.Regions}, {"exports", before.Exports, after.Exports},
		{"pinned bytes", int(before.Pinned), int(after.Pinned)},
	} {
		few := 0
		if c.what == "goroutines" || c.what == "descriptors" {
			few = 4 // the runtime keeps some for itself
		}
		if c.after > c.before+few {
			res.Leaks = append(res.Leaks, fmt.Sprintf("%s has %d %s, before it had %d", who, c.after, c.what, c.before))
		}
	}
}

// heapSlack is for garbage of the daemons, which they collect when there is a quarter more, or, of connections that
// rest, a mebibyte.
const heapSlack = 4 << 20

// heap looks for objects that are kept: of connections that rest no more than of those that carried one operation.
func (res *Result) heap(who string, first, now Usage) {
	if now.Heap > first.Heap+heapSlack {
		res.Leaks = append(res.Leaks, fmt.Sprintf("%s has %.1f MiB of objects, with all connections open for the "+
			"first time it had %.1f", who, mib(now.Heap), mib(first.Heap)))
	}
}

func (res *Result) resident(who string, first, now Usage) {
	if float64(now.Resident) > slack*float64(first.Resident) {
		res.Grown = append(res.Grown, fmt.Sprintf("%s has %.1f MiB in memory, with all connections open for the "+
			"first time it had %.1f", who, mib(now.Resident), mib(first.Resident)))
	}
}

func sorted(v []float64) []float64 { return slices.Sorted(slices.Values(v)) }

// at returns the value of sorted v that a share of them does not exceed.
func at(v []float64, share float64) float64 { return v[int(share*float64(len(v)-1))] }

func mib(n uint64) float64 { return float64(n) / (1 << 20) }

// Study shows a result, as other studies are.
func (res *Result) Study(head report.Head) *xlate.Study {
	s := &xlate.Study{Head: head, Title: "Very many connections", Scale: 1, Seed: 1,
		Origin: "Measured on this machine, of resident memory and of what daemons count. No paper has numbers for it."}
	held := xlate.Table{ID: "held", Title: fmt.Sprintf("%d connections between two nodes, %d cycles, %d at once: what "+
		"is held", res.Conns, res.Cycles, res.Workers), Columns: []string{"moment", "client's daemon, MiB", "heap, MiB",
		"connections", "goroutines", "server's daemon, MiB", "heap, MiB", "connections", "goroutines", "client, MiB",
		"server, MiB"}}
	for _, m := range res.Moments {
		daemon := func(d *Usage) []xlate.Cell {
			return xlate.Cells("%.1f %.1f %.0f %.0f", mib(d.Resident), mib(d.Heap), float64(d.Connections),
				float64(d.Goroutines))
		}
		held.Add(m.What, slices.Concat(daemon(&m.Client.Daemon), daemon(&m.Server.Daemon),
			xlate.Cells("%.1f", mib(m.Client.Application.Resident), mib(m.Server.Application.Resident)))...)
	}
	each := xlate.Table{ID: "connection", Title: "Bytes of memory for each connection", Columns: []string{"when",
		"client's daemon", "server's daemon", "client", "server"}}
	for _, l := range []struct {
		what string
		p    PerConn
	}{{"after one operation", res.PerConnection}, {fmt.Sprintf("after %d at once", usedOps), res.Used},
		{"at rest again", res.Rested}} {
		each.Add(l.what, xlate.Cells("%.0f", l.p.ClientDaemon, l.p.ServerDaemon, l.p.ClientApplication,
			l.p.ServerApplication)...)
	}
	times := xlate.Table{ID: "times", Title: "How long it took", Columns: []string{"what", "seconds", "a second"}}
	times.Add("opened", xlate.Cells("%.2f", res.OpenSeconds, float64(res.Conns)/res.OpenSeconds)...)
	times.Add("closed", xlate.Cells("%.2f", res.CloseSeconds, float64(res.Conns)/res.CloseSeconds)...)
	times.Add("cycles", xlate.Cells("%.2f", res.CycleSeconds, res.CyclesPerSec)...)
	back := xlate.Table{ID: "back", Title: "A write of one connection at a time, us", Columns: []string{"when",
		"median", "99th percentile", "longest"}}
	first, second := sorted(res.First), sorted(res.Second)
	for _, l := range []struct {
		what string
		us   []float64
	}{{"after its rest", first}, {"at once again", second}} {
		back.Add(l.what, xlate.Cells("%.1f", at(l.us, 0.5), at(l.us, 0.99), at(l.us, 1))...)
	}
	s.Tables = []xlate.Table{held, each, times, back}
	s.AddGoal("back", "A connection at rest comes back without a pause: its first write takes at most twice as long "+
		"as the next.", at(first, 0.5) <= 2*at(second, 0.5), "slow", "medians: %.1f and %.1f us", at(first, 0.5),
		at(second, 0.5))
	s.AddGoal("given-back", "Everything is given back.", len(res.Left()) == 0, "a leak", "left behind: %q", res.Left())
	return s
}
