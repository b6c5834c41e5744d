// Package fault says what bad links do to frames. The wires of labs (internal/lab), the segments of the simulator
// (internal/sim) and the networks of the engine's tests have the same faults, and draw the fate of each frame by the
// same function. Links in memory (linkdrv/linktest) have none.
package fault

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// Faults is what a link does to each frame that it carries, in each direction by itself. Shares are probabilities, 0 to
// 1, and do not depend on each other. The zero Faults is a good link.
type Faults struct {
	Loss      float64       // share of frames lost
	Burst     int           // frames are lost in runs of this length; 0 and 1: singly
	Dup       float64       // share delivered twice
	Corrupt   float64       // share of copies with one bit flipped, behind the Ethernet header
	Reorder   float64       // share held back by ReorderBy
	ReorderBy time.Duration // 1 ms if zero
	Hold      float64       // share of which another copy comes much later
	HoldFor   time.Duration // at most so much later
	HoldSetup bool          // Hold is also of frames that set sessions up, not only of data
	Delay     time.Duration // of every frame
	Jitter    time.Duration // more, uniformly: frames overtake each other
	Rate      float64       // bytes per second; 0: unlimited
	// what the queue of a limited link holds, as time; frames beyond it are dropped. 0: no bound
	Queue time.Duration
	// bytes after the Ethernet header: longer frames vanish, as in a device with a smaller MTU; 0: no limit
	Longest int
	Walled  bool // datagrams vanish
	Cut     bool // everything does
}

// Any reports whether f does anything at all.
func (f *Faults) Any() bool { return *f != Faults{} }

// Check says what is wrong with f.
func (f *Faults) Check() error {
	for _, p := range f.shares() {
		if !(p.share >= 0 && p.share <= 1) {
			return fmt.Errorf("fault: %s %v: give a share between 0 and 1", p.name, p.share)
		}
	}
	if min(f.Delay, f.ReorderBy, f.HoldFor, f.Jitter, f.Queue) < 0 || min(f.Burst, f.Longest) < 0 || !(f.Rate >= 0) {
		return errors.New("fault: delays, rates and the lengths of bursts and frames cannot be negative")
	}
	return nil
}

type share struct {
	name  string
	share float64
}

func (f *Faults) shares() []share {
	return []share{{"loss", f.Loss}, {"corruption", f.Corrupt}, {"duplication", f.Dup}, {"reordering", f.Reorder},
		{"late copies", f.Hold}}
}

// Describe lists the faults that are not zero, each behind a comma.
func (f *Faults) Describe() string {
	var b strings.Builder
	for _, p := range f.shares() {
		if p.share > 0 {
			fmt.Fprintf(&b, ", %s %.4g %%", p.name, 100*p.share)
		}
	}
	if f.Delay > 0 {
		fmt.Fprintf(&b, ", delay %v", f.Delay)
	}
	if f.Jitter > 0 {
		fmt.Fprintf(&b, ", jitter %v", f.Jitter)
	}
	if f.Rate > 0 {
		fmt.Fprintf(&b, ", %.4g Mbit/s", f.Rate*8/1e6)
	}
	if f.Longest > 0 {
		fmt.Fprintf(&b, ", frames of at most %d bytes", f.Longest)
	}
	return b.String()
}
