package shard

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"multiedge/internal/ipc"
	"multiedge/internal/mono"

	"golang.org/x/sys/unix"
)

// A client that waits for its doorbell very many times at once makes a ring take as long as waking them does. It holds
// up the shard once in a thousand times as long, and is woken nevertheless.
func TestClientThatWaitsVeryOften(t *testing.T) {
	bell, err := ipc.NewDoorbell()
	if err != nil {
		t.Fatal(err)
	}
	fd, err := bell.Watch()
	if err != nil {
		t.Fatal(err)
	}
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	set := make([]unix.PollFd, min(limit.Cur, 1<<20))
	for i := range set {
		set[i] = unix.PollFd{Fd: int32(fd), Events: unix.POLLIN}
	}
	r := &ringer{bell: bell}
	watcher, err := ipc.WatcherFromFD(fd)
	if err != nil {
		t.Fatal(err)
	}
	rung := func() (took time.Duration) {
		thread, woken := make(chan int), make(chan error)
		go func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			thread <- unix.Gettid()
			n, err := unix.Poll(set, 10_000)
			if err == nil && n == 0 {
				err = fmt.Errorf("nobody rang")
			}
			woken <- err
		}()
		stat := fmt.Sprintf("/proc/self/task/%d/syscall", <-thread)
		for asleep := false; !asleep; runtime.Gosched() {
			b, _ := os.ReadFile(stat)
			asleep = strings.HasPrefix(string(b), fmt.Sprint(unix.SYS_POLL)+" ") ||
				strings.HasPrefix(string(b), fmt.Sprint(unix.SYS_PPOLL)+" ")
		}
		from := mono.Now()
		r.ring()
		took = mono.Now().Sub(from)
		if err := <-woken; err != nil {
			t.Fatal(err)
		}
		watcher.Clear()
		return took
	}
	first := rung()
	if first <= 4*longRing {
		t.Skipf("%d waits cost %v only", len(set), first)
	}
	least := first
	for range 5 {
		least = min(least, rung())
	}
	if least > first/4 {
		t.Errorf("the shard was held up for %v, and then for %v and more each time", first, least)
	}
	r.end()
	r.close()
	watcher.Close()
}
