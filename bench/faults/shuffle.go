package faults

import (
	"time"

	"multiedge/bench/kit"
	"multiedge/internal/config"
	"multiedge/internal/lab"
)

// shuffled makes daemons with copy = "shuffle" (PROTOCOL clause 2.6) carry random operations over wires that lose,
// repeat, reorder and damage frames. Bytes that replace their headers in the wrong place, or twice, show as wrong bytes
// in memory. Sealed frames are not shuffled, so frames are in plaintext; only checksums detect damage.
func shuffled() Scenario {
	faults := lab.Faults{Loss: 0.01, Dup: 0.02, Reorder: 0.05, Corrupt: 0.005}
	return Scenario{
		Name: "header shuffle under mixed faults", Group: Network, Criteria: "frames arrive with shuffled headers",
		Short: true,
		Set: func(s *kit.ClusterSpec) {
			s.Lab.Links, s.Copy, s.Security, s.Checksum = 2, config.CopyShuffle, config.Plaintext, "full"
		},
		Run: func(t *Trial) {
			u := t.under(MixRandom, 2, 8, everywhere(faults), t.span(3*time.Second, 500*time.Millisecond), 1)
			t.injected("lost", u.wires.Lost)
			t.injected("duplicated", u.wires.Duplicated)
			t.injected("reordered", u.wires.Reordered)
			t.injected("corrupted", u.wires.Corrupted)
			n := u.did["frames_shuffled"]
			t.counted("frames shuffled", n)
			t.check("frames arrive shuffled", n > 0, "%d", n)
		},
	}
}
