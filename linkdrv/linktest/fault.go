package linktest

import (
	"fmt"
	"math/rand/v2"

	"github.com/mdlayher/ethernet"
)

// Faults says what a faulty link does to the frames sent through it. Probabilities are per frame, from 0 to 1, and
// exclusive: a frame meets at most one fault. The zero value is a perfect link.
type Faults struct {
	Seed uint64 // the same seed and the same frames give the same faults

	Loss    float64 // fraction of frames lost
	Dup     float64 // delivered twice
	Corrupt float64 // delivered with one byte changed, behind the Ethernet header
	Reorder float64 // delivered after ReorderBy later frames

	// BurstMin and BurstMax bound the length of the runs in which frames are lost, drawn evenly; 0 means 1. Loss stays
	// the overall fraction.
	BurstMin, BurstMax int
	ReorderBy          int // 0 means 3; at most MaxReorder

	// Only restricts the faults to frames of one EtherType; the others pass and do not count. 0 means all frames.
	Only ethernet.EtherType
}

// MaxReorder is the largest number of frames a faulty link holds back.
const MaxReorder = 1 << 16

// fate is what happens to one frame.
type fate uint8

const (
	pass fate = iota
	lose
	corrupt
	duplicate
	hold
)

// check reports values out of range, and completes the defaults.
func (f *Faults) check() error {
	for _, p := range []struct {
		name string
		v    float64
	}{{"Loss", f.Loss}, {"Dup", f.Dup}, {"Corrupt", f.Corrupt}, {"Reorder", f.Reorder}, {"Dup+Corrupt+Reorder",
		f.Dup + f.Corrupt + f.Reorder}} {
		if !(p.v >= 0 && p.v <= 1) {
			return fmt.Errorf("linktest: faults: %s is %v: want a probability from 0 to 1", p.name, p.v)
		}
	}
	f.BurstMin = max(f.BurstMin, 1)
	f.BurstMax = max(f.BurstMax, f.BurstMin)
	if f.ReorderBy == 0 {
		f.ReorderBy = 3
	}
	if f.ReorderBy < 0 || f.ReorderBy > MaxReorder {
		return fmt.Errorf("linktest: faults: ReorderBy is %d: want 1 to %d frames", f.ReorderBy, MaxReorder)
	}
	return nil
}

// judge draws the fates of successive frames.
type judge struct {
	Faults
	rng   *rand.Rand
	burst int     // frames of the current burst yet to be lost
	start float64 // probability that a frame outside bursts begins one
}

func newJudge(f Faults) *judge {
	j := &judge{Faults: f, rng: rand.New(rand.NewPCG(f.Seed, 0x6c696e6b))}
	// A burst of mean length L follows (1-s)/s delivered frames on average, so Loss = L / (L + (1-s)/s).
	mean := float64(f.BurstMin+f.BurstMax) / 2
	if f.Loss > 0 {
		j.start = f.Loss / (f.Loss + mean*(1-f.Loss))
	}
	return j
}

// next returns the fate of the next frame. Dup, Corrupt and Reorder are fractions of the frames that are not lost.
func (j *judge) next() fate {
	if j.burst > 0 {
		j.burst--
		return lose
	}
	if j.rng.Float64() < j.start {
		j.burst = j.BurstMin + j.rng.IntN(j.BurstMax-j.BurstMin+1) - 1
		return lose
	}
	u := j.rng.Float64()
	if u < j.Corrupt {
		return corrupt
	}
	if u -= j.Corrupt; u < j.Dup {
		return duplicate
	}
	if u -= j.Dup; u < j.Reorder {
		return hold
	}
	return pass
}

// damage changes one byte of a frame behind its first from bytes.
func (j *judge) damage(frame []byte, from int) {
	frame[from+j.rng.IntN(len(frame)-from)] ^= byte(1 + j.rng.IntN(255))
}
