package proc

import (
	"os"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func of(t *testing.T, pid int) Usage {
	t.Helper()
	u, err := Of(pid)
	must(t, err)
	return u
}

// threadTime is the processor time of the calling thread by its own clock.
func threadTime(t *testing.T) time.Duration {
	t.Helper()
	var ts unix.Timespec
	must(t, unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts))
	return time.Duration(ts.Nano())
}

// A thread that sleeps a known number of times has made as many voluntary switches, by all ways to count.
func TestSwitchesOfKnownSleeps(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_CLOEXEC)
	must(t, err)
	defer unix.Close(fd)
	const sleeps = 200
	self, thread, other := Self(), Thread(), of(t, os.Getpid())
	for range sleeps {
		must(t, unix.TimerfdSettime(fd, 0, &unix.ItimerSpec{Value: unix.NsecToTimespec(50_000)}, nil))
		var b [8]byte
		_, err := unix.Read(fd, b[:])
		must(t, err)
	}
	inProcess, inThread, inProc := Since(Self(), self), Since(Thread(), thread), Since(of(t, os.Getpid()), other)
	if n := inThread.Voluntary; n < sleeps*9/10 || n > sleeps*11/10 {
		t.Errorf("this thread: %+v of %d sleeps", inThread, sleeps)
	}
	// Other threads of the runtime sleep as well, on a slow machine more often than this one.
	if n, m := inProcess.Voluntary, inProc.Voluntary; min(n, m) < inThread.Voluntary*9/10 || max(n, m) > 2*min(n, m) {
		t.Errorf("this process: %+v, and by /proc %+v, of %d sleeps of one thread", inProcess, inProc, sleeps)
	}
}

// Memory that is written, locked and counted, and processor time, show by all ways to count; nothing of a process that
// does not exist does.
func TestMemoryAndTime(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	pid := os.Getpid()
	self, thread, other := Self(), Thread(), of(t, pid)
	resident, locked, open := Resident(pid), Locked(pid), Descriptors(pid)
	counted, anonymous := CountedResident(pid)
	const size = 16 << 20
	m, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	must(t, err)
	defer unix.Munmap(m)
	for start := threadTime(t); threadTime(t)-start < 30*time.Millisecond; { // however long it waits for a processor
		for i := 0; i < size; i += os.Getpagesize() {
			m[i]++
		}
	}
	must(t, unix.Mlock(m[:1<<20]))
	r, w, err := os.Pipe()
	must(t, err)
	defer r.Close()
	defer w.Close()
	for name, u := range map[string]Usage{"this process": Since(Self(), self), "this thread": Since(Thread(), thread),
		"/proc": Since(of(t, pid), other)} {
		// huge pages where the machine gives them unasked; the kernel may owe /proc a tick
		if u.Faults < 2 || u.User+u.System < 0.015 || u.User+u.System > 5 {
			t.Errorf("%s: %+v of 4096 new pages, written to for 30 ms", name, u)
		}
	}
	if n := Resident(pid) - resident; n < size/2 || n > 4*size {
		t.Errorf("%d bytes more are resident, want about %d", n, size)
	}
	shared, err := unix.Mmap(-1, 0, size/2, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_ANON)
	must(t, err)
	defer unix.Munmap(shared)
	for i := 0; i < len(shared); i += os.Getpagesize() {
		shared[i]++
	}
	all, private := CountedResident(pid)
	if n, mapped := private-anonymous, all-counted-(private-anonymous); n < size/2 || n > 4*size || mapped < size/4 ||
		mapped > size {
		t.Errorf("%d bytes more are anonymous and %d are not, want about %d and %d", n, mapped, size, size/2)
	}
	if n := Locked(pid) - locked; n != 1<<20 {
		t.Errorf("%d bytes more are locked, want %d", n, 1<<20)
	}
	if n := Descriptors(pid) - open; n != 2 {
		t.Errorf("%d descriptors more, want 2", n)
	}
	const nobody = 1 << 30
	counted, anonymous = CountedResident(nobody)
	if _, err := Of(nobody); err == nil || Resident(nobody)+Locked(nobody)+counted+anonymous != 0 ||
		Descriptors(nobody) != -1 {
		t.Error("a process that does not exist has used something")
	}
}

// Differences and sums are field by field; what fell is zero, what is no number stays.
func TestFields(t *testing.T) {
	type inner struct{ N uint64 }
	type all struct {
		Count uint64
		Size  float64
		In    inner
		Each  [2]inner
		Name  string
	}
	a := all{5, 2.5, inner{7}, [2]inner{{1}, {9}}, "a"}
	b := all{2, 3, inner{3}, [2]inner{{2}, {4}}, "b"}
	if got, want := Since(a, b), (all{3, 0, inner{4}, [2]inner{{0}, {5}}, "a"}); got != want {
		t.Errorf("since: %+v, want %+v", got, want)
	}
	if got, want := Sum(a, b, b), (all{9, 8.5, inner{13}, [2]inner{{5}, {17}}, "a"}); got != want {
		t.Errorf("sum: %+v, want %+v", got, want)
	}
}
