package ondemand

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"golang.org/x/sys/unix"

	"multiedge/bench/kit"
	"multiedge/bench/report"
	"multiedge/bench/xlate"
	"multiedge/edge/space"
	"multiedge/regmem"
)

// Tables are UTLB's tables 1 and 2, in microseconds, by pages of a call and by entries of a fetch. They are empty if
// costs were not measured.
type Tables struct {
	Host xlate.HostCosts `json:"host"`
	Hold []float64       `json:"hold"` // asking the daemon to pin so many pages, until they are
	NI   xlate.NICosts   `json:"interface"`
}

const (
	tablePages = 32
	positions  = 64 // of the first page in the library's bit map
)

// hostCosts measures table 1: the library's check, which looks at a bit map, by the position of the first bit; the
// system calls that pin and unpin; and what a program sees that asks its daemon for pinned pages.
func (r *run) hostCosts(ctx context.Context) {
	t := &r.res.Tables
	t.Host.Pages = xlate.Facts.UTLB.Table1.Pages
	const size = 4 * (tablePages + positions) * xlate.PageBytes
	mem := kit.Get(space.Map(ctx, r.d, size, space.Options{Pin: size, Chunk: xlate.PageBytes}))
	defer mem.Close()
	fill(mem.Bytes())
	const held = (tablePages + positions) * xlate.PageBytes
	kit.Check(space.Hold(ctx, mem, 0, held))
	for _, n := range t.Host.Pages {
		least, most := math.Inf(1), 0.0
		for at := range positions {
			const looks = 200
			all := true
			us := report.Least(20, 1, func(int) {
				for range looks {
					all = space.Resident(mem, at*xlate.PageBytes, int(n)*xlate.PageBytes) && all
				}
			}) / looks / 1000
			if !all {
				kit.Fail("pages that are held are not said to be resident")
			}
			least, most = min(least, us), max(most, us)
		}
		t.Host.CheckMin, t.Host.CheckMax = append(t.Host.CheckMin, least), append(t.Host.CheckMax, most)
		pin, unpin := locking(int(n) * xlate.PageBytes)
		t.Host.Pin, t.Host.Unpin = append(t.Host.Pin, pin), append(t.Host.Unpin, unpin)
	}
	for _, n := range t.Host.Pages {
		var took []float64
		for range 30 {
			start := time.Now()
			kit.Check(space.Hold(ctx, mem, held, int(n)*xlate.PageBytes))
			took = append(took, float64(time.Since(start))/1000)
			kit.Check(space.Release(mem, held, int(n)*xlate.PageBytes))
			kit.Check(space.Evict(mem, held, int(n)*xlate.PageBytes))
		}
		t.Hold = append(t.Hold, report.Median(took))
	}
}

// locking is what mlock and munlock of so many bytes take that are in memory, in microseconds: the least of many.
func locking(bytes int) (pin, unpin float64) {
	mem, err := unix.Mmap(-1, 0, bytes, unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_POPULATE)
	if err != nil {
		kit.Fail("memory to pin: %w", err)
	}
	defer unix.Munmap(mem)
	pin, unpin = math.Inf(1), math.Inf(1)
	kit.Doing(func() {
		for range turns {
			pin = min(pin, report.Least(1, 1, func(int) { kit.Check(unix.Mlock(mem)) })/1000)
			unpin = min(unpin, report.Least(1, 1, func(int) { kit.Check(unix.Munlock(mem)) })/1000)
		}
	}, "pinning %d bytes, for which RLIMIT_MEMLOCK may have to be raised", bytes)
	return pin, unpin
}

// nicCosts measures table 2. There is no interface with a memory of its own: its cache is the daemon's, of 8K entries,
// direct-mapped, and what it fetches from is a table of two levels in the same memory, too large for the processor's
// nearest cache.
func nicCosts() (t xlate.NICosts) {
	const entries, leaf = 8192, 1024
	const lines = 4 * entries
	t.Entries = xlate.Facts.UTLB.Table2.Entries
	random := rand.New(rand.NewPCG(1, 1))
	for _, e := range t.Entries {
		n := uint64(e)
		c := kit.Get(regmem.NewCache[uint32](regmem.CacheConfig{Entries: entries, Ways: 1, Line: int(n)}))
		table := make([]*[leaf]uint32, lines*n/leaf)
		for i := range table {
			table[i] = new([leaf]uint32)
		}
		order := random.Perm(lines) // four lines of each place of the cache: every use misses
		fetch := func(page uint64) {
			values, _, _ := c.Fill(0, page)
			copy(values, table[page/leaf][page%leaf:])
		}
		t.DMA = append(t.DMA, report.Least(turns/10, lines, func(i int) { fetch(uint64(order[i]) * n) })/1000)
		hits := c.Hits
		t.Miss = append(t.Miss, report.Least(turns/10, lines, func(i int) {
			page := uint64(order[i]) * n
			if _, ok := c.Lookup(0, page); !ok {
				fetch(page)
			}
		})/1000)
		if c.Hits-hits > lines*turns/10/20 {
			kit.Fail("%d of the lookups hit that were to miss", c.Hits-hits)
		}
		if n == 1 {
			for page := range uint64(entries) {
				fetch(page)
			}
			t.Hit = report.Least(turns, entries, func(i int) { c.Lookup(0, uint64(order[i])%entries) }) / 1000
		}
	}
	return t
}

