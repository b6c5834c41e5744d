package shard

import (
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The runtime, which is told nothing of a nap, ends it by a signal when it has to stop everything.
func TestCollectionEndsNap(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(max(2, runtime.GOMAXPROCS(0))))
	bell, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(bell)
	begins, ended := make(chan struct{}), make(chan int)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		close(begins)
		ended <- pollUntold([]unix.PollFd{{Fd: int32(bell), Events: unix.POLLIN}}, time.Hour)
	}()
	<-begins
	for n := 0; ; {
		runtime.GC()
		select {
		case n = <-ended:
			if n != -1 {
				t.Errorf("the nap ended with %d, want -1", n)
			}
			return
		default:
		}
	}
}

// A nap ends with what it waits for, and with its time.
func TestNapEnds(t *testing.T) {
	bell, err := unix.Eventfd(1, unix.EFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(bell)
	set := []unix.PollFd{{Fd: int32(bell), Events: unix.POLLIN}}
	if n := pollUntold(set, time.Hour); n != 1 || set[0].Revents != unix.POLLIN {
		t.Errorf("%d are ready, with %#x", n, set[0].Revents)
	}
	set[0].Events = 0
	for n := -1; n != 0; {
		if n = pollUntold(set, time.Nanosecond); n > 0 {
			t.Fatalf("%d are ready, none was asked for", n)
		}
	}
}

// Threads nap as long as other goroutines keep the processors that a daemon needs, and those of embedded daemons never.
func TestWhoNaps(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(OtherProcs + 2))
	was := nappers.Load()
	defer nappers.Store(was)
	nappers.Store(0)
	s, embedded := &Shard{}, &Shard{garbage: garbage{embedded: true}}
	if embedded.mayNap() {
		t.Error("an embedded daemon's naps")
	}
	nappers.Add(-1)
	for n := 1; n <= 3; n++ {
		if may, want := s.mayNap(), n <= 2; may != want {
			t.Errorf("with two processors thread %d may nap: %v, want %v", n, may, want)
		}
	}
}
