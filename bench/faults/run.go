package faults

import (
	"cmp"
	"context"
	"errors"
	"regexp"
	"slices"
	"time"

	"multiedge/bench/kit"
	"multiedge/bench/report"
	"multiedge/internal/lab"
)

// Options choose what is run.
type Options struct {
	Only   *regexp.Regexp // nil: all
	Short  bool           // the form for every change: a minute and a half, speed not judged
	Seed   uint64
	Driver string   // of links: linkdrv.KindUDP, linkdrv.KindAlone, or empty, which is kit.ClusterSpec's choice
	Self   []string // how to run this program; empty: the executable
}

// Select returns the scenarios that the options choose, in order.
func Select(o Options) []Scenario {
	var out []Scenario
	for _, s := range All() {
		if o.Only != nil && !o.Only.MatchString(s.Name) && !o.Only.MatchString(s.Group) {
			continue
		}
		if o.Short && !s.Short && o.Only == nil {
			continue
		}
		out = append(out, s)
	}
	return out
}

// Run runs scenarios one after another, each on a lab of its own, and passes each row to sink. It repeats a scenario
// that failed only in figures of speed while a hypervisor took processors. It returns an error only when ctx ended.
func Run(ctx context.Context, scenarios []Scenario, o Options, begin func(i int, s *Scenario),
	sink func(*Row) error) error {
	for i := range scenarios {
		begin(i, &scenarios[i])
		for try := 1; ; try++ {
			r := runOne(ctx, &scenarios[i], o)
			if ctx.Err() != nil {
				return ctx.Err()
			}
			again := try < mostTries && r.disturbed()
			if again {
				r.Verdict = Again
			}
			if err := sink(r); err != nil {
				return err
			}
			if !again {
				break
			}
		}
	}
	return nil
}

// mostTries is how often a scenario runs at most.
const mostTries = 6

// scenarioTime bounds a scenario: one that hangs fails, and the others go on.
const scenarioTime = 3 * time.Minute

func runOne(ctx context.Context, s *Scenario, o Options) *Row {
	ctx, cancel := context.WithTimeout(ctx, scenarioTime)
	defer cancel()
	r, spec := newRow(s), stageSpec(o.Seed)
	spec.Self, spec.Driver = o.Self, o.Driver
	if s.Set != nil {
		s.Set(&spec)
	}
	t := &Trial{row: r, short: o.Short, seed: o.Seed}
	r.carry(ctx, spec, cmp.Or(s.Dead, deadTime), func(scene *Scene) {
		t.Scene = scene
		s.Run(t)
	}, func() *Trial { return t })
	return r
}

// carry builds a scene, has work done on it, and judges the trial of that work by what holds for all.
func (r *Row) carry(ctx context.Context, spec kit.ClusterSpec, dead time.Duration, work func(*Scene),
	trial func() *Trial) {
	start, stolen := time.Now(), report.StolenSeconds()
	scene, err := newScene(ctx, spec, dead)
	if err == nil {
		err = kit.Try(func() {
			r.Security = scene.security()
			func() {
				defer scene.end()
				work(scene)
			}()
			trial().some()
			kit.Doing(trial().finish, "ending")
			trial().proven()
		})
		if err != nil && trial() != nil {
			trial().alive() // report the crash, not only its consequences
		}
		err = errors.Join(err, scene.close())
	}
	if err != nil {
		r.Error = err.Error()
	}
	r.Seconds = time.Since(start).Seconds()
	r.stolen(stolen)
	r.close()
}

// All are the scenarios, in the order of docs/RELIABILITY.md.
func All() []Scenario {
	return slices.Concat(networkScenarios(), linkScenarios(), hostScenarios(), memoryScenarios(), nicScenarios(),
		adversaryScenarios(), accountScenarios(), shareScenarios(),
		loadScenarios(), userScenarios(), recablingScenarios(), atomicScenarios(), spaceScenarios(), messageScenarios(),
		redirectionScenarios(), strictScenarios(), earlyScenarios(), routedScenarios(), markScenarios())
}

func networkScenarios() []Scenario {
	return []Scenario{
		loss(0.001, 0, false), loss(0.01, 0, true), loss(0.05, 0, false), loss(0.30, 0, false),
		loss(0.02, 3, false), loss(0.05, 16, true), loss(0.05, 64, false),
		setup("set-up at 30 % loss", lab.Faults{Loss: 0.3}, true), setup("set-up at 30 % corruption",
			lab.Faults{Corrupt: 0.3}, false),
		reordering("reordering over thousands of frames", false, smallFrames,
			everywhere(lab.Faults{Reorder: 0.01, ReorderBy: 100 * time.Millisecond}), reordered),
		reordering("reordering of a fifth of the frames by 1 ms", true, shaped, everywhere(lab.Faults{Reorder: 0.2}),
			reordered),
		fences(),
		reordering("links whose delays differ 50:1", true, twoLinks, delays(200*time.Microsecond, 10*time.Millisecond),
			delayed),
		duplication(0.01, false), duplication(0.20, true), duplication(0.50, false),
		corruption(0.02, true), corruption(0.30, false),
		shuffled(),
	}
}

func smallFrames(s *kit.ClusterSpec) { s.Lab.MTU, s.Lab.Rates = 1500, []string{shapedRate} }

// delays gives each link a delay of its own.
func delays(d ...time.Duration) func(*Trial) {
	return func(t *Trial) {
		for i := range d {
			t.setFaultsOf(i, lab.Faults{Delay: d[i]})
		}
	}
}

func reordered(u *under) uint64 { return u.wires.Reordered }

func delayed(u *under) uint64 { return u.wires.Received }

func linkScenarios() []Scenario {
	return slices.Concat([]Scenario{
		black("one of two links black, both directions", -1, 0, true),
		black("one of two links black towards the receiver", 1, 0, false),
		black("one of two links black towards the sender", 0, 0, false),
		black("one of two links black for half a minute", -1, 30, false),
		flapping(), gone(),
	}, mtuScenarios(), shrinkScenarios(), []Scenario{unequal(), longer()})
}
