package faults

import (
	"context"
	"fmt"
	"math/rand/v2"
	"syscall"
	"time"

	"multiedge/bench/kit"
	"multiedge/bench/report"
	"multiedge/internal/inspect"
	"multiedge/internal/lab"
)

// SoakOptions say how long and how.
type SoakOptions struct {
	Duration time.Duration
	Seed     uint64
	Driver   string   // of links, as in Options
	Spaces   bool     // memory lies in spaces
	Self     []string // how to run this program; empty: the executable
}

// Sample is the state of a soak at one moment.
type Sample struct {
	Seconds float64           `json:"seconds"`
	Fault   string            `json:"fault,omitempty"` // in force
	Daemons [2]DaemonSample   `json:"daemons"`         // by host
	P50     float64           `json:"p50_ns"`          // of operations since the last sample, from host 0
	P99     float64           `json:"p99_ns"`
	Stall   float64           `json:"stall_ns"`
	Goodput float64           `json:"goodput_bytes_per_second"`
	Ops     uint64            `json:"ops"`
	Late    uint64            `json:"late,omitempty"`   // operations among these that missed their deadline
	Stolen  float64           `json:"stolen_share"`     // of the processors, by a hypervisor, since the last sample
	Errors  map[string]uint64 `json:"errors,omitempty"` // typed errors, which only some faults may cause
}

// DaemonSample is what a daemon holds.
type DaemonSample struct {
	Resident uint64 `json:"resident_bytes"`
	// what it kept when clients last rested; 0: not yet measured
	AtRest      Kept   `json:"at_rest"`
	Descriptors int    `json:"descriptors"`
	Goroutines  int    `json:"goroutines"`
	Pinned      uint64 `json:"pinned_bytes"`
	Starts      int    `json:"starts"` // times it was started
}

// Of a soak.
const (
	soakDead  = 4 * time.Second
	soakStep  = 100 * time.Millisecond
	slopeMost = 0.01             // of resident memory, per hour
	slopeSpan = 10 * time.Minute // a slope over less says nothing
)

// soak is a soak under way.
type soak struct {
	*Trial
	o       SoakOptions
	rng     *rand.Rand
	start   time.Time
	forward *agent // client of host 0
	active  *mishap
	due     dueTimes
	stolen  float64 // seconds of processors, at the last sample
	starts  [2]int
	samples []Sample
	rests   [2][]rest // of each host's daemon, since it was started last
}

// dueTimes says when a soak does what next.
type dueTimes struct{ fault, heal, round, sample time.Time }

// Soak mixes faults while clients work, until the time is over. It passes every sample to show; the row judges the
// whole. If it is interrupted, it returns what it has.
func Soak(ctx context.Context, o SoakOptions, show func(*Sample)) (*Row, []Sample, error) {
	row := newRow(&Scenario{Name: fmt.Sprintf("soak of %v under mixed faults", o.Duration), Group: Load,
		Criteria: "resident memory at rest grows by less than 1 % per hour"})
	spec := stageSpec(o.Seed)
	spec.Self, spec.Driver, spec.Lab.Links = o.Self, o.Driver, 2
	s := &soak{o: o, rng: rand.New(rand.NewPCG(o.Seed, 23)), start: time.Now(), starts: [2]int{1, 1}}
	row.carry(ctx, spec, soakDead, func(scene *Scene) {
		scene.spaces = o.Spaces
		s.Trial = &Trial{Scene: scene, row: row, seed: o.Seed}
		s.people()
		err := kit.Try(func() { s.loop(show) })
		s.slopes()
		kit.Check(err)
		if o.Spaces {
			s.missed(s.daemonCounters())
		}
	}, func() *Trial { return s.Trial })
	if ctx.Err() != nil {
		row.Error = "interrupted"
	}
	return row, s.samples, ctx.Err()
}

// people starts servers and clients in both directions.
func (s *soak) people() {
	s.serve(1, "store")
	s.serve(0, "back")
	s.forward = s.work("store", MixRandom, 2, 8)
	s.workFrom(1, 0, "back", MixSmall, 2, 4)
	s.flowing(s.forward, 10*time.Second)
}

// every returns the time between samples, round the time between two comparisons of memory.
func (s *soak) every() time.Duration { return min(max(s.o.Duration/300, time.Second), 10*time.Second) }
func (s *soak) round() time.Duration { return min(max(s.o.Duration/60, 5*time.Second), 30*time.Second) }

