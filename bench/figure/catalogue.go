package figure

import (
	"slices"
	"strings"
)

// Drawn says which figure of which paper a figure is.
type Drawn struct {
	ID      string // of the figure, or how the IDs of several begin; empty: nothing draws it
	Paper   string // "MultiEdge 3.1"; empty: of no paper
	What    string
	Command string // that measures it
	Why     string // why nothing draws it
	// Elsewhere says that Command draws or prints it itself, on a page of its own; ID is empty
	Elsewhere bool
	Here      bool   // it is among what was built
	At        string // the ID of the first of those that were
}

// Catalogue lists every figure that Build draws, in its order; then the figures and tables of the founding paper that
// nothing draws, with the reason; then those of the other papers, with the command that draws them, or the reason.
// MultiEdge is Passas 2008; its figures 2.1 to 2.4 are diagrams. UTLB is Chen 1998, DHL Azimi and Bilas, VMMC Chen
// 1999, EDT Won; their diagrams are left out.
func Catalogue() []Drawn {
	const (
		demo, base = "edgebench demo", "edgebench one-way, two-way, ping-pong --lab --lab-links 1 and 2 --cpu"
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
		{Paper: "MultiEdge 3.7, pinning", What: "the time to pin pages",
			Why: "regions are pinned once, at registration, on no path of data"},
		{Paper: "MultiEdge 3.10", What: "ways to invalidate the TLB",
			Why: "they are the kernel's to choose, a program without a module has one"},
		{Paper: "MultiEdge table 3.1", What: "throughput of reads and writes of memory, by processor and node",
			Why: "the paper's hosts have memory on each of two processors; edgebench machine has copies on this one"},
		{Paper: "MultiEdge table 3.2", What: "the cost of an ioctl, a kernel buffer, pinning, remapping",
			Why: "kernel buffers cannot be had without a module; edgebench machine has the system call, edgebench " +
				"utlb pinning (VMMC table 2), the figure exchange remapping"},
		{Paper: "UTLB tables 3 to 8, figures 7, 8", What: "address translation under traces", Command: "edgestudy utlb",
			Elsewhere: true},
		{Paper: "UTLB tables 1, 2", What: "the cost of a check, of pinning, of a miss on the NI",
			Why: "the project draws no table in the paper's form; edgestudy ondemand --only costs has checks and " +
				"misses, edgestudy utlb pinning (VMMC table 2)"},
		{Paper: "DHL figures 3, 5, 6, 7", What: "lookup caches under traces (of figure 3 addresses alone)",
			Command: "edgestudy dhl", Elsewhere: true},
		{Paper: "DHL figure 4", What: "ping-pong latency and bandwidth over the share of misses",
			Why: "edgestudy ondemand --only shares (misses = drop) has bandwidth at one size, without the " +
				"paper's axes"},
		{Paper: "DHL, distribution of miss times", What: "how long a miss takes", Why: "not measured"},
		{Paper: "VMMC tables 1 to 4", What: "the kernel's calls, pinning, the UTLB at the paper's miss costs",
			Command: "edgestudy utlb", Elsewhere: true},
		{Paper: "VMMC figures 5 to 8", What: "latency and bandwidth of sends and fetches",
			Command: "edgebench ping-pong, one-way, read", Elsewhere: true},
		{Paper: "VMMC figure 9", What: "the receiver's overhead of a notification", Command: "edgestudy notify",
			Elsewhere: true},
		{Paper: "EDT figures 8, 9", What: "latency of messages that travel while they are composed",
			Command: "edgestudy eager", Elsewhere: true},
	}
}

// draws reports whether d stands for the figure of that ID.
func (d *Drawn) draws(id string) bool {
	return d.ID == id || strings.HasSuffix(d.ID, "-") && strings.HasPrefix(id, d.ID)
}

// Found returns the catalogue with what the sources have data for marked.
func Found(sources []Source) []Drawn {
	list := Catalogue()
	figs := Build(sources)
	for i := range list {
		if n := slices.IndexFunc(figs, func(f Figure) bool { return list[i].draws(f.ID) }); n >= 0 {
			list[i].Here, list[i].At = true, figs[n].ID
		}
	}
	return list
}

// WriteIndex is WriteDir with a list of all figures, and of which paper they are, on the page.
func WriteIndex(dir, title string, sources []Source) ([]string, error) {
	return page{Title: title, Index: Found(sources)}.writeDir(dir, sources)
}
