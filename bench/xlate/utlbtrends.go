package xlate

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// among counts for how many apps something holds, and names the others.
type among struct {
	yes int
	no  []string
}

func (a *among) count(name string, holds bool) {
	if holds {
		a.yes++
	} else {
		a.no = append(a.no, name)
	}
}

func (a *among) String() string {
	s := fmt.Sprintf("%d of %d", a.yes, a.yes+len(a.no))
	if len(a.no) > 0 {
		s += "; not " + strings.Join(a.no, ", ")
	}
	return s
}

func (a *among) all() bool { return len(a.no) == 0 }

// strided is why a kernel may have misses that no larger cache ends.
const strided = "Pages that lie in a stride, as those of a process of FFT, a page or two of each row, meet in few of " +
	"the sets, whatever the size. The paper's FFT has 0.38 misses for 0.25 first uses."

// utlbTrends says of each thing that the paper's evaluation saw whether it is so here.
func (r *runner) utlbTrends() {
	r.with("table4", func(t *Table) { r.trendUnpins(t, "table4", "table 4", "unlimited memory") }, r.trendSizes,
		r.trendMisses, r.trendCost)
	r.with("table5", func(t *Table) { r.trendUnpins(t, "table5", "table 5", "4 MB for each process") })
	r.with("table7", r.trendPrepin)
	r.with("table8", r.trendOffset, r.trendWays)
	r.with("figure7", r.trendCompulsory)
	r.with("figure8", r.trendPrefetch)
	for _, id := range []string{"vmmc-table3", "vmmc-table4"} {
		r.with(id, func(t *Table) { r.trendHits(t, id) })
	}
}

// get is find for a row and column that are there.
func (t *Table) get(label, column string) float64 {
	v, ok := t.find(label, column)
	if !ok {
		panic("BUG: xlate: no row " + label + " with a column " + column + " in " + t.ID)
	}
	return v
}

func (r *runner) trendUnpins(t *Table, id, where, what string) {
	var n, same among
	for _, a := range r.apps {
		for _, size := range sizeNames() {
			row := a.name + " " + size
			n.count(row, t.get(row, "unpins") <= t.get(row, "unpins, intr")+0.005)
			same.count(row, math.Abs(t.get(row, "NI misses")-t.get(row, "NI misses, intr")) <= 0.015)
		}
	}
	r.trend(id+"-unpins", where, "The UTLB unpins no more than the interrupt mechanism, with "+what+".", n.all(),
		"Who comes back to pages in a cycle that is longer than the limit finds that LRU kept the wrong ones. The "+
			"paper's FFT is such a case, at 16K: 0.40 against 0.39.",
		"%s cells", &n)
	r.trend(id+"-misses", where, "Both mechanisms miss equally often on the network interface, with "+
		""+what+".", same.all(),
		"Unpinning takes a translation out of the cache; the two unpin at different times. The paper has such "+
			"cells too (FFT 0.50 and 0.47).", "%s cells", &same)
}

func (r *runner) trendSizes(t *Table) {
	var falls, compulsory among
	for _, a := range r.apps {
		last, falling := 2.0, true
		for _, size := range sizeNames() {
			v := t.get(a.name+" "+size, "NI misses")
			falling, last = falling && v <= last+0.005, v
		}
		falls.count(a.name, falling)
		row := a.name + " 16K"
		compulsory.count(a.name, t.get(row, "NI misses") < 2*t.get(row, "check misses"))
	}
	r.trend("sizes", "table 4", "A larger cache misses less.", falls.all(),
		"A direct-mapped cache of twice the size puts pages elsewhere: where nearly all fits, chance decides "+
			"which processes' pages meet.", "%s kernels", &falls)
	r.trend("sizes-enough", "table 4", "At 16K entries hardly anything but first uses misses: less than twice the "+
		"check misses.", compulsory.all(),
		strided, "%s kernels", &compulsory)
}

// near is how far a rate may be from the paper's and count as the same.
const near = 0.05