func (s *soak) loop(show func(*Sample)) {
	now := time.Now()
	s.start, s.stolen = now, report.StolenSeconds()
	s.due.fault, s.due.round, s.due.sample = now.Add(500*time.Millisecond), now.Add(s.round()), now.Add(s.every())
	for end := s.start.Add(s.o.Duration); time.Now().Before(end); {
		s.step(show)
		s.pause(soakStep)
	}
	s.heal()
	s.sample(show)
}

// step does whatever is due: heal, inject, sample or compare.
func (s *soak) step(show func(*Sample)) {
	now := time.Now()
	if s.active != nil && now.After(s.due.heal) {
		s.heal()
	}
	if s.active == nil && now.After(s.due.round) {
		s.compareAll()
		s.due.round = time.Now().Add(s.round())
	}
	if s.active == nil && now.After(s.due.fault) {
		s.inject()
	}
	if now.After(s.due.sample) && (s.active == nil || !s.active.mute) {
		s.sample(show)
		s.due.sample = time.Now().Add(s.every())
	}
}

// inject starts a random mishap. It restarts daemons only in the first third, so that memory can be judged over the
// rest.
func (s *soak) inject() {
	for {
		m := &mishaps[s.rng.IntN(len(mishaps))]
		if m.restarts && time.Since(s.start) > s.o.Duration/3 {
			continue
		}
		s.injected(m.name, 1)
		s.active, s.due.heal = m, time.Now().Add(m.least+time.Duration(s.rng.Float64()*float64(m.most-m.least)))
		kit.Doing(func() { m.do(s) }, "%s", m.name)
		return
	}
}

func (s *soak) heal() {
	m := s.active
	if m == nil {
		return
	}
	s.active, s.due.fault = nil, time.Now().Add(300*time.Millisecond+time.Duration(s.rng.IntN(500))*time.Millisecond)
	kit.Doing(func() { m.undo(s) }, "ending %s", m.name)
}

// compareAll makes all clients finish their work, compares memory, looks for leaks, and lets the clients go on.
func (s *soak) compareAll() {
	s.drainAll(s.tell)
	for h := range 2 {
		var st held
		_, ok := s.event(leakTime, func() bool {
			st = s.held(h)
			return st.Regions == 0 && st.Connections == 0 && st.Exports == 0 && st.Pinned == 0
		})
		if !ok {
			s.row.U[2].fail("host %d holds %d regions, %d connections, %d exports, %d pinned bytes when nobody works",
				h, st.Regions, st.Connections, st.Exports, st.Pinned)
		}
	}
	if _, ok := s.event(rejoinTime, func() bool { return s.entire() }); !ok {
		s.counted("rests without all links in use", 1)
	} else {
		s.collect()
	}
	for _, c := range s.clients {
		if c.killed {
			continue
		}
		call[any](c, "resume", nil)
	}
}

// entire reports whether both daemons use both links to each other. A path takes memory, so what daemons hold is
// compared only in this state.
func (s *soak) entire() bool {
	return s.allGood(func(int, *inspect.PathStatus) bool { return true })
}

// mishap is one fault of a soak.
type mishap struct {
	name        string
	least, most time.Duration // how long it lasts
	restarts    bool          // a daemon
	mute        bool          // clients do not answer meanwhile
	do, undo    func(s *soak)
}

