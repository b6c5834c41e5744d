package shard

import (
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"multiedge/internal/config"
	"multiedge/internal/engine"
	"multiedge/internal/mono"
	"multiedge/linkdrv"
	"multiedge/linkdrv/linktest"

	"golang.org/x/sys/unix"
)

// quiet is a link that never has anything, with a descriptor to sleep on.
type quiet struct {
	linkdrv.Driver
	fd int
}

func (q quiet) FD() int { return q.fd }

func eventfd(t *testing.T, value uint) int {
	t.Helper()
	fd, err := unix.Eventfd(value, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	return fd
}

// still is a link that never has anything.
func still(t *testing.T) linkdrv.Driver {
	x, _ := linktest.PairN(0, 9000, 256)
	return quiet{x, eventfd(t, 0)}
}

// alone starts a shard with one link, whose driver is given. stop stops it and waits for its end.
func alone(t *testing.T, drv linkdrv.Driver) (s *Shard, stop func()) {
	t.Helper()
	s = unstarted(t, drv)
	var group sync.WaitGroup
	s.Start(&group)
	stop = func() {
		s.Stop()
		group.Wait()
	}
	t.Cleanup(stop)
	return s, stop
}

// settings are those of such a shard.
func settings(t *testing.T) config.Config {
	t.Helper()
	cfg := config.Config{Name: "alone", Links: []config.Link{{Name: "q"}}, Poll: "block", Security: config.Plaintext}
	if err := cfg.Normalize(); err != nil {
		t.Fatal(err)
	}
	return cfg
}

// unstarted makes such a shard.
func unstarted(t *testing.T, drv linkdrv.Driver) *Shard {
	t.Helper()
	cfg := settings(t)
	s, err := New(Options{Config: &cfg, Node: engine.NodeID{1}, Epoch: 1, Seed: 1, Services: NewServices(),
		Log: slog.New(slog.DiscardHandler), Tell: func(Notice) {}, Reopen: func(string) {},
		Close: func(drv linkdrv.Driver) { drv.Close() }})
	if err != nil {
		t.Fatal(err)
	}
	s.SetDriver(mono.Now(), s.AddLink(cfg.Links[0]), drv)
	return s
}

// Status is asked for while a daemon starts: one goroutine at a time is the shard, before its thread is there, too.
func TestDoWhileStarting(t *testing.T) {
	for range 20 {
		s := unstarted(t, still(t))
		var thread, callers sync.WaitGroup
		var within atomic.Int32
		calls, begun := 0, make(chan struct{})
		for range 3 {
			callers.Go(func() {
				for range 50 {
					s.Do(func(mono.Time) {
						if calls++; calls == 1 {
							close(begun)
						}
						if n := within.Add(1); n != 1 {
							t.Errorf("%d goroutines are the shard", n)
						}
						for range 10 {
							runtime.Gosched()
						}
						within.Add(-1)
					})
				}
			})
		}
		<-begun
		s.Start(&thread)
		callers.Wait()
		s.Stop()
		if thread.Wait(); calls != 150 {
			t.Errorf("%d calls of 150", calls)
		}
	}
}

// A driver that comes, sleeps for a moment and goes leaves the shard so that who wants something of it is heard. It
// takes the thread's wake-up with it if both sleep at once; the thread then sleeps on, for up to a second.
func TestDriverLeavesShardAwake(t *testing.T) {
	for _, c := range []struct {
		name string
		do   func(s *Shard, fd int)
	}{
		{"sleep", func(s *Shard, fd int) { s.DriverSleep(fd) }},
		{"drive and sleep", func(s *Shard, fd int) { s.Drive(); s.DriverSleep(fd) }},
		{"sleep twice", func(s *Shard, fd int) { s.DriverSleep(fd); s.Drive(); s.DriverSleep(fd) }},
		{"asked to step back", func(s *Shard, fd int) { s.runner.wanted.Store(true); s.DriverSleep(fd) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, _ := alone(t, still(t))
			fd, late := eventfd(t, 1), 0
			for range 10 {
				waitFor(t, "sleep", mostWait, func() bool { return s.box.asleep.Load() && s.runner.token.Load() == 0 })
				c.do(s, fd)
				began := time.Now()
				if err := s.Do(func(mono.Time) {}); err != nil {
					t.Fatal(err)
				}
				if time.Since(began) > 200*time.Millisecond {
					late++
				}
			}
			if late > 1 { // one may be the machine's fault
				t.Errorf("%d of 10 requests waited until the thread woke by itself", late)
			}
		})
	}
}

// Closing waits for a driver that sleeps: what it sleeps on is closed next.
func TestCloseWaitsForDriverSleep(t *testing.T) {
	for range 5 {
		s, stop := alone(t, still(t))
		fd, back := eventfd(t, 0), make(chan bool)
		go func() {
			for !s.stopping.Load() {
				s.Drive()
				s.DriverSleep(fd)
			}
			back <- true
		}()
		waitFor(t, "a driver sleeps", mostWait, s.runner.driverSleeps.Load)
		stop()
		if s.runner.driverSleeps.Load() {
			t.Error("closed under a sleeping driver")
		}
		<-back
	}
}
