package faults

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"multiedge/bench"
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
	o        SoakOptions
	rng      *rand.Rand
	start    time.Time
	forward  *agent // client of host 0
	active   *mishap
	until    time.Time
	nextAt   time.Time
	roundAt  time.Time
	sampleAt time.Time
	stolen   float64 // seconds of processors, at the last sample
	starts   [2]int
	samples  []Sample
	rests    [2][]rest // of each host's daemon, since it was started last
	kinds    map[string]uint64
}

// Soak mixes faults while clients work, until the time is over. It passes every sample to show; the row judges the
// whole. If it is interrupted, it returns what it has.
func Soak(ctx context.Context, o SoakOptions, show func(*Sample)) (*Row, []Sample, error) {
	row := newRow(&Scenario{Name: fmt.Sprintf("soak of %v under mixed faults", o.Duration), Group: Load,
		Criteria: "resident memory at rest grows by less than 1 % per hour"})
	spec := stageSpec(o.Seed)
	spec.Self, spec.Driver, spec.Lab.Links = o.Self, o.Driver, 2
	s := &soak{o: o, rng: rand.New(rand.NewPCG(o.Seed, 23)), start: time.Now(), starts: [2]int{1, 1},
		kinds: map[string]uint64{}}
	begin, stolen := s.start, report.StolenSeconds()
	err := s.whole(ctx, spec, row, show)
	row.Seconds = time.Since(begin).Seconds()
	row.stolen(stolen)
	switch {
	case ctx.Err() != nil:
		row.Error = "interrupted"
	case err != nil:
		row.Error = err.Error()
	}
	row.close()
	return row, s.samples, ctx.Err()
}

func (s *soak) whole(ctx context.Context, spec bench.ClusterSpec, row *Row, show func(*Sample)) (err error) {
	stage, err := newStage(ctx, spec, soakDead)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stage.close()) }()
	row.Security = stage.security(ctx)
	stage.spaces = s.o.Spaces
	s.Trial = &Trial{Stage: stage, row: row, seed: s.o.Seed}
	if err := s.people(ctx); err != nil {
		return err
	}
	err = s.loop(ctx, show)
	for k, n := range s.kinds {
		s.injected(k, n)
	}
	s.some()
	s.slopes()
	if err != nil {
		s.alive()
		return err
	}
	if s.o.Spaces {
		now, err := s.daemonCounters(ctx)
		if err != nil {
			return err
		}
		s.missed(now)
	}
	if err := s.finish(ctx); err != nil {
		return err
	}
	s.proven()
	return nil
}

// people starts servers and clients in both directions.
func (s *soak) people(ctx context.Context) (err error) {
	if _, err = s.serve(ctx, 1, "store"); err != nil {
		return err
	}
	if _, err = s.serve(ctx, 0, "back"); err != nil {
		return err
	}
	if s.forward, err = s.work(ctx, "store", MixRandom, 2, 8); err != nil {
		return err
	}
	if _, err = s.workFrom(ctx, 1, 0, "back", MixSmall, 2, 4); err != nil {
		return err
	}
	return s.flowing(ctx, s.forward, 10*time.Second)
}

// every returns the time between samples, round the time between two comparisons of memory.
func (s *soak) every() time.Duration { return min(max(s.o.Duration/300, time.Second), 10*time.Second) }
func (s *soak) round() time.Duration { return min(max(s.o.Duration/60, 5*time.Second), 30*time.Second) }

func (s *soak) loop(ctx context.Context, show func(*Sample)) error {
	now := time.Now()
	s.start, s.stolen = now, report.StolenSeconds()
	s.nextAt, s.roundAt, s.sampleAt = now.Add(500*time.Millisecond), now.Add(s.round()), now.Add(s.every())
	for end := s.start.Add(s.o.Duration); time.Now().Before(end); {
		if err := s.step(ctx, show); err != nil {
			return err
		}
		if !sleep(ctx, soakStep) {
			return ctx.Err()
		}
	}
	if err := s.heal(ctx); err != nil {
		return err
	}
	return s.sample(ctx, show)
}

// step does whatever is due: heal, inject, sample or compare.
func (s *soak) step(ctx context.Context, show func(*Sample)) error {
	now := time.Now()
	if s.active != nil && now.After(s.until) {
		if err := s.heal(ctx); err != nil {
			return err
		}
	}
	if s.active == nil && now.After(s.roundAt) {
		if err := s.compareAll(ctx); err != nil {
			return err
		}
		s.roundAt = time.Now().Add(s.round())
	}
	if s.active == nil && now.After(s.nextAt) {
		if err := s.inject(ctx); err != nil {
			return err
		}
	}
	if now.After(s.sampleAt) && (s.active == nil || !s.active.mute) {
		if err := s.sample(ctx, show); err != nil {
			return err
		}
		s.sampleAt = time.Now().Add(s.every())
	}
	return nil
}

// inject starts a random mishap. It restarts daemons only in the first third, so that memory can be judged over the
// rest.
func (s *soak) inject(ctx context.Context) error {
	for {
		m := &mishaps[s.rng.IntN(len(mishaps))]
		if m.restarts && time.Since(s.start) > s.o.Duration/3 {
			continue
		}
		s.kinds[m.name]++
		s.active, s.until = m, time.Now().Add(m.least+time.Duration(s.rng.Float64()*float64(m.most-m.least)))
		if err := m.do(ctx, s); err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
		return nil
	}
}

func (s *soak) heal(ctx context.Context) error {
	m := s.active
	if m == nil {
		return nil
	}
	s.active, s.nextAt = nil, time.Now().Add(300*time.Millisecond+time.Duration(s.rng.IntN(500))*time.Millisecond)
	if m.undo != nil {
		if err := m.undo(ctx, s); err != nil {
			return fmt.Errorf("ending %s: %w", m.name, err)
		}
	}
	return nil
}

// compareAll makes all clients finish their work, compares memory, looks for leaks, and lets the clients go on.
func (s *soak) compareAll(ctx context.Context) error {
	if err := s.drainAll(ctx, s.tell); err != nil {
		return err
	}
	for h := range 2 {
		var st held
		_, ok := s.event(ctx, leakTime, func() bool {
			now, err := s.held(ctx, h)
			st = now
			return err == nil && now.Regions == 0 && now.Connections == 0 && now.Exports == 0 && now.Pinned == 0
		})
		if !ok {
			s.row.U[2].fail("host %d holds %d regions, %d connections, %d exports, %d pinned bytes when nobody works",
				h, st.Regions, st.Connections, st.Exports, st.Pinned)
		}
	}
	if _, ok := s.event(ctx, rejoinTime, func() bool { return s.entire(ctx) }); !ok {
		s.counted("rests without all links in use", 1)
	} else if err := s.collect(ctx); err != nil {
		return err
	}
	for _, c := range s.clients {
		if c.killed {
			continue
		}
		if err := c.tell(Order{Do: DoResume}); err != nil {
			return err
		}
	}
	return nil
}

// entire reports whether both daemons use both links to each other. A path takes memory, so what daemons hold is
// compared only in this state.
func (s *soak) entire(ctx context.Context) bool {
	return s.allGood(ctx, func(int, *inspect.PathStatus) bool { return true })
}
