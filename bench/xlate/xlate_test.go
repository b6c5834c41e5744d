package xlate

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"multiedge/bench/xlate/trace"
	"multiedge/regmem"
)

func TestCostModelGivesTable6FromTable4(t *testing.T) {
	if len(Facts.UTLB.Table6) != 6 {
		t.Fatalf("%d cells of table 6", len(Facts.UTLB.Table6))
	}
	for _, c := range Facts.UTLB.Table6 {
		u, v := ModelTable6(c)
		if math.Abs(u-c.UTLB) > 0.1 || math.Abs(v-c.Intr) > 0.1 {
			t.Errorf("%s at %d entries: %.2f and %.2f us, the paper has %.1f and "+
				"%.1f", c.App, c.Entries, u, v, c.UTLB, c.Intr)
		}
	}
}

// The cost of a lookup in VMMC's tables 3 and 4 follows from their rates and costs of hits and misses.
func TestVMMCTablesFollow(t *testing.T) {
	for name, table := range map[string]map[string]HostRow{"3": Facts.VMMC.Table3, "4": Facts.VMMC.Table4} {
		if len(table) != 4 {
			t.Errorf("table %s has %d programs", name, len(table))
		}
		for app, row := range table {
			if got := row.At(row.Hit); math.Abs(got-row.Cost) > 0.02*row.Cost+0.1 {
				t.Errorf("table %s, %s: %.2f us, the paper has %.2f", name, app, got, row.Cost)
			}
		}
	}
}

func TestTable8OfThePaperIsSorted(t *testing.T) {
	rows := Facts.UTLB.Table8
	if len(rows) != 20 {
		t.Fatalf("%d rows of table 8", len(rows))
	}
	for _, row := range rows {
		if !slices.IsSorted(row.Values) {
			t.Errorf("%d %s: %v", row.Entries, row.Cache, row.Values)
		}
	}
	var misses []float64
	for _, app := range Facts.UTLB.Table4.Apps {
		misses = append(misses, app.UTLB.NI[0])
	}
	slices.Sort(misses)
	if !slices.Equal(misses, rows[0].Values) {
		t.Errorf("table 4 has NI misses %v at 1K, table 8's first row is %v", misses, rows[0].Values)
	}
}

func TestBetween(t *testing.T) {
	h := &Facts.UTLB.Table1
	for _, c := range []struct{ pages, want float64 }{{1, 27}, {2, 30}, {3, 33}, {32, 115}, {64, 205}} {
		if v := between(h.Pages, h.Pin, c.pages); math.Abs(v-c.want) > 1e-9 {
			t.Errorf("pinning %g pages: %g us, want %g", c.pages, v, c.want)
		}
	}
}

// drawLookups draws lookups of one node of some processes, with runs and returns in them.
func drawLookups(t *rapid.T) *Lookups {
	procs, pages := rapid.IntRange(1, 4).Draw(t, "processes"), rapid.IntRange(2, 80).Draw(t, "pages")
	tr := &trace.Trace{Nodes: 1, Processes: procs}
	random := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
	page := 0
	for i := range rapid.IntRange(1, 400).Draw(t, "lookups") {
		if page++; random.IntN(3) == 0 {
			page = random.IntN(pages)
		}
		tr.Records = append(tr.Records, trace.Record{Time: uint64(i), Process: uint8(random.IntN(procs)),
			Op: trace.Op(random.IntN(4)), Addr: uint64(page%pages) << 12, Length: 64})
	}
	l, err := NewLookups(tr, true)
	must(t, err)
	return l
}

func simulate(t rapid.TB, l *Lookups, cfg Config) *Counts {
	t.Helper()
	n, err := Simulate(l, cfg)
	must(t, err)
	return n
}

// reference counts the misses of a direct-mapped cache without offset, and the check misses and unpins of pages under
// LRU, the simplest way.
func reference(l *Lookups, entries, limit int) (check, ni, unpins uint64) {
	slots := map[uint64]owned{}
	lists := map[uint16][]uint64{} // pinned pages, the least recently used first
	for _, x := range l.Nodes[0] {
		list := lists[x.Process]
		if i := slices.Index(list, x.Page); i >= 0 {
			list = slices.Delete(list, i, i+1)
		} else {
			check++
			if limit > 0 && len(list) == limit {
				unpins++
				gone := owned{x.Process, list[0]}
				if slots[gone.page%uint64(entries)] == gone {
					delete(slots, gone.page%uint64(entries))
				}
				list = list[1:]
			}
		}
		lists[x.Process] = append(list, x.Page)
		k := owned{x.Process, x.Page}
		if have, ok := slots[x.Page%uint64(entries)]; !ok || have != k {
			ni++
			slots[x.Page%uint64(entries)] = k
		}
	}
	return check, ni, unpins
}

