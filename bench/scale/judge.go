package scale

import (
	"fmt"
	"io"
	"slices"
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
	for _, what := range []string{"closed", "cycled", "closed again"} {
		m := at[what]
		res.compare(what+": the client's daemon", idle.Client.Daemon, m.Client.Daemon)
		res.compare(what+": the server's daemon", idle.Server.Daemon, m.Server.Daemon)
		res.compare(what+": the client", idle.Client.Application, m.Client.Application)
		res.compare(what+": the server", idle.Server.Application, m.Server.Application)
	}
	for _, what := range []string{"rested", "cycled", "open again", "closed again"} {
		m := at[what]
		res.heap(what+": the client's daemon", open.Client.Daemon, m.Client.Daemon)
		res.heap(what+": the server's daemon", open.Server.Daemon, m.Server.Daemon)
	}
	for _, what := range []string{"cycled", "open again", "closed again"} {
		m := at[what]
		res.resident(what+": the client's daemon", open.Client.Daemon, m.Client.Daemon)
		res.resident(what+": the server's daemon", open.Server.Daemon, m.Server.Daemon)
		res.resident(what+": the client", open.Client.Application, m.Client.Application)
		res.resident(what+": the server", open.Server.Application, m.Server.Application)
	}
}

func (res *Result) perConn(idle, m *Moment) PerConn {
	n := float64(res.Conns)
	return PerConn{
		ClientDaemon: growth(idle.Client.Daemon, m.Client.Daemon) / n, ServerDaemon: growth(idle.Server.Daemon,
			m.Server.Daemon) / n,
		ClientApplication: growth(idle.Client.Application, m.Client.Application) / n,
		ServerApplication: growth(idle.Server.Application, m.Server.Application) / n,
	}
}

// Left is all that was not given back.
func (res *Result) Left() []string { return slices.Concat(res.Leaks, res.Grown) }

func growth(from, to Usage) float64 { return float64(to.Resident) - float64(from.Resident) }

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

func mib(n uint64) float64 { return float64(n) / (1 << 20) }

// Print writes a table.
func (res *Result) Print(w io.Writer) {
	fmt.Fprintf(w, "%d connections between two nodes, %d cycles, %d at once\n\n", res.Conns, res.Cycles, res.Workers)
	fmt.Fprintf(w, "%-14s %34s   %34s\n", "", "client's daemon", "server's daemon")
	fmt.Fprintf(w, "%-14s %10s %8s %6s %7s   %10s %8s %6s %7s   %10s %10s\n", "", "resident", "heap", "conns",
		"gorout.", "resident", "heap", "conns", "gorout.", "client", "server")
	for _, m := range res.Moments {
		c, s := m.Client.Daemon, m.Server.Daemon
		fmt.Fprintf(w, "%-14s %6.1f MiB %4.1f MiB %6d %7d   %6.1f MiB %4.1f MiB %6d %7d   %6.1f MiB %6.1f MiB\n",
			m.What, mib(c.Resident), mib(c.Heap), c.Connections, c.Goroutines,
			mib(s.Resident), mib(s.Heap), s.Connections, s.Goroutines, mib(m.Client.Application.Resident),
			mib(m.Server.Application.Resident))
	}
	fmt.Fprintln(w)
	for _, l := range []struct {
		what string
		p    PerConn
	}{{"after one operation", res.PerConnection}, {fmt.Sprintf("after %d at once", usedOps), res.Used},
		{"at rest again", res.Rested}} {
		fmt.Fprintf(w, "per connection, %s: %.0f bytes in the client's daemon, %.0f in the server's; %.0f in the "+
			"client, %.0f in the server\n", l.what,
			l.p.ClientDaemon, l.p.ServerDaemon, l.p.ClientApplication, l.p.ServerApplication)
	}
	fmt.Fprintf(w, "opened in %.2f s (%.0f/s), closed in %.2f s; %.0f cycles/s\n", res.OpenSeconds,
		float64(res.Conns)/res.OpenSeconds, res.CloseSeconds, res.CyclesPerSec)
	left := res.Left()
	for _, l := range left {
		fmt.Fprintf(w, "LEFT BEHIND %s\n", l)
	}
	if len(left) == 0 {
		fmt.Fprintln(w, "everything was given back")
	}
}