// trendMisses compares our kernels' misses with those of the paper's programs, by number.
func (r *runner) trendMisses(t *Table) {
	for _, size := range []string{"1K", "16K"} {
		var n among
		var both []string
		for _, a := range r.apps {
			v, p, ok := t.both(a.name+" "+size, "NI misses")
			if !ok {
				continue // a kernel that the paper does not have
			}
			n.count(a.name, math.Abs(v-p) <= near)
			both = append(both, fmt.Sprintf("%s %.2f (%.2f)", a.name, v, p))
		}
		if len(both) == 0 {
			continue
		}
		r.trend("misses-"+size, "table 4", "The kernels miss as the paper's programs do, within "+
			fmt.Sprint(near)+", at "+size+" entries.", n.all(),
			"Footprints and orders of use are others (table 3). Water: the paper's tables do not agree, 1,890 pages "+
				"are 0.22 first uses for each of 8,488 lookups in table 3, table 4 has 0.10; ours has 0.24. Barnes: "+
				"bodies are dealt out by number, not by place, so that a process uses its pages once a step, in a "+
				"cycle that fills a small cache. Radix prefetches all of the array that its keys go to. FFT "+
				"transforms once: 3 lookups for each page, the paper's has 4.",
			"%s kernels; ours (the paper's): %s", &n, strings.Join(both, ", "))
	}
}

// trendHits compares VMMC's rates of hits, by number.
func (r *runner) trendHits(t *Table, id string) {
	var n among
	var both []string
	for _, a := range r.apps {
		v, p, ok := t.both(a.name, "hits, %")
		if !ok {
			continue
		}
		n.count(a.name, math.Abs(v-p) <= 100*near)
		both = append(both, fmt.Sprintf("%s %.0f (%.0f)", a.name, v, p))
	}
	if len(both) == 0 {
		return
	}
	r.trend(id+"-hits", strings.Replace(id, "vmmc-table", "VMMC table ", 1), fmt.Sprintf("As many lookups hit as in "+
		"the paper, within %.0f of 100.", 100*near), n.all(), "First uses miss, and are more of the "+
		"lookups here: FFT transforms once, with 3 lookups for each page, and Radix prefetches all of the array "+
		"that its keys go to.",
		"%s kernels; ours (the paper's), %%: %s", &n, strings.Join(both, ", "))
}

// both returns our value and the paper's in a row and column; false if either is missing.
func (t *Table) both(label, column string) (ours, paper float64, ok bool) {
	if c := t.cell(label, column); c.Ours != nil && c.Paper != nil {
		return *c.Ours, *c.Paper, true
	}
	return 0, 0, false
}

func (r *runner) trendCost(t *Table) {
	var n, steady among
	for _, a := range r.apps {
		row := a.name + " 1K"
		n.count(a.name, t.get(row, "cost") <= t.get(row, "cost, intr"))
		u := t.get(row, "cost") - t.get(a.name+" 16K", "cost")
		v := t.get(row, "cost, intr") - t.get(a.name+" 16K", "cost, intr")
		steady.count(a.name, u <= v)
	}
	r.trend("cost-small", "tables 4 and 6", "With a small cache (1K) a lookup costs less with the UTLB.", n.all(),
		"The kernels named communicate so little that 1K entries hold nearly all of it, and the interrupt mechanism "+
			"unpins hardly any: both pay for one pin of each page, and the UTLB for its check besides.", "%s kernels",
		&n)
	r.trend("cost-steady", "§7", "The cost of the UTLB depends less on the size of the cache than that of "+
		"interrupts.", steady.all(), "", "%s kernels", &steady)
}

// trendPrepin has two trends: FFT is the paper's exception.
func (r *runner) trendPrepin(t *Table) {
	var better among
	for _, a := range r.apps {
		if a.name != "fft" {
			better.count(a.name, t.get(a.name, "pin 16") < t.get(a.name, "pin 1"))
		}
	}
	if better.yes+len(better.no) > 0 {
		r.trend("prepin", "table 7", "Pinning 16 pages at a time makes pinning cheaper for all but FFT.", better.all(),
			"Ocean, which the paper did not run, communicates few pages, the borders of its grid, and pays for "+
				"neighbours that are never used.", "%s kernels", &better)
	}
	if !slices.ContainsFunc(r.apps, func(a *app) bool { return a.name == "fft" }) {
		return
	}
	one, sixteen := t.get("fft", "pin 1"), t.get("fft", "pin 16")
	r.trend("prepin-fft", "table 7", "For FFT it is worse by far: its strides leave most of the pages unused, and "+
		"the limit unpins them.", sixteen > one && t.get("fft", "unpin 16") > t.get("fft", "unpin 1"),
		"At this scale the pages that sixteenfold pinning takes stay within 16 MB for each process, so that "+
			"nothing need be unpinned; at scale 1 it is as in the paper.",
		"pinning %.1f -> %.1f us, unpinning %.1f -> %.1f us (paper: 6.1 -> 15.8, 0.1 -> "+
			"93.0)", one, sixteen, t.get("fft", "unpin 1"), t.get("fft", "unpin 16"))
}

