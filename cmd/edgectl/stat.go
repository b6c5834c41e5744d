package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"multiedge/internal/inspect"
)

type statCmd struct {
	Interval *time.Duration `short:"i" placeholder:"SECONDS" help:"Interval in seconds, or with a unit, such as 500ms: print rates per second, one line for each interval. Without it, print one line of totals since the daemon's start."`
	Count    int            `short:"n" placeholder:"COUNT" help:"End after this number of intervals (default: when interrupted)."`
	Link     string         `short:"l" placeholder:"NAME" predictor:"link" help:"Show this link instead of the whole daemon; all: each link."`
}

// Run prints totals, or the differences of samples divided by the time between them.
func (c *statCmd) Run(g *globals) error {
	before, err := c.sample(g)
	if err != nil {
		return err
	}
	p := &statPrinter{g: g, links: c.Link != "", totals: c.Interval == nil, terminal: isTerminal(g.out)}
	if p.totals {
		return p.print(totalsOf(before))
	}
	for n := 0; c.Count == 0 || n < c.Count; {
		g.pause(*c.Interval)
		now, err := c.sample(g)
		if err != nil {
			return gone(err)
		}
		r := ratesOf(now, before)
		if err := p.print(r); err != nil {
			return err
		}
		if !r.Restarted {
			n++
		}
		before = now
	}
	return nil
}

// Validate is called before Run.
func (c *statCmd) Validate() error {
	switch {
	case c.Count < 0:
		return fmt.Errorf("--count %d: must be at least 1; without it the lines go on until interrupted", c.Count)
	case c.Count > 0 && c.Interval == nil:
		return fmt.Errorf("--count needs an interval: edgectl stat -i 1 -n %d", c.Count)
	case c.Interval != nil:
		return checkInterval(*c.Interval)
	}
	return nil
}

func (c *statCmd) sample(g *globals) (*sample, error) {
	s, err := g.sample()
	if err != nil {
		return nil, err
	}
	return s, s.only(c.Link)
}

// statReport is what stat prints with -j, one a line. Either Totals or Rates is there, or neither if the counters began
// anew.
type statReport struct {
	Schema      int            `json:"schema"`
	Name        string         `json:"name"`
	Epoch       string         `json:"epoch"`
	Uptime      float64        `json:"uptime_seconds"`
	Interval    float64        `json:"interval_seconds"` // 0 with totals
	Restarted   bool           `json:"restarted"`        // since the line before
	Totals      inspect.Counts `json:"totals,omitempty"` // since the daemon's start
	Rates       rates          `json:"rates,omitempty"`  // per second
	PinnedBytes uint64         `json:"pinned_bytes"`
	Connections int            `json:"connections"`
	Links       []linkReport   `json:"links"`
}

type linkReport struct {
	Name      string         `json:"name"`
	Up        bool           `json:"up"`
	Restarted bool           `json:"restarted"` // the link came since the line before, or its counters began anew
	Totals    inspect.Counts `json:"totals,omitempty"`
	Rates     rates          `json:"rates,omitempty"`
}

func reportOf(s *sample) *statReport {
	return &statReport{
		Schema: inspect.StatusSchema, Name: s.status.Name, Epoch: s.status.Epoch, Uptime: s.status.UptimeSeconds,
		PinnedBytes: s.status.PinnedBytes, Connections: s.status.Connections, Links: []linkReport{},
	}
}

func totalsOf(s *sample) *statReport {
	r := reportOf(s)
	r.Totals = s.status.Counters
	for i := range s.links {
		l := &s.links[i]
		r.Links = append(r.Links, linkReport{Name: l.Name, Up: l.Up, Totals: linkCounts(l)})
	}
	return r
}

// ratesOf compares two samples. Those of different runs of the daemon cannot be compared.
func ratesOf(now, before *sample) *statReport {
	r := reportOf(now)
	if r.Restarted = now.restartedSince(before); !r.Restarted {
		r.Interval = now.secondsSince(before)
		r.Rates = perSecond(now.status.Counters, before.status.Counters, r.Interval)
		r.Restarted = r.Rates == nil
	}
	for i := range now.links {
		l := &now.links[i]
		lr := linkReport{Name: l.Name, Up: l.Up, Restarted: true}
		for j := range before.links {
			if old := &before.links[j]; old.Name == l.Name && !r.Restarted {
				lr.Rates = perSecond(linkCounts(l), linkCounts(old), r.Interval)
				lr.Restarted = lr.Rates == nil
			}
		}
		r.Links = append(r.Links, lr)
	}
	return r
}

// column shows the sum of some counters; bytes as bits per second, or as bytes where they are totals.
type column struct {
	head  string
	bytes bool
	words []string
}

