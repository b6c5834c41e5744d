package shard

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"multiedge/internal/ipc"
	"multiedge/internal/mono"

	"golang.org/x/sys/unix"
)

// A client that waits for its doorbell very many times at once makes a ring take as long as waking them does. It holds
// up the shard until that was more than its share, and is woken nevertheless.
func TestClientThatWaitsVeryOften(t *testing.T) {
	bell, err := ipc.NewDoorbell()
	if err != nil {
		t.Fatal(err)
	}
	fd, err := bell.Watch()
	if err != nil {
		t.Fatal(err)
	}
	set := make([]unix.PollFd, mostDescriptors(t, 100_000))
	for i := range set {
		set[i] = unix.PollFd{Fd: int32(fd), Events: unix.POLLIN}
	}
	r, d := &ringer{bell: bell}, new(debt)
	watcher, err := ipc.WatcherFromFD(fd)
	if err != nil {
		t.Fatal(err)
	}
	rung := func() (took time.Duration) {
	again:
		thread, woken := make(chan int), make(chan error, 1)
		go func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			thread <- unix.Gettid()
			n, err := pollFor(set, 10_000)
			if err == nil && n == 0 {
				err = fmt.Errorf("nobody rang")
			}
			woken <- err
		}()
		stat := fmt.Sprintf("/proc/self/task/%d/syscall", <-thread)
		for asleep := false; !asleep; runtime.Gosched() {
			select {
			case err := <-woken: // by a ring of before
				if err != nil {
					t.Fatal(err)
				}
				watcher.Clear()
				goto again
			default:
			}
			b, _ := os.ReadFile(stat)
			asleep = strings.HasPrefix(string(b), fmt.Sprint(unix.SYS_POLL)+" ") ||
				strings.HasPrefix(string(b), fmt.Sprint(unix.SYS_PPOLL)+" ")
		}
		from := mono.Now()
		r.owe(owed{bell: true})
		r.ring(d)
		took = mono.Now().Sub(from)
		if err := <-woken; err != nil {
			t.Fatal(err)
		}
		watcher.Clear()
		return took
	}
	first := rung()
	if first <= 4*longRing {
		lacks(t, "more descriptors (ulimit -n): %d waits cost %v only", len(set), first)
	}
	least := first
	for tries := 0; tries < 50 && least > first/4; tries++ {
		least = min(least, rung())
	}
	if least > first/4 {
		t.Errorf("the shard was held up for %v, and then for %v and more each time", first, least)
	}
	r.end()
	r.running.Wait()
	bell.Close()
	watcher.Close()
}

// Long rings that come now and then, as interrupts make them, are within the clients' share; more often they are not.
func TestRingsWithinTheirShare(t *testing.T) {
	for _, c := range []struct {
		name  string
		took  time.Duration
		every time.Duration
		want  int // of a hundred, the first that is too much; 0: none
	}{
		{"a hundredth of the time", 150 * time.Microsecond, 15 * time.Millisecond, 0},
		{"twice that", 150 * time.Microsecond, 7500 * time.Microsecond, 66},
		{"without a pause", 150 * time.Microsecond, 150 * time.Microsecond, 34},
		{"one for long", 6 * time.Millisecond, time.Second, 1},
	} {
		var r ringer
		var all debt
		first := 0
		for i := 1; i <= 100 && first == 0; i++ {
			if r.tooLong(mono.Time(i)*mono.Time(c.every), c.took, &all) {
				first = i
			}
		}
		if first != c.want {
			t.Errorf("%s: ring %d is too much, want %d", c.name, first, c.want)
		}
	}
}

// TestRingsOfOthers has a client whose one ring took a quarter of a second, after which the few long rings of others,
// which are the kernel's work and not theirs, stay with the shard's thread.
func TestRingsOfOthers(t *testing.T) {
	var hostile, other ringer
	var all debt
	if !hostile.tooLong(1, 250*time.Millisecond, &all) {
		t.Error("a ring of 250 ms is not too much")
	}
	for i := range 50 {
		at := mono.Time(1).Add(time.Duration(i) * 200 * time.Millisecond)
		if other.tooLong(at, 150*time.Microsecond, &all) {
			t.Fatalf("ring %d of another client is too much", i)
		}
	}
	first, hasty := 0, ringer{}
	for i := 1; i <= 100 && first == 0; i++ {
		if hasty.tooLong(mono.Time(20e9).Add(time.Duration(i)*150*time.Microsecond), 150*time.Microsecond, &all) {
			first = i
		}
	}
	if first != 34 {
		t.Errorf("ring %d of a client without pause is too much, want 34: nothing is owed after twenty seconds", first)
	}
}

// mostDescriptors lets this process have so many descriptors until the test ends, or as many as it may.
func mostDescriptors(t *testing.T, want uint64) uint64 {
	t.Helper()
	var was unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	limit := unix.Rlimit{Cur: max(was.Cur, want), Max: max(was.Max, want)}
	if unix.Setrlimit(unix.RLIMIT_NOFILE, &limit) != nil {
		return was.Cur
	}
	t.Cleanup(func() { unix.Setrlimit(unix.RLIMIT_NOFILE, &was) })
	return want
}

// A client on the shard's own core runs before the call that woke it returns. Such a ring seems long and is not: the
// shard goes on ringing by itself, which costs the client no switches between threads of the runtime.
func TestClientOnTheSameCore(t *testing.T) {
	bell, err := ipc.NewDoorbell()
	if err != nil {
		t.Fatal(err)
	}
	fd, err := bell.Watch()
	if err != nil {
		t.Fatal(err)
	}
	watcher, err := ipc.WatcherFromFD(fd)
	if err != nil {
		t.Fatal(err)
	}
	defer watcher.Close()
	r, d := &ringer{bell: bell}, new(debt)
	const most, after = 20_000, 100 // rings in all, and once one has seemed long
	asleep, bound, rung := make(chan bool), make(chan error, 2), make(chan bool)
	bind := func() {
		runtime.LockOSThread() // and never unlocks: the thread ends with its goroutine
		var all, one unix.CPUSet
		err := unix.SchedGetaffinity(0, &all)
		for i := 0; err == nil && one.Count() == 0; i++ {
			if all.IsSet(i) {
				one.Set(i)
			}
		}
		bound <- errors.Join(err, unix.SchedSetaffinity(0, &one))
	}
	var client sync.WaitGroup
	client.Go(func() { // it works for a while whenever it was woken
		bind()
		// With a real-time priority it runs as soon as it is woken. Who may not have one is as likely to.
		unix.SchedSetAttr(0, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Priority: 1}, 0)
		for {
			select {
			case asleep <- true:
			case <-rung:
				return
			}
			pollFor([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 10_000)
			watcher.Clear()
			for from := mono.Now(); mono.Now().Sub(from) < 2*longRing; {
			}
		}
	})
	go func() { // the shard
		bind()
		defer close(rung)
		for i, left := 0, after; i < most && left > 0; i++ {
			<-asleep
			r.owe(owed{bell: true})
			r.ring(d)
			if r.doubt != 0 {
				left--
			}
		}
	}()
	<-rung
	client.Wait() // it may have yet to wait for a ring of before, by descriptors that are about to be closed
	if err := errors.Join(<-bound, <-bound); err != nil {
		t.Fatal(err)
	}
	defer func() { r.end(); r.running.Wait(); bell.Close() }()
	if r.doubt == 0 {
		lacks(t, "a real-time priority: the kernel never let the client run within the call")
	}
	if r.asked != nil {
		t.Error("rings that only seemed long are left to a goroutine")
	}
}
