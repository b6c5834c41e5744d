//go:build ctest

package drive

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"multiedge/edge/dsm"
)

// late is how long an end may take on a loaded machine. Without the thread that watches, a rank that computes never
// ends, and one whose daemon noticed nothing waits for 15 s.
const late = 5 * time.Second

// failed is the exit status of a rank whose run could not go on (DSM_FAILED).
const failed = 3

// together starts ranks that do one thing, and waits until all are there.
func (w *world) together(name string, ranks int, what string) (list []*process) {
	for rank := range ranks {
		list = append(list, w.start(name, rank, ranks, "rank", what))
	}
	for _, p := range list {
		p.ready()
	}
	return list
}

// checkFailed waits for the end of ranks, and finds words in what each says.
func checkFailed(t *testing.T, list []*process, words string) {
	t.Helper()
	for rank, p := range list {
		p.ends()
		if p.cmd.ProcessState.ExitCode() != failed || !strings.Contains(p.stderr.String(), words) {
			t.Errorf("rank %d ends with %v and says %q, want %q", rank, p.err, p.stderr.String(), words)
		}
	}
}

// When a rank is killed all others end soon, also while they compute or wait for a lock, with a cause.
func TestKill(t *testing.T) {
	w := newWorld(t, 3)
	for _, what := range []string{"barrier", "compute", "held"} {
		t.Run(what, func(t *testing.T) {
			list := w.together(what, 3, what)
			start := time.Now()
			must(t, list[2].cmd.Process.Kill())
			for _, p := range list[:2] {
				p.ends()
			}
			if took := time.Since(start); took > late {
				t.Errorf("after %v", took)
			}
			checkFailed(t, list[:2], "dsm: rank 2 on host2 was lost: ")
		})
	}
}

// A killed rank in C ends those in Go, and the failure of one in Go those in C.
func TestKillMixed(t *testing.T) {
	w := newWorld(t, 2)
	barriers := func(end error) func(m *dsm.Memory) error {
		return func(m *dsm.Memory) error {
			a := dsm.Alloc[uint8](m, 3*4096, dsm.At(1))
			dsm.Alloc[uint64](m, 1, dsm.Turns)
			for i := 0; ; i++ {
				if i == 10 && end != nil {
					return end
				}
				a.Set(m.Rank(), a.At(m.Rank())+1)
				m.Barrier()
			}
		}
	}
	c := dsm.Config{Ranks: 2, Size: 1 << 20, Locks: 8}
	wait := w.inGo("kill", 0, c, barriers(nil))
	p := w.start("kill", 1, 2, "rank", "barrier")
	p.ready()
	must(t, p.cmd.Process.Kill())
	if err := wait(); !errors.Is(err, dsm.ErrRank) || !strings.Contains(err.Error(), "rank 1 on host1 was lost") {
		t.Error(err)
	}
	own := errors.New("no more bananas")
	wait = w.inGo("told", 0, c, barriers(own))
	p = w.start("told", 1, 2, "rank", "barrier")
	checkFailed(t, []*process{p}, "dsm: rank 0 on host0 failed: no more bananas")
	if err := wait(); err != own {
		t.Error(err)
	}
}

// Mistakes of a program end the run at all ranks, with words that say what to do.
func TestMistakes(t *testing.T) {
	w := newWorld(t, 2)
	for what, words := range map[string]string{
		"return": "dsm: rank 1 on host1 failed: its program ended without dsm_exit",
		"twice":  "dsm: rank 1 on host1 failed: dsm_lock(1): this rank has the lock",
		"far":    "dsm: rank 1 on host1 failed: byte 524288 of the shared memory is used, and is not allocated",
		"thread": "dsm: rank 1 on host1 failed: a thread touches the shared memory that did not call dsm_init",
		"differ": "failed: ranks 0 and 1 have allocated differently", // each finds it
	} {
		t.Run(what, func(t *testing.T) {
			list := []*process{w.start(what, 0, 2, "rank", what), w.start(what, 1, 2, "rank", what)}
			checkFailed(t, list, words)
		})
	}
}

// A fault elsewhere is the program's: it dies of it, and the others say that it was lost.
func TestFaultElsewhere(t *testing.T) {
	w := newWorld(t, 2)
	list := []*process{w.start("stray", 0, 2, "rank", "stray"), w.start("stray", 1, 2, "rank", "stray")}
	checkFailed(t, list[:1], "dsm: rank 1 on host1 was lost")
	list[1].ends()
	if said := list[1].err.Error() + list[1].stderr.String(); !strings.Contains(said, "segmentation fault") &&
		!strings.Contains(said, "AddressSanitizer: SEGV on unknown address 0x000000000008") {
		t.Errorf("%s", said)
	}
}

// A program that jumps into a page that it has written dies of the fault, though the page is shared memory, and the
// others say that it was lost; it does not fault for ever.
func TestJumpIntoMemory(t *testing.T) {
	w := newWorld(t, 2)
	list := []*process{w.start("jump", 0, 2, "rank", "jump"), w.start("jump", 1, 2, "rank", "jump")}
	checkFailed(t, list[:1], "dsm: rank 1 on host1 was lost")
	list[1].ends()
	if said := list[1].err.Error() + list[1].stderr.String(); !strings.Contains(said, "segmentation fault") &&
		!strings.Contains(said, "AddressSanitizer: SEGV") {
		t.Errorf("%s", said)
	}
}

// Faults elsewhere go to the handler that the program had, in both forms of handlers.
func TestHandlerFromBefore(t *testing.T) {
	w := newWorld(t, 2)
	for _, what := range []string{"handler with info", "handler"} {
		for _, p := range w.together(what, 2, what) {
			p.well()
		}
	}
}

// A child of fork that touches the shared memory ends, with words; the run does not.
func TestFork(t *testing.T) {
	w := newWorld(t, 2)
	list := w.together("fork", 2, "fork")
	for _, p := range list {
		p.well()
	}
	if said := list[0].stderr.String(); !strings.Contains(said, "a child of fork touches the shared memory") {
		t.Errorf("%q", said)
	}
}

// System calls fail with EFAULT where memory is missing, and work after dsm_touch; and faults need no room on the
// stack.
func TestSystemCalls(t *testing.T) {
	w := newWorld(t, 2)
	for _, what := range []string{"system", "small"} {
		for _, p := range w.together(what, 2, what) {
			p.well()
		}
	}
}

// A rank that does not come, and one that disagrees, are named.
func TestJoin(t *testing.T) {
	w := newWorld(t, 2)
	list := []*process{w.start("other", 0, 2, "random", "1", "1", "64"),
		w.start("other", 1, 2, "random", "1", "1", "16")}
	list[1].ends()
	if said := list[1].stderr.String(); !strings.Contains(said, "all must have the same") {
		t.Errorf("%q", said)
	}
	must(t, list[0].cmd.Process.Kill())
	c := dsm.Config{Ranks: 3, Size: 1 << 20, Locks: 8, Join: 300 * time.Millisecond}
	wait := w.inGo("late", 0, c, func(*dsm.Memory) error { return nil })
	p := w.start("late", 1, 3, "rank", "barrier")
	words := fmt.Sprintf("ranks %v did not come within 300ms", []int{2})
	checkFailed(t, []*process{p}, words)
	if err := wait(); err == nil || !strings.Contains(err.Error(), words) {
		t.Error(err)
	}
}
