package xlate

import (
	"fmt"
	"math"

	"golang.org/x/sys/unix"

	"multiedge/bench/kit"
	"multiedge/bench/report"
)

// VMMC's tables 1 to 4: what the kernel costs the user-managed TLB, on this host and under our traces.

// vmmcHost measures tables 1 and 2 on this host: a call of the kernel, and pinning pages that are in memory.
func (r *runner) vmmcHost() {
	if !r.wanted("vmmc-table2") {
		return
	}
	f := &Facts.VMMC
	calls := r.table("vmmc-table1", "VMMC table 1: a call of the kernel (us)", "Entry and exit, here of getppid; the "+
		"least of many. Ours / the paper's.", "call", "Linux", "Windows NT")
	call := report.Least(1000, 16, func(int) { unix.Getppid() }) / 1000
	calls.Add("entry and exit", beside(call, f.KernelCall["linux"]), Cell{Text: fmt.Sprint(f.KernelCall["nt"])})
	most := f.Pages[len(f.Pages)-1] * PageBytes
	mem, err := unix.Mmap(-1, 0, most, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_POPULATE)
	if err != nil {
		kit.Fail("memory to pin: %w", err)
	}
	defer unix.Munmap(mem)
	t := r.table("vmmc-table2", "VMMC table 2: pinning and unpinning pages (us)", "Here mlock and munlock of pages "+
		"that are in memory, without the kernel call of table 1; the paper's numbers are of Windows NT.",
		"pages", "pin", "unpin")
	for i, pages := range f.Pages {
		part := mem[:pages*PageBytes]
		pin, unpin := math.Inf(1), math.Inf(1)
		kit.Doing(func() {
			for range 200 {
				pin = min(pin, report.Least(1, 1, func(int) { kit.Check(unix.Mlock(part)) })/1000)
				unpin = min(unpin, report.Least(1, 1, func(int) { kit.Check(unix.Munlock(part)) })/1000)
			}
		}, "pinning %d pages, for which RLIMIT_MEMLOCK may have to be raised", pages)
		t.Add(fmt.Sprint(pages), beside(max(pin-call, 0), f.PinNT[i]), beside(max(unpin-call, 0), f.UnpinNT[i]))
	}
}

// PageBytes is the size of a page of the papers' hosts.
const PageBytes = 4096

// vmmcTraces is table 3 or 4, for the programs that the paper and we have.
func vmmcTraces(r *runner, a *app, id, title string, paper map[string]HostRow) {
	p, ok := paper[a.name]
	if !ok {
		return
	}
	t := r.table(id, title, "Hits of the user's check under our traces, with as large a part of the footprint pinned "+
		"at most as in the paper. Only rates are ours: the cost is ours by the paper's costs of a hit and of a miss "+
		"(NT), not measured. Ours / the paper's.",
		"kernel", "of the footprint, %", "hits, %", "unpins, %", "cost, us", "the paper's rates by its formula, us")
	share, limit := 1.0, 0
	if p.Limit > 0 {
		processes := len(a.lookups.Nodes) * a.lookups.Processes
		share = p.Limit / p.Footprint
		limit = max(1, int(share*float64(a.footprint)/float64(processes)))
	}
	c := r.simulate(a, Config{Entries: 8192, Limit: limit})
	rates := c.Rates()
	hit := 100 * (1 - rates.Check)
	t.Add(a.name, ours(100*share).as("%.0f"), beside(hit, p.Hit), beside(100*rates.Unpin, p.Unpin),
		beside(p.At(hit), p.Cost), beside(p.At(p.Hit), p.Cost))
}
