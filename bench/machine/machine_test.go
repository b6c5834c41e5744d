package machine

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) {
	if len(os.Args) == 4 && os.Args[1] == CommandPeer {
		mode, _ := strconv.Atoi(os.Args[2])
		core, _ := strconv.Atoi(os.Args[3])
		if err := Peer(mode, core); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// The card has every figure that this machine can give, each possible at all.
func TestCard(t *testing.T) {
	var set unix.CPUSet
	cores := allowed(&set)
	c := Measure()
	for _, f := range []struct {
		name        string
		v           float64
		least, most float64
		has         bool
	}{
		{"system call", c.SystemCall, 10, 1e6, true},
		{"yield", c.YieldSwitch, 10, 1e8, true},
		{"futex", c.FutexOneCore, 10, 1e8, true},
		{"futex across", c.FutexAcross, 100, 1e8, len(cores) > 1},
		{"eventfd", c.EventfdOneCore, 10, 1e8, true},
		{"eventfd across", c.EventfdAcross, 10, 1e8, len(cores) > 1},
		{"first touch", c.FirstTouch, 10, 1e7, true},
		{"hot", c.CopyHot, 1e8, 1e13, true},
		{"cold", c.CopyCold, 1e7, 1e13, true},
		{"AES", c.AESGCM, 1e7, 1e12, true},
		{"AES, standard", c.AESGCMStandard, 1e7, 1e12, true},
		{"CRC32C", c.CRC32C, 1e7, 1e12, true},
	} {
		if f.has && (f.v < f.least || f.v > f.most) || !f.has && f.v != 0 {
			t.Errorf("%s: %g, want %g to %g (%v)", f.name, f.v, f.least, f.most, f.has)
		}
	}
	if want := 12 - 2*min(1, max(0, 2-len(cores))); len(c.Lines()) != want {
		t.Errorf("%d lines, want %d: %s", len(c.Lines()), want, c.String())
	}
	var after unix.CPUSet
	if allowed(&after); after != set {
		t.Errorf("the thread may run on %v afterwards, before on %v", after, set)
	}
}

// A hand-over is two processes that take turns: as many answers as questions, and a switch of each process for each
// where they share a core.
func TestHandOversAreSwitches(t *testing.T) {
	var set unix.CPUSet
	cores := allowed(&set)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer unix.SchedSetaffinity(0, &set)
	if err := bind(cores[0]); err != nil {
		t.Fatal(err)
	}
	for _, w := range []way{byYield, byFutex, byEventfd} {
		p, err := startPeer(w, cores[0])
		if err != nil {
			t.Fatal(err)
		}
		before := uint32(0)
		for i := range 200 {
			if err := p.ask(); err != nil {
				t.Fatal(err)
			}
			if a := p.page.answer.Load(); a != before+1 {
				t.Fatalf("way %d, question %d: answer %d after %d", w, i, a, before)
			}
			before++
		}
		if n := switches(t, p.cmd.Process.Pid); n < 190 {
			t.Errorf("way %d: the peer left the core %d times for 200 questions", w, n)
		}
		p.end()
	}
}

// A peer that dies ends the wait.
func TestPeerThatDies(t *testing.T) {
	for _, w := range []way{byYield, byFutex, byEventfd} {
		p, err := startPeer(w, 0)
		if err != nil {
			t.Fatal(err)
		}
		if err := p.ask(); err != nil {
			t.Fatal(err)
		}
		if err := p.cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		deadline := time.Now().Add(10 * time.Second)
		for err == nil && time.Now().Before(deadline) {
			err = p.ask()
		}
		if err == nil {
			t.Errorf("way %d: a dead peer answers", w)
		}
		p.end()
	}
}

// switches is how often the threads of a process left a processor.
func switches(t *testing.T, pid int) (n int) {
	t.Helper()
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	for _, name := range tasks {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			if name, v, ok := strings.Cut(line, "voluntary_ctxt_switches:"); ok && (name == "" || name == "non") {
				k, _ := strconv.Atoi(strings.TrimSpace(v))
				n += k
			}
		}
	}
	return n
}

// Commands that this one starts have its card, and do not measure.
func TestCardIsInherited(t *testing.T) {
	t.Setenv(CardVariable, `{"system_call_ns":123}`)
	if c := This().Card; c.SystemCall != 123 || c.CopyHot != 0 {
		t.Errorf("the card is %v, not the inherited one", c)
	}
}
