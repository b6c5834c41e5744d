package ipc

import (
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// watched returns a doorbell and its waiting side.
func watched(t testing.TB) (*Doorbell, *Watcher) {
	t.Helper()
	bell, err := NewDoorbell()
	must(t, err)
	t.Cleanup(func() { bell.Close() })
	fd, err := bell.Watch()
	must(t, err)
	w, err := WatcherFromFD(fd)
	must(t, err)
	t.Cleanup(func() { w.Close() })
	return bell, w
}

func readable(t testing.TB, fd int) bool {
	t.Helper()
	set := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	n, err := unix.Poll(set, 0)
	must(t, err)
	return n == 1
}

func TestWatcher(t *testing.T) {
	bell, w := watched(t)
	for round := range 3 {
		for _, ringer := range []struct {
			name string
			ring func()
		}{{"the other side", bell.Ring}, {"its own", w.Ring}, {"both", func() { bell.Ring(); w.Ring(); bell.Ring() }}} {
			if readable(t, w.FD()) {
				t.Fatalf("round %d: readable before %s rang", round, ringer.name)
			}
			ringer.ring()
			for range 2 { // a look does not take it
				if !readable(t, w.FD()) {
					t.Fatalf("round %d: not readable after %s rang", round, ringer.name)
				}
			}
			w.Clear()
		}
	}
}

// Nothing that a waiter does to the descriptor it was given makes the ringer's write wait, or takes its wake-ups from
// others.
func TestWatcherCannotJam(t *testing.T) {
	bell, w := watched(t)
	if _, err := unix.FcntlInt(uintptr(w.FD()), unix.F_SETFL, 0); err != nil {
		t.Fatal(err)
	}
	full := [8]byte{0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	if _, err := unix.Write(w.FD(), full[:]); err == nil {
		t.Error("the waiter can write to what it was given")
	}
	if f, err := os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", w.FD()), os.O_RDWR, 0); err == nil {
		f.Close()
		t.Error("the waiter can open anew what it was given")
	}
	if flags, err := unix.FcntlInt(uintptr(bell.FD()), unix.F_GETFL, 0); err != nil || flags&unix.O_NONBLOCK == 0 {
		t.Errorf("the ringer's file has flags %#x, %v", flags, err)
	}
	for range 1000 {
		bell.Ring()
	}
	if !readable(t, w.FD()) {
		t.Error("not readable after all")
	}
}