func TestUTLBIsTheReference(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := drawLookups(t)
		entries, limit := 1<<rapid.IntRange(0, 7).Draw(t, "entries"), rapid.IntRange(0, 20).Draw(t, "limit")
		n := simulate(t, l, Config{Entries: entries, NoOffset: true, Limit: limit})
		check, ni, unpins := reference(l, entries, limit)
		if n.CheckMisses != check || n.NIMisses != ni || n.Unpins != unpins {
			t.Fatalf("check misses %d, NI misses %d, unpins %d; want %d, %d, "+
				"%d", n.CheckMisses, n.NIMisses, n.Unpins, check, ni, unpins)
		}
		if n.Pins != n.CheckMisses || n.Lookups != uint64(len(l.Nodes[0])) {
			t.Fatalf("%d pins for %d check misses, %d lookups of %d", n.Pins, n.CheckMisses, n.Lookups, len(l.Nodes[0]))
		}
		if cost := Facts.UTLB.Costs.UTLB(n.Rates()); math.Abs(n.Micros()-cost) > 1e-9 {
			t.Fatalf("pages pinned one at a time and no prefetch: %g us, by the model %g", n.Micros(), cost)
		}
	})
}

func TestWithoutLimitBothMechanismsMissAlike(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := drawLookups(t)
		cfg := Config{Entries: 1 << rapid.IntRange(2, 7).Draw(t, "entries"), Ways: 1 << rapid.IntRange(0, 2).Draw(t,
			"ways")}
		u := simulate(t, l, cfg)
		cfg.Mechanism = Intr
		v := simulate(t, l, cfg)
		_, footprint := l.Count()
		if u.NIMisses != v.NIMisses || u.Unpins != 0 || u.CheckMisses != uint64(footprint) {
			t.Fatalf("UTLB %+v, interrupts %+v, %d pages", u, v, footprint)
		}
		if v.Pins != v.NIMisses || v.Pins-v.Unpins > uint64(cfg.Entries) { // what is not cached is not pinned
			t.Fatalf("interrupts: %+v with %d entries", v, cfg.Entries)
		}
	})
}

func TestKindsOfMissesAddUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := drawLookups(t)
		entries := 1 << rapid.IntRange(0, 7).Draw(t, "entries")
		n := simulate(t, l, Config{Entries: entries, Classify: true})
		_, footprint := l.Count()
		if n.Compulsory != uint64(footprint) || n.Compulsory+n.Capacity+n.Conflict != n.NIMisses {
			t.Fatalf("%+v, %d pages", n, footprint)
		}
		if full := simulate(t, l, Config{Entries: entries, Ways: entries, NoOffset: true,
			Classify: true}); full.Conflict != 0 || full.Capacity != full.NIMisses-full.Compulsory {
			t.Fatalf("a fully associative cache has conflicts: %+v", full)
		}
	})
}

func TestNoPolicyBeatsTheOptimalOne(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := drawLookups(t)
		cfg := Config{Entries: 64, Limit: rapid.IntRange(1, 20).Draw(t, "limit"), Optimal: true}
		best := simulate(t, l, cfg).CheckMisses
		cfg.Optimal = false
		for p := range regmem.Policies {
			cfg.Policy = regmem.Policy(p)
			if n := simulate(t, l, cfg).CheckMisses; n < best {
				t.Fatalf("%v misses %d times, the optimal policy %d", cfg.Policy, n, best)
			}
		}
	})
}

// TestPoliciesUnderKnownPatterns has the rates that follow from the patterns: of 2n pages n may be pinned.
func TestPoliciesUnderKnownPatterns(t *testing.T) {
	for _, c := range []struct {
		pattern  string
		policy   regmem.Policy
		from, to float64
	}{
		{"cyclic", regmem.LRU, 1, 1}, {"cyclic", regmem.MRU, 0.5, 0.55}, {"cyclic", regmem.Random, 0.75, 0.85},
		{"strided", regmem.LRU, 1, 1},
		{"uniform", regmem.LRU, 0.48, 0.54}, {"zipf", regmem.LFU, 0.05, 0.16}, {"zipf", regmem.MRU, 0.3, 0.5},
	} {
		tr, err := Synthetic(c.pattern, 512, 20*512, 1)
		must(t, err)
		l, err := NewLookups(tr, false)
		must(t, err)
		if v := simulate(t, l, Config{Entries: 1024, Limit: 256, Policy: c.policy,
			Seed: 1}).Rates().Check; v < c.from || v > c.to {
			t.Errorf("%s under %v: %.3f check misses for each lookup, want %g to "+
				"%g", c.pattern, c.policy, v, c.from, c.to)
		}
	}
	if _, err := Synthetic("spiral", 2, 1, 1); err == nil {
		t.Error("an unknown pattern is accepted")
	}
}

