package daemon

import (
	"testing"
	"time"

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

// alone starts an embedded daemon with one link on which nothing happens.
func alone(t *testing.T) *Embedded {
	t.Helper()
	x, _ := linktest.PairN(0, 9000, 256)
	q := quiet{x, eventfd(t, 0)}
	e, err := NewEmbedded(plaintext(Config{Name: "alone", Links: []Link{{Name: "q"}}, Poll: "block"}),
		Options{Log: logTo(t), Open: func(Link, linkdrv.Options) (linkdrv.Driver, error) { return q, nil }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return e
}

// A driver that comes, sleeps for a moment and goes leaves the shard so that who wants something of it is heard. It takes the thread's wake-up
// with it if both sleep at once; the thread then sleeps on, for up to a second.
func TestDriverLeavesShardAwake(t *testing.T) {
	for _, c := range []struct {
		name string
		do   func(e *Embedded, fd int)
	}{
		{"drowse", func(e *Embedded, fd int) { e.Drowse(fd) }},
		{"drive and drowse", func(e *Embedded, fd int) { e.Drive(); e.Drowse(fd) }},
		{"drowse twice", func(e *Embedded, fd int) { e.Drowse(fd); e.Drive(); e.Drowse(fd) }},
		{"asked to step back", func(e *Embedded, fd int) { e.d.shard.wanted.Store(true); e.Drowse(fd) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := alone(t)
			s, fd, late := e.d.shard, eventfd(t, 1), 0
			for range 10 {
				until(t, "sleep", deadline, func() bool { return s.box.asleep.Load() && s.token.Load() == 0 })
				c.do(e, fd)
				began := time.Now()
				if err := s.box.do(func(mono.Time) {}); err != nil {
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
func TestCloseWaitsForDrowse(t *testing.T) {
	for range 5 {
		e := alone(t)
		s, fd, back := e.d.shard, eventfd(t, 0), make(chan bool)
		go func() {
			for !s.stopping.Load() {
				e.Drive()
				e.Drowse(fd)
			}
			back <- true
		}()
		until(t, "drowsing", deadline, s.dozing.Load)
		e.Close()
		if s.dozing.Load() {
			t.Error("closed under a sleeping driver")
		}
		<-back
	}
}
