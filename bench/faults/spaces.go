package faults

import (
	"context"
	"time"

	"multiedge/bench/hostile"
	"multiedge/bench/kit"
	"multiedge/edge"
	"multiedge/edge/space"
	"multiedge/internal/lab"
)

// Memory that is pinned on demand: that of servers and clients lies in spaces of 64 GiB. So little of each may be
// pinned that nearly all operations miss, at their sources and at their destinations.
const (
	spaceBytes = 64 << 30
	spaceChunk = 4 << 10
	spacePin   = 16 * spaceChunk
)

// memory returns memory for a job's connections: the first n bytes of the region are used.
func (j *Job) memory(ctx context.Context, dev *edge.Device, n int) (*edge.Region, error) {
	if !j.Spaces {
		return dev.RegisterContext(ctx, n)
	}
	return space.Map(ctx, dev, spaceBytes, space.Options{Pin: spacePin, Chunk: spaceChunk})
}

func spaceScenarios() []Scenario {
	ended := func(t *Trial, sum *hostile.Report) {
		t.check("operations in the spaces complete", sum.Completed > 0, "none does")
	}
	beside := hostileUsers("spaces missed without end beside another user's", "spaces", 3, false, ended)
	beside.Run = inSpaces(beside.Run)
	return []Scenario{
		{Name: "loss, duplication and cuts while memory is missed", Group: Network, Short: true, Set: twoLinks,
			Criteria: "no operation fails; parts miss at all four sites", Run: missesLossy},
		{Name: "daemon restarted, memory in spaces", Group: Host, Short: true,
			Criteria: "old operations fail within one round trip of contact with the new daemon; clients reconnect; " +
				"parts miss",
			Run: inSpaces(daemonRestarted)},
		{Name: "client killed while its operations are parked", Group: Host, Short: true,
			Criteria: "the client's memory is unpinned within 1 s; the peer gets a typed error; another client's " +
				"operations go on, in memory that was given back", Run: parkedKilled},
		{Name: "memory limit of a control group, spaces filled on demand", Group: Host, Short: true,
			Criteria: "operations on memory that does not fit fail with ErrMemory; pinned memory stays usable; the " +
				"kernel kills no process; other clients go on", Run: groupFilled,
			Set: func(s *kit.ClusterSpec) { s.Limits += "filled = \"1GiB\"\nfilled_total = \"1GiB\"\n" }},
		hostileUsers("spaces mapped, advised and missed without end", "spaces", 3, true, ended),
		beside,
	}
}

// inSpaces runs a scenario with memory in spaces.
func inSpaces(run func(*Trial)) func(*Trial) {
	return func(t *Trial) {
		t.spaces = true
		run(t)
		t.missed(t.daemonCounters())
	}
}

// missed judges that parts missed, and at all sites.
func (t *Trial) missed(counters map[string]uint64) {
	sites := 0
	for _, site := range []string{"misses_write_source", "misses_write_target", "misses_read_target",
		"misses_read_dest"} {
		t.tried("parts that missed", counters[site])
		sites += int(truth(counters[site] > 0))
	}
	t.check("parts miss at all four sites", sites == 4, "at %d: %v", sites, counters)
}

// missesLossy cuts links, one after the other and then both, on wires that lose, repeat and reorder frames.
func missesLossy(t *Trial) {
	t.spaces = true
	c := t.pair(MixRandom, 2, 8)
	was := t.labCounters()
	wires := lab.Faults{Loss: 0.03, Dup: 0.05, Reorder: 0.1, ReorderBy: 5 * time.Millisecond}
	t.setFaults(wires)
	t.mark(c, "clean")
	var all Window
	for i := range t.many(12, 3) {
		cut := []func(bool){func(on bool) { t.cut(0, on) }, func(on bool) { t.cut(1, on) }, t.cutAll}[i%3]
		cut(true)
		t.pause(100 * time.Millisecond)
		cut(false)
		w := t.measure(c, "faulty", t.span(500*time.Millisecond, 200*time.Millisecond))
		t.unfailed(w)
		all.add(w)
	}
	t.setFaults(lab.Faults{})
	now := t.labCounters()
	t.injected("lost", now.Lost-was.Lost)
	t.injected("duplicated", now.Duplicated-was.Duplicated)
	t.injected("cut", now.Cut-was.Cut)
	t.row.Measured["operations"] = float64(all.Ops)
	t.check("operations complete", all.Ops > 0, "none does")
	t.missed(t.daemonCounters())
}

// groupFilled runs the daemon of host 0 in a control group. One client works while another uses more and more of a
// space that is larger than the group.
func groupFilled(t *Trial) {
	g, c := t.grouped()
	dev := t.open(0)
	const step = 1 << 20
	mem := kit.Get(space.Map(t.ctx, dev, spaceBytes, space.Options{Pin: 4 * step}))
	use := func(off int) error {
		err := space.Hold(t.ctx, mem, off, step)
		if err == nil {
			err = space.Release(mem, off, step)
		}
		return err
	}
	var refused error
	filled := 0
	for ; refused == nil && filled <= groupBytes; filled += step {
		refused = use(filled)
	}
	t.injected("MiB used of the space", uint64(filled/step))
	t.typed(refused, "memory")
	t.succeeds("pinned memory stays usable", func() { kit.Check(use(0)) })
	used := kit.Get(g.Used())
	t.row.Measured["group MiB, full"], t.row.Measured["group MiB, limit"] = float64(used)/(1<<20), groupBytes>>20
	t.spared(c, g)
}

// parkedKilled kills a client most of whose operations are parked.
func parkedKilled(t *Trial) {
	t.spaces = true
	c := t.pair(MixRandom, 4, 8)
	before := t.daemonCounters()
	t.missed(before)
	at := time.Now()
	c.kill()
	t.injected("clients killed", 1)
	t.unpinned(0)
	t.told(c.job.Conns, at)
	t.reuse()
}
