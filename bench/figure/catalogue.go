package figure

import (
	"io"
	"path/filepath"
	"slices"
	"strings"

	"multiedge/bench/report"
)

// Drawn says which figure of which paper a figure is.
type Drawn struct {
	ID      string // of the figure, or how the IDs of several begin
	Paper   string // "MultiEdge 3.1"; empty: of no paper
	What    string
	Command string // that measures it
	Here    bool   // it is among what was built
	At      string // the ID of the first of those that were
}

// Catalogue lists every figure that Build draws, in its order. Exhibits lists the papers' figures and tables.
func Catalogue() []Drawn {
	const (
		demo, base = "edgebench demo", "edgebench one-way, two-way, ping-pong, read --lab --lab-links 1 and 2 --cpu"
		zero       = "edgebench zero-copy --lab --cpu"
	)
	return []Drawn{
		{ID: "beside-throughput", Paper: "MultiEdge 3.1, right",
			What: "throughput over message size, TCP and raw packet sockets beside it", Command: demo},
		{ID: "beside-latency", Paper: "MultiEdge 3.1, left",
			What: "latency over message size, TCP and raw packet sockets beside it", Command: demo},
		{ID: "beside-percentiles", What: "the tail of ping-pong", Command: demo},
		{ID: "beside-cpu", Paper: "MultiEdge 3.2", What: "what processor time goes to", Command: demo},
		{ID: "beside-cost", What: "processor time of a GiB, TCP and raw packet sockets beside it", Command: demo},
		{ID: "throughput", Paper: "MultiEdge 3.1, right", What: "throughput over message size", Command: base},
		{ID: "latency", Paper: "MultiEdge 3.1, left", What: "latency over message size", Command: base},
		{ID: "percentiles", What: "the tail of ping-pong", Command: base},
		{ID: "cpu", Paper: "MultiEdge 3.2", What: "what processor time goes to", Command: base},
		{ID: "rate", What: "small operations per second", Command: "edgebench rate --lab -s 8,64,512"},
		{ID: "polling", Paper: "MultiEdge 3.3, upper", What: "blocking, adaptive and busy waiting: throughput, latency",
			Command: "edgebench polling --lab"},
		{ID: "polling-cpu", Paper: "MultiEdge 3.3, lower", What: "the same: processor time",
			Command: "edgebench polling --lab"},
		{ID: "schedulers", Paper: "MultiEdge 3.5",
			What:    "schedulers over unequal links, 4:1:1:1:1 and the paper's 10:1:1:1:1",
			Command: "edgebench schedulers --lab"},
		{ID: "links", What: "throughput over the number of links", Command: "edgebench links --lab"},
		{ID: "connections", What: "throughput over the number of connections",
			Command: "edgebench one-way, rate --lab --conns 1,10,100,1000"},
		{ID: "shards", What: "throughput with several threads serving the links", Command: "edgebench shards --lab"},
		{ID: "shards-cpu", What: "the same: processor time", Command: "edgebench shards --lab"},
		{ID: "zero-copy", Paper: "MultiEdge 3.8, upper; 3.4, left (nocp)",
			What: "copies at both ends, at one, exchange of pages, none: throughput", Command: zero},
		{ID: "zero-copy-cpu", Paper: "MultiEdge 3.8, lower; 3.4, right (nocp)", What: "the same: processor time",
			Command: zero},
		{ID: "zero-copy-latency", Paper: "MultiEdge 3.9", What: "the same: latency", Command: zero},
		{ID: "alignment", Paper: "MultiEdge 3.11", What: "alignment of the destination", Command: zero},
		{ID: "exchange", Paper: "MultiEdge 3.6 (copy), 3.7 (remapping)",
			What: "the time to copy a run of pages, and to exchange it", Command: zero},
		{ID: "compare-", What: "edge against raw packet sockets, TCP and what is installed",
			Command: "edgebench compare --lab"},
		{ID: "papers", What: "the numbers that the MultiEdge paper prints, and these", Command: base + "; polling, " +
			"schedulers, links, zero-copy --lab"},
	}
}

// draws reports whether d stands for the figure of that ID.
func (d *Drawn) draws(id string) bool {
	return d.ID == id || strings.HasSuffix(d.ID, "-") && strings.HasPrefix(id, d.ID)
}

// Found returns the catalogue with what the sources have data for marked.
func Found(sources []Source) []Drawn {
	list := Catalogue()
	figs := page{Claims: Claims(sources)}.figures(sources)
	for i := range list {
		if n := slices.IndexFunc(figs, func(f Figure) bool { return list[i].draws(f.ID) }); n >= 0 {
			list[i].Here, list[i].At = true, figs[n].ID
		}
	}
	return list
}

// WriteIndex is WriteDir with a list of all figures, and of what becomes of the papers', on the page, and what the
// MultiEdge paper says held against the measurements: on the page and in claims.json. Studies are those whose pages are
// in directories of their names beside it.
func WriteIndex(dir, title string, sources []Source, studies []string) ([]string, error) {
	claims := Claims(sources)
	names, err := page{Title: title, Index: Found(sources), Exhibits: Exhibits(), Claims: claims,
		Studies: studies}.writeDir(dir, sources)
	if err != nil {
		return names, err
	}
	name := filepath.Join(dir, "claims.json")
	return append(names, name), save(name, func(w io.Writer) error { return report.Indented(w, claims) })
}