func columns(heads ...string) (list []column) {
	for _, h := range heads {
		words := strings.Fields(h)
		list = append(list, column{words[0], strings.HasPrefix(words[1], "bytes_"), words[1:]})
	}
	return list
}

// Requests without a cookie are not counted as rejected: the first of every honest peer is one.
var (
	traffic = columns("IN bytes_received", "OUT bytes_sent", "FRAMES-IN frames_received",
		"FRAMES-OUT frames_sent")
	trouble = columns("RETRANS frames_retransmitted", "LOST frames_lost", "DUP frames_duplicated",
		"REORDER frames_reordered")
	daemonColumns = slices.Concat(traffic, columns("OPS ops_completed", "APPLIED ops_applied"), trouble, columns(
		"REJECTED rejected_malformed rejected_header_sum rejected_payload_sum rejected_version rejected_auth "+
			"rejected_no_room", "ACKS acks_explicit"))
	linkColumns = slices.Concat(traffic, trouble, columns("DROPPED kernel_dropped", "NO-ROOM kernel_no_room",
		"DISCARDED send_discards"))
)

// headingEvery is after how many lines a terminal is shown the heading again.
const headingEvery = 20

// statPrinter prints reports as lines of columns, or as JSON.
type statPrinter struct {
	g        *globals
	links    bool // lines are of links
	totals   bool
	terminal bool
	lines    int
}

func (p *statPrinter) print(r *statReport) error {
	if p.g.JSON {
		return json.NewEncoder(p.g.out).Encode(r)
	}
	if r.Restarted {
		return p.note("the daemon was restarted %s ago: its counters begin anew", seconds(r.Uptime))
	}
	var lines [][]string
	if !p.links {
		lines = append(lines, append(p.cells(daemonColumns, r.Totals, r.Rates), bytesText(r.PinnedBytes),
			fmt.Sprint(r.Connections)))
	}
	for _, l := range r.Links {
		switch {
		case !p.links:
		case l.Restarted:
			if err := p.note("link %s: its counters begin here", l.Name); err != nil {
				return err
			}
		default:
			lines = append(lines, append([]string{l.Name}, p.cells(linkColumns, l.Totals, l.Rates)...))
		}
	}
	if p.totals {
		return p.table(lines)
	}
	return p.rows(lines)
}

func (p *statPrinter) cells(cols []column, totals inspect.Counts, r rates) (cells []string) {
	for _, c := range cols {
		var total uint64
		var rate float64
		for _, word := range c.words {
			total += totals[word]
			rate += r[word]
		}
		switch {
		case p.totals && c.bytes:
			cells = append(cells, bytesText(total))
		case p.totals:
			cells = append(cells, fmt.Sprint(total))
		case c.bytes:
			cells = append(cells, bitsText(rate))
		default:
			cells = append(cells, rateText(rate))
		}
	}
	return cells
}

// table prints all there is to print: columns are as wide as they need be.
func (p *statPrinter) table(lines [][]string) error {
	var rows [][]any
	for _, cells := range lines {
		var row []any
		for _, cell := range cells {
			row = append(row, cell)
		}
		rows = append(rows, row)
	}
	return table(p.g.out, strings.Join(p.heading(), " "), rows)
}

// rows prints lines that others follow, and the heading over them when it is due.
func (p *statPrinter) rows(lines [][]string) error {
	var b strings.Builder
	heads := p.heading()
	for _, cells := range lines {
		if p.lines == 0 || p.terminal && p.lines%headingEvery == 0 {
			p.row(&b, heads, heads)
		}
		p.lines++
		p.row(&b, heads, cells)
	}
	_, err := io.WriteString(p.g.out, b.String())
	return err
}

// row aligns cells to the right; a link's name to the left, with as much room as an interface's name can need.
func (p *statPrinter) row(b *strings.Builder, heads, cells []string) {
	for i, cell := range cells {
		if i == 0 && p.links {
			fmt.Fprintf(b, "%-15s", cell)
			continue
		}
		fmt.Fprintf(b, "%*s", max(len(heads[i])+1, 8), cell)
	}
	b.WriteByte('\n')
}

func (p *statPrinter) heading() (heads []string) {
	cols := daemonColumns
	if p.links {
		cols = linkColumns
		heads = []string{"LINK"}
	}
	for _, c := range cols {
		if c.bytes && !p.totals {
			c.head += "-BIT/S"
		}
		heads = append(heads, c.head)
	}
	if !p.links {
		heads = append(heads, "  PINNED", "CONNS") // with room for 999.9MiB
	}
	return heads
}

// note prints a line that is not one of figures.
func (p *statPrinter) note(format string, args ...any) error {
	_, err := fmt.Fprintf(p.g.out, "-- "+format+"\n", args...)
	return err
}