// TestPrefetchAndPrepin has one process that reads 64 pages in a row, twice.
func TestPrefetchAndPrepin(t *testing.T) {
	tr, err := Synthetic("cyclic", 64, 128, 1)
	must(t, err)
	l, _ := NewLookups(tr, false)
	for _, c := range []struct {
		cfg              Config
		check, ni, unpin uint64
		fetched          uint64
	}{
		{Config{Entries: 64}, 64, 64, 0, 64},
		{Config{Entries: 64, Prepin: 16}, 4, 64, 0, 64},
		{Config{Entries: 64, Prepin: 16, Prefetch: 16}, 4, 4, 0, 64},
		{Config{Entries: 64, Prefetch: 16}, 64, 64, 0, 64}, // nothing behind the page is pinned yet
		{Config{Entries: 32, Prepin: 16, Prefetch: 16}, 4, 8, 0, 128},
		{Config{Entries: 64, Prepin: 16, Prefetch: 16, Limit: 32}, 8, 8, 96, 128},
		{Config{Mechanism: PerProcess, Entries: 64}, 64, 0, 0, 0},
		{Config{Mechanism: PerProcess, Entries: 32}, 128, 0, 96, 0},
	} {
		n := simulate(t, l, c.cfg)
		if n.CheckMisses != c.check || n.NIMisses != c.ni || n.Unpins != c.unpin || n.Fetched != c.fetched {
			t.Errorf("%+v: check misses %d, NI misses %d, unpins %d, fetched %d; want %d, %d, %d, "+
				"%d", c.cfg, n.CheckMisses, n.NIMisses, n.Unpins, n.Fetched, c.check, c.ni, c.unpin, c.fetched)
		}
	}
	for _, bad := range []Config{{Entries: 48}, {Entries: 64, Prefetch: -1}, {Entries: 64, Prepin: 16, Limit: 8},
		{Entries: 64, Prepin: 2, Optimal: true}} {
		if _, err := Simulate(l, bad); err == nil {
			t.Errorf("accepted: %+v", bad)
		}
	}
}

func TestDHLSplitsItsMisses(t *testing.T) {
	rec := func(op trace.Op, process uint8, page uint64) trace.Record {
		return trace.Record{Op: op, Process: process, Addr: page << 12, Length: 1}
	}
	tr := &trace.Trace{Nodes: 1, Processes: 2, Records: []trace.Record{
		rec(trace.Send, 0, 0), rec(trace.Fetch, 0, 1), // a miss that brings its neighbour
		rec(trace.Deposit, 1, 0),                       // another process: another line
		rec(trace.Serve, 0, 4), rec(trace.Fetch, 0, 8), // the same set: the first line leaves
		rec(trace.Deposit, 0, 0), // and is missed again, still pinned
	}}
	l, err := NewLookups(tr, true)
	must(t, err)
	n, err := SimulateDHL(l, DHLConfig{Entries: 8, Line: 2, Ways: 2})
	must(t, err)
	if n.Lookups != [2]uint64{2, 4} || n.Cold != [2]uint64{2, 2} || n.Warm != [2]uint64{0, 1} || n.Pinned != 4 ||
		n.Repins != 0 || n.Unpins != 0 {
		t.Errorf("%+v", n)
	}
	for _, bad := range []DHLConfig{{Entries: 8, Line: 3, Ways: 2}, {Entries: 8, Line: 8, Ways: 2},
		{Entries: 8, Line: 1, Ways: 1, HighWater: -1}} {
		if _, err := SimulateDHL(l, bad); err == nil {
			t.Errorf("accepted: %+v", bad)
		}
	}
}

func TestTheSlowPassKeepsTheMarkAndWhatIsCached(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := drawLookups(t)
		cfg := DHLConfig{Entries: 16, Line: 2, Ways: 2, HighWater: rapid.IntRange(1, 60).Draw(t, "mark"), Every: 1}
		n, err := SimulateDHL(l, cfg)
		must(t, err)
		free := cfg
		free.HighWater = 0
		m, err := SimulateDHL(l, free)
		must(t, err)
		if n.Misses() != m.Misses() {
			t.Fatalf("the pass made %d misses of %d: it unpinned what was cached", n.Misses(), m.Misses())
		}
		if limit := max(cfg.HighWater, cfg.Entries) + 2*cfg.Line; n.Most > limit || n.Pinned-n.Unpins > m.Pinned {
			t.Fatalf("%d pages pinned at once, at most %d wanted: %+v", n.Most, limit, n)
		}
	})
}

// must ends a test that cannot go on.
func must(t rapid.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
