package faults

import (
	"errors"
	"fmt"
	"strings"
	"sync"

	"multiedge/bench/kit"
	"multiedge/internal/lab"
)

// Limits of the scenarios below, and the sizes that clients ask for.
const (
	limitBytes = 8 << 20
	fitsBytes  = 2 << 20
	overBytes  = 32 << 20
	groupBytes = 128 << 20 // of a control group, the daemon's own memory included
)

func memoryScenarios() []Scenario {
	return []Scenario{
		{
			Name: "RLIMIT_MEMLOCK without CAP_IPC_LOCK", Group: Host,
			Criteria: "excess registrations fail with a typed error and leave nothing pinned; a client that already " +
				"has memory goes on", Short: true,
			Run: func(t *Trial) {
				t.cluster.ConfineDaemon(t.ctx, 0, kit.CommandConfined, fmt.Sprint(limitBytes))
				t.besideRefusals("memlock")
			},
		},
		{
			Name: "memory limit of a control group", Group: Host,
			Criteria: "excess registrations fail with a typed error and leave nothing pinned; the kernel kills no " +
				"process; other clients go on",
			// By default the quotas follow the group and refuse first.
			Set: func(s *kit.ClusterSpec) { s.Limits += "pinned = \"1GiB\"\npinned_total = \"1GiB\"\n" },
			Run: groupLimit,
		},
		{
			Name: "quota of pinned memory", Group: Host,
			Criteria: "excess registrations fail with a typed error and leave nothing pinned; a client that already " +
				"has memory goes on",
			Set: func(s *kit.ClusterSpec) { s.Limits += fmt.Sprintf("pinned = %d\n", limitBytes) },
			Run: func(t *Trial) { t.besideRefusals("limit") },
		},
	}
}

// besideRefusals runs a client with little memory beside another of the same user, whose registrations beyond the limit
// are refused.
func (t *Trial) besideRefusals(want string) {
	c := t.pair(MixSmall, 2, 8)
	t.refused(want, overBytes)
	t.goesOn(c)
}

// refused registers memory that fits, then too much, then memory that fits again: in this process, over the control
// socket of host 0.
func (t *Trial) refused(want string, over int) {
	dev := t.open(0)
	small := kit.Get(dev.RegisterContext(t.ctx, fitsBytes))
	was := t.held(0)
	for range 3 {
		_, err := dev.RegisterContext(t.ctx, over)
		t.injected("registrations beyond the limit", 1)
		t.typed(err, want)
	}
	var now held
	_, ok := t.event(leakTime, func() bool { // clients that asked before may not have ended yet
		now = t.held(0)
		return now.Pinned == was.Pinned && now.Locked <= was.Locked &&
			now.Descriptors <= was.Descriptors && now.Regions == was.Regions
	})
	t.check("refused registrations leave nothing pinned", ok, "%v", now.exceeds(was))
	t.row.Measured["pinned MiB"], t.row.Measured["locked MiB"] = float64(now.Pinned)/(1<<20),
		float64(now.Locked)/(1<<20)
	again, err := dev.RegisterContext(t.ctx, fitsBytes)
	t.check("registrations that fit still succeed", err == nil, "%v", err)
	kit.Check(err)
	kit.Check(errors.Join(again.Close(), small.Close()))
}

func (t *Trial) typed(err error, want string) {
	name, _ := typeOf(err)
	if name == want {
		t.counted("typed refusals", 1)
	}
	t.check("the refusal has its type", name == want, "%q (%v), want %q", name, err, want)
}

// groupLimit runs the daemon of host 0 in a control group, with one client at work while others ask for more memory
// than the group may hold.
func groupLimit(t *Trial) {
	g, c := t.grouped()
	t.refused("memlock", 2*groupBytes)
	t.filled(g)
	t.spared(c, g)
}

// grouped runs the daemon of host 0 in a control group, with one client at work.
func (t *Trial) grouped() (*lab.MemoryGroup, *agent) {
	g := kit.Get(lab.NewMemoryGroup(groupBytes))
	t.after = append(t.after, g.Close)
	t.cluster.ConfineDaemon(t.ctx, 0, kit.CommandGrouped, g.Dir())
	return g, t.atWork(MixRandom, 2)
}

// spared judges a client beside others that filled a control group: it goes on, and the kernel kills no process of the
// group.
func (t *Trial) spared(c *agent, g *lab.MemoryGroup) {
	w := t.mark(c, "meanwhile")
	t.unfailed(w)
	t.check("the other client goes on", w.Ops > 0, "nothing completes")
	killed, err := g.Killed()
	t.check("the kernel kills no process", err == nil && killed == 0, "%d killed, %v", killed, err)
	kit.Check(err)
}

// filled has several clients register at once until each is refused. Their pieces differ in size; the small ones reach
// the limit.
func (t *Trial) filled(g *lab.MemoryGroup) {
	before := kit.Get(g.Used())
	sizes := []int{64 << 10, 512 << 10, 3 << 20, 20 << 20}
	ends := make([]error, len(sizes)) // how each was refused
	var all sync.WaitGroup
	for i, size := range sizes {
		dev := t.open(0)
		all.Go(func() {
			for n := 0; n <= groupBytes && ends[i] == nil; n += size {
				_, ends[i] = dev.RegisterContext(t.ctx, size)
			}
		})
	}
	all.Wait()
	t.injected("clients that register until refused", uint64(len(sizes)))
	for _, err := range ends {
		t.typed(err, "memlock")
		t.check("the refusal names the group", err != nil && strings.Contains(err.Error(), g.Dir()), "%v", err)
	}
	after := kit.Get(g.Used())
	t.row.Measured["group MiB, full"], t.row.Measured["group MiB, limit"] = float64(after)/(1<<20), groupBytes>>20
	t.check("the group is charged for the memory", after > before && after <= groupBytes,
		"the group used %d bytes, then %d", before, after)
}
