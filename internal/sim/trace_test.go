package sim

import (
	"flag"
	"fmt"
	"testing"
)

var hashes = flag.Int("hashes", 0, "print the hashes of the traces of so many seeds, to compare two states of the code")

// TestTraceHashes prints what two builds that behave alike have in common, and checks that no seed fails.
func TestTraceHashes(t *testing.T) {
	for seed := uint64(1); seed <= uint64(*hashes); seed++ {
		r, err := Swarm(seed, Watch{Trace: true})
		fmt.Printf("seed %d: %d frames, hash %016x\n", seed, r.Tally.Sent, r.Hash)
		must(t, err)
	}
}