// mishaps are the faults from which a soak chooses. The faults of wires are drawn anew each time.
var mishaps = []mishap{
	{name: "faulty wire", least: time.Second, most: 4 * time.Second, undo: cleanWire,
		do: func(s *soak) { s.setFaultsOf(s.rng.IntN(2), s.mix()) }},
	{name: "faulty wires", least: time.Second, most: 4 * time.Second, undo: cleanWire, do: faultyWires},
	{name: "narrow wire", least: time.Second, most: 3 * time.Second, undo: cleanWire,
		do: func(s *soak) { s.setFaultsOf(s.rng.IntN(2), lab.Faults{Longest: 1500}) }},
	{name: "cut link", least: 500 * time.Millisecond, most: 3 * time.Second, undo: healLinks,
		do: func(s *soak) { s.cut(s.rng.IntN(2), true) }},
	{name: "cut in one direction", least: 500 * time.Millisecond, most: 3 * time.Second, undo: healLinks,
		do: func(s *soak) { s.cutTowards(s.rng.IntN(2), s.rng.IntN(2), true) }},
	{name: "all links cut", least: 300 * time.Millisecond, most: 2 * time.Second, do: cutLinks, undo: healLinks},
	{name: "all links cut beyond the dead time", least: soakDead + time.Second, most: soakDead + 2*time.Second,
		do: cutLinks, undo: healLinks},
	{name: "NIC down", least: 300 * time.Millisecond, most: 2 * time.Second,
		do:   func(s *soak) { kit.Check(s.link(1).SetDown(0)) },
		undo: func(s *soak) { kit.Check(s.link(1).SetUp(0)) }},
	{name: "NIC deleted", least: 300 * time.Millisecond, most: 2 * time.Second,
		do:   func(s *soak) { kit.Check(s.link(1).Delete(1)) },
		undo: func(s *soak) { kit.Check(s.link(1).Recreate(1)) }},
	{name: "client stopped", least: 300 * time.Millisecond, most: 2 * time.Second, mute: true,
		do: signalClient(syscall.SIGSTOP), undo: signalClient(syscall.SIGCONT)},
	{name: "client killed", least: 100 * time.Millisecond, most: 300 * time.Millisecond, mute: true, do: killClient,
		undo: newClient},
	{name: "daemon restarted", least: 100 * time.Millisecond, most: time.Second, restarts: true, mute: true,
		do: func(s *soak) { s.killDaemon(s.rng.IntN(2)) }, undo: startDaemons},
}

func (s *soak) link(i int) *lab.Link { return s.cluster.Lab().Link(i) }

// mix draws faults of a wire.
func (s *soak) mix() lab.Faults {
	r := s.rng.Float64
	f := lab.Faults{Loss: 0.3 * r() * r(), Corrupt: 0.05 * r(), Dup: 0.2 * r(), Reorder: 0.2 * r(),
		ReorderBy: time.Duration(s.rng.IntN(5)) * time.Millisecond}
	if s.rng.IntN(3) == 0 {
		f.Burst = 3 + s.rng.IntN(30)
	}
	if s.rng.IntN(3) == 0 {
		f.Delay = time.Duration(s.rng.IntN(10)) * time.Millisecond
	}
	return f
}

func faultyWires(s *soak) {
	for i := range 2 {
		s.setFaultsOf(i, s.mix())
	}
}

func cleanWire(s *soak) { s.setFaults(lab.Faults{}) }

func cutLinks(s *soak) { s.cutAll(true) }

func healLinks(s *soak) { s.cutAll(false) }

func signalClient(sig syscall.Signal) func(*soak) {
	return func(s *soak) { kit.Check(s.forward.proc.Signal(sig)) }
}

const unpinLongest = "memory of a killed client unpinned after ms, at most"

// killClient kills the client of host 0 with operations in flight. Nobody can claim any more what it wrote last.
func killClient(s *soak) {
	s.verify() // the claims that it has handed in so far
	s.forward.kill()
	took, ok := s.event(unpinTime, func() bool {
		return s.status(0).PinnedBytes <= s.backPinned() // which changes, when its connections come and go
	})
	if !ok {
		s.row.U[2].fail("memory of a killed client is pinned after %v", took)
	}
	s.row.Measured[unpinLongest] = max(s.row.Measured[unpinLongest], float64(took.Microseconds())/1e3)
}

// backPinned returns the bytes that the server of host 0 has pinned there.
func (s *soak) backPinned() uint64 {
	sum := uint64(0)
	for _, r := range ask[[]inspect.RegionStatus](s.Scene, 0, "region") {
		if int(r.PID) != s.forward.proc.Pid() {
			sum += uint64(r.Bytes)
		}
	}
	return sum
}

func newClient(s *soak) {
	for _, server := range s.servers {
		if server.job.Service == "store" {
			s.forget(server, s.forward)
		}
	}
	s.forward = s.work("store", MixRandom, 2, 8)
}

func startDaemons(s *soak) {
	for h := range 2 {
		if !s.cluster.Daemon(h).HasEnded() {
			continue
		}
		s.startDaemon(h)
		s.starts[h]++
		_ = kit.Try(func() { s.settled(h) }) // it may be at work all the while
		kit.Check(s.ctx.Err())
	}
	s.flowing(s.forward, 10*time.Second)
}
