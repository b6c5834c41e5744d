package shard

import (
	"testing"

	"multiedge/internal/ipc"
	"multiedge/internal/mono"
	"multiedge/linkdrv"
)

// counted is a driver that is asked for its counters.
type counted struct {
	linkdrv.Driver
	asked int
}

func (d *counted) Stats() (linkdrv.Stats, error) {
	d.asked++
	return d.Driver.Stats()
}

// The kernel's counters are read before 32 bits are too few, also if nobody asks for them.
func TestCountersAreRead(t *testing.T) {
	d := &counted{Driver: still(t)}
	s, _ := alone(t, d)
	if err := s.Do(func(now mono.Time) {
		s.pulse(now)
		for range 3 {
			now = now.Add(countTime)
			before := d.asked
			if s.pulse(now); d.asked != before+1 {
				t.Errorf("asked %d times in %v", d.asked-before, countTime)
			}
			if s.pulse(now.Add(countTime / 2)); d.asked != before+1 {
				t.Errorf("asked %d times in %v", d.asked-before, countTime/2)
			}
		}
		s.clients.pulseAt = 0
	}); err != nil {
		t.Fatal(err)
	}
}

// stuck is a driver that has no room, and whose interface is gone when it is asked again.
type stuck struct {
	linkdrv.Driver
	sends int
}

func (d *stuck) Send([]linkdrv.TxFrame) (int, error) {
	if d.sends++; d.sends == 1 {
		return 0, nil
	}
	return 0, linkdrv.ErrLinkGone
}

// A shard whose link failed when held frames were offered again does not sleep before it has taken the link out of
// service.
func TestNoSleepOverFailedLink(t *testing.T) {
	s := unstarted(t, &stuck{Driver: still(t)}) // a thread would send greetings, which the driver counts as well
	defer s.Shutdown()
	now, l := mono.Now(), s.links.active[0]
	l.unsent = []linkdrv.TxFrame{{Head: make([]byte, 64)}}
	s.flush(now, l)
	s.retryBlocked(l.retryAt)
	s.idle.busy = false // nothing else was there to do
	if !s.links.failedLinks || s.prepareSleep(now, &s.idle.driverSet) {
		t.Errorf("failed %v, and the shard would sleep", s.links.failedLinks)
	}
}

// wrapped is a driver around another, and scatters.
type wrapped struct{ linkdrv.Driver }

func (d wrapped) RecvScatter([]linkdrv.RxFrame, [][]byte) (int, error) { return 0, nil }

// SetWrap wraps the drivers of links that have one, and of those that get one later. Without it each driver is the bare
// one again.
func TestWrap(t *testing.T) {
	bare := still(t)
	s, _ := alone(t, bare)
	if err := s.Do(func(now mono.Time) {
		l := s.links.active[0]
		check := func(want linkdrv.Driver, scatters bool) {
			t.Helper()
			if l.drv != want || (l.scatter != nil) != scatters || l.raw != bare {
				t.Errorf("the driver is %T, scattering %T, bare %T", l.drv, l.scatter, l.raw)
			}
		}
		check(bare, false)
		s.SetWrap(now, func(number int, name string, drv linkdrv.Driver) linkdrv.Driver {
			if number != 0 || name != "q" {
				t.Errorf("link %d is %q", number, name)
			}
			return wrapped{drv}
		})
		check(wrapped{bare}, true)
		s.links.closeDriver = func(linkdrv.Driver) {}
		s.SetDriver(now, l, bare)
		check(wrapped{bare}, true)
		s.links.closeDriver = func(drv linkdrv.Driver) { drv.Close() }
		s.SetWrap(now, nil)
		check(bare, false)
	}); err != nil {
		t.Fatal(err)
	}
}

// looked is a driver of that kind, whose receives are counted.
type looked struct {
	linkdrv.Driver
	kind  string
	looks int
}

func (d *looked) Info() linkdrv.Info {
	info := d.Driver.Info()
	info.Kind = d.kind
	return info
}

func (d *looked) Recv(dst [][]byte) (int, error) {
	d.looks++
	return d.Driver.Recv(dst)
}

// Where a look at a link is a system call, what a client has submitted is taken before it; a client that always has
// something keeps the shard from every second look alone. Where it is none the links come first.
func TestClientsBeforeLooks(t *testing.T) {
	for kind, want := range map[string][]int{linkdrv.KindMmsg: {1, 0, 1, 0, 1, 0, 1, 1},
		linkdrv.KindRing: {1, 1, 1, 1, 1, 1, 1, 1}} {
		d := &looked{Driver: still(t), kind: kind}
		s := unstarted(t, d)
		c := attached(t, s, NewUser(1), 4)
		entries := c.rings.SubmitProducer()
		for i, submits := range []bool{false, true, true, true, true, true, true, false} {
			if submits {
				if n, err := entries.Room(); n == 0 || err != nil {
					t.Fatalf("%s: room for %d, %v", kind, n, err)
				}
				entries.Put(&ipc.SQE{Op: ipc.OpWrite})
				entries.Publish()
			}
			before := d.looks
			s.idle.quiet = 0 // a timer may be due
			if s.Iterate(mono.Now()); d.looks-before != want[i] || c.sq.Ready() {
				t.Errorf("%s: iteration %d looked %d times, and left entries: %v", kind, i, d.looks-before,
					c.sq.Ready())
			}
		}
		s.Shutdown()
	}
}