func (r *runner) trendOffset(t *Table) {
	var n among
	worst := 0.0
	for _, a := range r.apps {
		for _, size := range sizeNames() {
			with, without := t.get(a.name+" direct", size), t.get(a.name+" direct-nohash", size)
			n.count(a.name+" "+size, with <= without)
			worst = max(worst, without-with)
		}
	}
	r.trend("offset", "table 8", "A process-dependent offset misses less than none.", n.all(),
		"With the whole working set in the cache, where offsets put the spans of pages is chance.", "%s cells; up "+
			"to %.2f fewer for each lookup", &n, worst)
}

func (r *runner) trendWays(t *Table) {
	var n among
	for _, a := range r.apps {
		for _, size := range sizeNames() {
			direct := t.get(a.name+" direct", size)
			n.count(a.name+" "+size, direct <= max(t.get(a.name+" 2-way", size), t.get(a.name+" 4-way", size))+0.05)
		}
	}
	r.trend("ways", "table 8", "With the offset, a direct-mapped cache misses about as rarely as 2 and 4 ways "+
		"(within 0.05).", n.all(),
		"These are caches a little larger than what is in use at a time, where direct mapping still has "+
			"conflicts. Two ways are enough to end them; at the other sizes all are alike.", "%s cells", &n)
}

func (r *runner) trendCompulsory(t *Table) {
	var n among
	for _, a := range r.apps {
		row := a.name + " 16K"
		first := t.get(row, "compulsory")
		n.count(a.name, first > t.get(row, "capacity")+t.get(row, "conflict"))
	}
	r.trend("compulsory", "figure 7", "Compulsory misses are most of those that are left at 16K entries.", n.all(),
		strided+" What is left are conflicts, at every size.", "%s kernels", &n)
}

// regular are the programs that the paper calls regular (§6.5); those that it ran besides are irregular.
var regular = []string{"fft", "lu"}

func (r *runner) trendPrefetch(t *Table) {
	var n, gain, none among
	for _, a := range r.apps {
		row := a.name + " 4K, pre-pinned"
		n.count(a.name, t.get(row, "16") < t.get(row, "1"))
		one, sixteen := t.get(row+", us", "1"), t.get(row+", us", "16")
		name := fmt.Sprintf("%s (%.1f -> %.1f us)", a.name, one, sixteen)
		switch _, inPaper := Facts.UTLB.Table3[a.name]; {
		case slices.Contains(regular, a.name):
			gain.count(name, sixteen < one)
		case inPaper:
			none.count(name, sixteen >= one)
		}
	}
	r.trend("prefetch", "figure 8", "Fetching more entries with a miss makes misses "+
		"fewer.", n.all(), "Entries fetched for nothing evict others where pages are far apart.", "%s kernels "+
		"with 16 entries of 4K, their pages pinned with them", &n)
	if gain.yes+len(gain.no)+none.yes+len(none.no) == 0 {
		return
	}
	r.trend("prefetch-cost", "§7", "Prefetching and pinning 16 pages makes lookups cheaper for regular programs (FFT, "+
		"LU); irregular ones (the others) do not gain.", gain.all() && none.all(),
		"Here all gain but FFT. The paper itself is not of one mind: its table 7 has pinning cheaper by 16 "+
			"pages for Radix (13.0 -> 7.3 us), Raytrace and Water, which are irregular, and dearer for FFT (6.1 -> "+
			"15.8 us), which is regular; ours goes the way of that table.",
		"regular ones gain: %s; irregular ones do not: %s", &gain, &none)
}
