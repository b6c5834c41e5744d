package main

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
)

const unlimited = math.MaxInt

// focus says which tables are shown.
type focus int

const (
	allTables focus = iota
	onlyLinks
	onlyPeers
	onlyConns
)

func (f focus) next() focus { return (f + 1) % (onlyConns + 1) }

// String is said of the key that leads there.
func (f focus) String() string {
	return [...]string{"all tables", "only links", "only peers", "only connections"}[f]
}

// text is the report in as many lines as there are, connections last, since they are many.
func (r *topReport) text(height int, only focus, order int) string {
	const head, around = 3, 2 // lines above the tables; a heading and a line below for each
	most := height - head - around
	if only == allTables {
		most = (height + 1 - head - 3*around) / 3 // nothing follows the last
	}
	ordered := *r
	ordered.Conns = slices.Clone(r.Conns)
	orderConns(ordered.Conns, order)
	var b strings.Builder
	ordered.write(&b, max(most, 2), only)
	return b.String()
}

// write writes at most so many lines of each table but the last, which is left to be cut where the screen ends.
func (r *topReport) write(w io.Writer, most int, only focus) {
	fmt.Fprintf(w, "%s  up %s  %s  %d connections  %s pinned\n", r.Name, seconds(r.Uptime), r.Security, r.Connections,
		bytesText(r.PinnedBytes))
	fmt.Fprintf(w, "in %sbit/s  out %sbit/s  operations %s/s here, %s/s of peers  retransmitted %s/s  lost %s/s\n\n",
		bitsText(r.Rates["bytes_received"]), bitsText(r.Rates["bytes_sent"]),
		rateText(r.Rates["ops_completed"]), rateText(r.Rates["ops_applied"]), rateText(r.Rates["frames_retransmitted"]),
		rateText(r.Rates["frames_lost"]))
	if only == allTables || only == onlyLinks {
		r.writeLinks(w, most)
	}
	if only == allTables || only == onlyPeers {
		r.writePeers(w, most)
	}
	if only == allTables || only == onlyConns {
		r.writeConns(w)
	}
}

func (r *topReport) writeLinks(w io.Writer, most int) {
	var rows [][]any
	for _, l := range r.Links {
		row := []any{l.Name, yesNo(l.Up, "up", "down"), bitsText(l.Rates["bytes_received"]),
			bitsText(l.Rates["bytes_sent"])}
		for _, word := range strings.Fields("frames_received frames_sent frames_retransmitted frames_lost " +
			"kernel_dropped") {
			row = append(row, rateText(l.Rates[word]))
		}
		rows = append(rows, row)
	}
	few(w, "LINK STATE IN-BIT/S OUT-BIT/S FRAMES-IN FRAMES-OUT RETRANS LOST DROPPED", rows, most)
}

func (r *topReport) writePeers(w io.Writer, most int) {
	var rows [][]any
	for _, p := range r.Peers {
		rows = append(rows, []any{
			p.Name, p.State, p.Connections, bitsText(p.Rates["bytes"]), rateText(p.Rates["frames"]),
			rateText(p.Rates["retransmitted"]), rateText(p.Rates["lost"]), p.InFlight, micros(p.SRTT),
		})
	}
	few(w, "PEER STATE CONNS OUT-BIT/S FRAMES-OUT RETRANS LOST IN-FLIGHT SRTT", rows, most)
}

func (r *topReport) writeConns(w io.Writer) {
	if r.Connections > mostConns && len(r.Conns) == 0 {
		fmt.Fprintf(w, "more than %d connections are not listed here: edgectl conn\n", mostConns)
		return
	}
	var rows [][]any
	for _, c := range r.Conns {
		rows = append(rows, []any{c.ID, c.PID, c.Peer, c.Service, c.State, rateText(c.Operations), c.Outstanding,
			c.Held, c.Unread})
	}
	table(w, "CONN PID PEER SERVICE STATE OPS/S OUTSTANDING HELD UNREAD", rows)
}

// few prints a table of at most so many rows, and an empty line.
func few(w io.Writer, heading string, rows [][]any, most int) {
	left := len(rows) - most
	table(w, heading, rows[:min(most, len(rows))])
	if left > 0 {
		fmt.Fprintf(w, "... and %d more\n", left)
	}
	fmt.Fprintln(w)
}
