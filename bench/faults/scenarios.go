package faults

import (
	"slices"
	"time"

	"multiedge/bench/kit"
	"multiedge/internal/lab"
)

// All are the scenarios, in the order of docs/RELIABILITY.md.
func All() []Scenario {
	return slices.Concat(networkScenarios(), linkScenarios(), hostScenarios(), memoryScenarios(), nicScenarios(),
		adversaryScenarios(), accountScenarios(), shareScenarios(),
		loadScenarios(), userScenarios(), recablingScenarios(), atomicScenarios(), spaceScenarios(), messageScenarios(),
		redirectionScenarios(), strictScenarios())
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