// tableStudy shows both tables in the paper's form, ours beside the paper's.
func (r *Result) tableStudy(s *xlate.Study) {
	t := &r.Tables
	paper := &xlate.Facts.UTLB
	one := xlate.Table{ID: "utlb-table1", Title: "UTLB table 1: overhead on the host processor (us)",
		Columns: pagesOf("num_pages", t.Host.Pages), Caption: "check: the library's space.Resident, over all " +
			"positions of the first bit. pin, unpin: mlock and munlock, where the paper's library calls its driver. " +
			"hold: " +
			"asking the daemon over its socket for pages that are not pinned, until they are."}
	for _, row := range []struct {
		name         string
		ours, theirs []float64
	}{{"check min", t.Host.CheckMin, paper.Table1.CheckMin}, {"check max", t.Host.CheckMax, paper.Table1.CheckMax},
		{"pin", t.Host.Pin, paper.Table1.Pin}, {"unpin", t.Host.Unpin, paper.Table1.Unpin}} {
		one.Add(row.name, besides(row.ours, row.theirs)...)
	}
	one.Add("hold", xlate.Cells("%.1f", t.Hold...)...)
	two := xlate.Table{ID: "utlb-table2", Title: "UTLB table 2: overhead on the network interface (us)",
		Columns: pagesOf("num_entries", t.NI.Entries), Caption: fmt.Sprintf("Here the interface is the daemon: a "+
			"direct-mapped cache of 8K entries in front of a table of two levels, in one memory. DMA cost: bringing "+
			"the entries into the cache. A hit costs %.3f us; the paper's 0.8.", t.NI.Hit)}
	two.Add("DMA cost", besides(t.NI.DMA, paper.Table2.DMA)...)
	two.Add("total miss cost", besides(t.NI.Miss, paper.Table2.Miss)...)
	s.Tables = append(s.Tables, one, two)
	r.tableTrends(s)
}

func pagesOf(head string, n []float64) (columns []string) {
	columns = []string{head}
	for _, v := range n {
		columns = append(columns, fmt.Sprint(v))
	}
	return columns
}

func besides(ours, theirs []float64) (cells []xlate.Cell) {
	for i, v := range ours {
		cells = append(cells, xlate.Beside(v, theirs[i], "%.3g"))
	}
	return cells
}

// tableTrends judges what the paper says of its tables (§5).
func (r *Result) tableTrends(s *xlate.Study) {
	h, n := &r.Tables.Host, &r.Tables.NI
	last := len(h.Pages) - 1
	s.AddTrend("check", "UTLB table 1", "A check costs at most a tenth of pinning what it finds unpinned.",
		h.CheckMax[0] <= h.Pin[0]/10 && h.CheckMax[last] <= h.Pin[last]/10,
		"pages that are in memory are pinned by a system call alone", "%.4f and %.2f us for a page, %.4f and %.2f "+
			"for %.0f",
		h.CheckMax[0], h.Pin[0], h.CheckMax[last], h.Pin[last], h.Pages[last])
	each := h.Pin[last] / h.Pages[last] / h.Pin[0]
	s.AddTrend("pin-many", "UTLB table 1", "Pinning many pages at once is cheaper for each: 32 cost 4.3 times one "+
		"(agrees if at most half of 32).", each <= 0.5, noise, "%.1f times", h.Pin[last]/h.Pin[0])
	last = len(n.Entries) - 1
	s.AddTrend("prefetch-cost", "UTLB table 2", "The cost of a miss hardly grows with the entries that it fetches: "+
		"1.8 times for 32 (agrees if at most 3).", n.Miss[last] <= 3*n.Miss[0],
		"there is no transfer to set up here, which costs as much for one entry as for many: copying is all there is",
		"%.3f us for one, %.3f for %.0f: %.1f times", n.Miss[0], n.Miss[last], n.Entries[last], n.Miss[last]/n.Miss[0])
	s.AddTrend("hit-miss", "UTLB table 2", "A miss costs 2.3 times a hit (agrees if 1.5 to 5).",
		n.Miss[0] >= 1.5*n.Hit && n.Miss[0] <= 5*n.Hit,
		"the table lies in the memory that the cache lies in; the processor's caches decide", "%.3f and %.3f us: "+
			"%.1f times",
		n.Hit, n.Miss[0], n.Miss[0]/n.Hit)
}
