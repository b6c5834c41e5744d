package workload

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"multiedge/bench/report"
)

func TestSwitchesIn(t *testing.T) {
	name := filepath.Join(t.TempDir(), "status")
	must(t, os.WriteFile(name, []byte("Name:\tedged\nvoluntary_ctxt_switches:\t7\nnonvoluntary_ctxt_switches:\t41\n"),
		0o600))
	if e := switchesIn(name); e != (report.Effort{Voluntary: 7, Involuntary: 41}) {
		t.Errorf("%+v, want 7 and 41", e)
	}
	if e := switchesIn(name + ".gone"); e != (report.Effort{}) {
		t.Errorf("%+v of a thread that is gone", e)
	}
}

// A thread that sleeps a known number of times has made as many voluntary switches, by both ways to count.
func TestSwitchesOfKnownSleeps(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_CLOEXEC)
	must(t, err)
	defer unix.Close(fd)
	const sleeps = 200
	own, proc := ownSwitches(), switchesOf(os.Getpid())
	for range sleeps {
		must(t, unix.TimerfdSettime(fd, 0, &unix.ItimerSpec{Value: unix.NsecToTimespec(50_000)}, nil))
		var b [8]byte
		_, err := unix.Read(fd, b[:])
		must(t, err)
	}
	own, proc = ownSwitches().Since(own), switchesOf(os.Getpid()).Since(proc)
	for name, e := range map[string]report.Effort{"getrusage": own, "/proc": proc} {
		if e.Voluntary < sleeps*9/10 || e.Voluntary > 3*sleeps { // other threads of the runtime sleep as well
			t.Errorf("%s: %+v of %d sleeps", name, e, sleeps)
		}
	}
}
