package faults

import (
	"context"
	"time"

	"multiedge/bench"
	"multiedge/bench/hostile"
	"multiedge/edge"
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
	return dev.Map(ctx, spaceBytes, edge.MapOptions{Pin: spacePin, Chunk: spaceChunk})
}

func spaceScenarios() []Scenario {
	ended := func(t *Trial, sum *hostile.Report) {
		t.check("operations in the spaces complete", sum.Completed > 0, "none does")
	}
	beside := fiends("spaces missed without end beside another user's", "spaces", 3, false, ended)
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
			Set: func(s *bench.ClusterSpec) { s.Limits += "filled = \"1GiB\"\nfilled_total = \"1GiB\"\n" }},
		fiends("spaces mapped, advised and missed without end", "spaces", 3, true, ended),
		beside,
	}
}

// inSpaces runs a scenario with memory in spaces.
func inSpaces(run func(context.Context, *Trial) error) func(context.Context, *Trial) error {
	return func(ctx context.Context, t *Trial) error {
		t.spaces = true
		if err := run(ctx, t); err != nil {
			return err
		}
		now, err := t.daemonCounters(ctx)
		t.missed(now)
		return err
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
func missesLossy(ctx context.Context, t *Trial) error {
	t.spaces = true
	c, err := t.pair(ctx, MixRandom, 2, 8)
	if err != nil {
		return err
	}
	was, err := t.labCounters()
	if err != nil {
		return err
	}
	wires := lab.Faults{Loss: 0.03, Dup: 0.05, Reorder: 0.1, ReorderBy: 5 * time.Millisecond}
	if err := t.setFaults(wires); err != nil {
		return err
	}
	if _, err := t.mark(ctx, c, "clean"); err != nil {
		return err
	}
	l := t.cluster.Lab()
	var all Window
	for i := range t.many(12, 3) {
		cut := []func(bool) error{l.Link(0).Cut, l.Link(1).Cut, t.cutAll}[i%3]
		if err := cut(true); err != nil {
			return err
		}
		if !sleep(ctx, 100*time.Millisecond) {
			return ctx.Err()
		}
		if err := cut(false); err != nil {
			return err
		}
		w, err := t.measure(ctx, c, "faulty", t.span(500*time.Millisecond, 200*time.Millisecond))
		if err != nil {
			return err
		}
		t.unfailed(w)
		all.add(w)
	}
	if err := t.setFaults(lab.Faults{}); err != nil {
		return err
	}
	now, err := t.labCounters()
	if err != nil {
		return err
	}
	t.injected("lost", now.Lost-was.Lost)
	t.injected("duplicated", now.Duplicated-was.Duplicated)
	t.injected("cut", now.Cut-was.Cut)
	t.row.Measured["operations"] = float64(all.Ops)
	t.check("operations complete", all.Ops > 0, "none does")
	counters, err := t.daemonCounters(ctx)
	t.missed(counters)
	return err
}

// groupFilled runs the daemon of host 0 in a control group. One client works while another uses more and more of a
// space that is larger than the group.
func groupFilled(ctx context.Context, t *Trial) error {
	g, c, err := t.grouped(ctx)
	if err != nil {
		return err
	}
	dev, err := edge.Open(ctx, edge.Config{Socket: t.cluster.Socket(0)})
	if err != nil {
		return err
	}
	defer dev.Close()
	const step = 1 << 20
	mem, err := dev.Map(ctx, spaceBytes, edge.MapOptions{Pin: 4 * step})
	if err != nil {
		return err
	}
	defer mem.Close()
	use := func(off int) error {
		err := mem.Hold(ctx, off, step)
		if err == nil {
			err = mem.Release(off, step)
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
	err = use(0)
	t.check("pinned memory stays usable", err == nil, "%v", err)
	used, err := g.Used()
	if err != nil {
		return err
	}
	t.row.Measured["group MiB, full"], t.row.Measured["group MiB, limit"] = float64(used)/(1<<20), groupBytes>>20
	return t.spared(ctx, c, g)
}

// parkedKilled kills a client most of whose operations are parked.
func parkedKilled(ctx context.Context, t *Trial) error {
	t.spaces = true
	c, err := t.pair(ctx, MixRandom, 4, 8)
	if err != nil {
		return err
	}
	before, err := t.daemonCounters(ctx)
	if err != nil {
		return err
	}
	t.missed(before)
	at := time.Now()
	c.kill()
	t.injected("clients killed", 1)
	t.unpinned(ctx, 0)
	server := t.servers[0]
	took, ok := t.event(ctx, 2*time.Second, func() bool { return len(server.endings()) >= c.job.Conns })
	t.ms("peer told after", took)
	untyped := 0
	for _, e := range server.endings() {
		untyped += int(truth(e.Type == "untyped"))
	}
	t.check("the peer gets a typed answer", ok && untyped == 0, "%d of %d connections ended after %v, %d untyped",
		len(server.endings()), c.job.Conns, time.Since(at), untyped)
	return t.reuse(ctx)
}
