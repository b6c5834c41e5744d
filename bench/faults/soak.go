package faults

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"multiedge/bench/kit"
	"multiedge/bench/report"
	"multiedge/internal/inspect"
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
	// resident memory without garbage when clients last rested; 0: not yet measured
	AtRest      uint64 `json:"at_rest_bytes"`
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
	kinds   map[string]uint64
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
	s := &soak{o: o, rng: rand.New(rand.NewPCG(o.Seed, 23)), start: time.Now(), starts: [2]int{1, 1},
		kinds: map[string]uint64{}}
	row.carry(ctx, spec, soakDead, func(scene *Scene) {
		scene.spaces = o.Spaces
		s.Trial = &Trial{Scene: scene, row: row, seed: o.Seed}
		s.people()
		err := kit.Try(func() { s.loop(show) })
		for k, n := range s.kinds {
			s.injected(k, n)
		}
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
		s.kinds[m.name]++
		s.active, s.due.heal = m, time.Now().Add(m.least+time.Duration(s.rng.Float64()*float64(m.most-m.least)))
		if err := kit.Try(func() { m.do(s) }); err != nil {
			kit.Fail("%s: %w", m.name, err)
		}
		return
	}
}

func (s *soak) heal() {
	m := s.active
	if m == nil {
		return
	}
	s.active, s.due.fault = nil, time.Now().Add(300*time.Millisecond+time.Duration(s.rng.IntN(500))*time.Millisecond)
	if err := kit.Try(func() { m.undo(s) }); err != nil {
		kit.Fail("ending %s: %w", m.name, err)
	}
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
		c.tell(Order{Do: DoResume})
	}
}

// entire reports whether both daemons use both links to each other. A path takes memory, so what daemons hold is
// compared only in this state.
func (s *soak) entire() bool {
	return s.allGood(func(int, *inspect.PathStatus) bool { return true })
}
