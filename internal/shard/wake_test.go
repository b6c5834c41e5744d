package shard

import (
	"testing"

	"multiedge/internal/ipc"
	"multiedge/internal/mono"

	"golang.org/x/sys/unix"
)

// sleeper is a client that sleeps, as its process would see it.
type sleeper struct {
	*Client
	ends *ipc.CompleteConsumer
}

func newSleeper(t *testing.T, s *Shard) *sleeper {
	c := attached(t, s, NewUser(1), 0)
	return &sleeper{c, c.rings.CompleteConsumer()}
}

// given has the shard give it a notification while it sleeps, and publish that.
func (c *sleeper) given(s *Shard) {
	c.rings.SetClientAsleep(true)
	s.put(c.Client, &ipc.CQE{Kind: ipc.CQNotify})
	s.flushClients()
}

// runs takes what it was given.
func (c *sleeper) runs(t *testing.T) {
	t.Helper()
	if n, err := c.ends.Drain(make([]ipc.CQE, 8)); n == 0 || err != nil {
		t.Fatalf("%d entries, %v", n, err)
	}
}

// rung reports whether its doorbell was rung, and stills it.
func (c *sleeper) rung() bool {
	n, _ := pollFor([]unix.PollFd{{Fd: int32(c.ring.bell.FD()), Events: unix.POLLIN}}, 0)
	c.ring.bell.Clear()
	return n > 0
}

// Clients on other cores are woken at once, and those on the shard's core one by one, after frames have left.
func TestClientsOnTheShardsCoreTakeTurns(t *testing.T) {
	s := unstarted(t, still(t))
	defer s.Shutdown()
	far, first, second := newSleeper(t, s), newSleeper(t, s), newSleeper(t, s)
	first.ring.shares, second.ring.shares = true, true
	for _, c := range []*sleeper{first, second, far} {
		c.given(s)
	}
	if first.rung() || second.rung() || !far.rung() {
		t.Error("clients on the shard's core are woken before frames leave, or one of another core is not")
	}
	first.runs(t) // as soon as it is woken
	second.runs(t)
	if left := s.ringBells(); !left || !first.rung() || second.rung() {
		t.Errorf("left %v: the second is woken before the first one's answer could leave", left)
	}
	if s.Iterate(mono.Now()); !second.rung() || len(s.clients.bells) > 0 {
		t.Error("the second is not woken in the next iteration")
	}
}

// A client that was not seen to run on the shard's core holds up nobody there, nor does one that has gone.
func TestClientsThatDoNotRun(t *testing.T) {
	s := unstarted(t, still(t))
	defer s.Shutdown()
	gone, slow, last := newSleeper(t, s), newSleeper(t, s), newSleeper(t, s)
	for _, c := range []*sleeper{gone, slow, last} {
		c.ring.shares = true
		c.given(s)
	}
	s.detach(mono.Now(), gone.Client)
	if left := s.ringBells(); left || gone.rung() || !slow.rung() || !last.rung() || slow.ring.shares {
		t.Errorf("left %v; the slow client counts as one on this core: %v", left, slow.ring.shares)
	}
}

// A client that has gone is kept by nothing, though nobody gave way for it: a shard that never polls never does.
func TestWokenClientsGo(t *testing.T) {
	s := unstarted(t, still(t))
	defer s.Shutdown()
	c := newSleeper(t, s)
	c.given(s)
	if len(s.clients.woken) != 1 {
		t.Fatalf("%d clients are about to run, want 1", len(s.clients.woken))
	}
	s.free(c.Client)
	if len(s.clients.woken) != 0 {
		t.Error("a client that has gone is kept")
	}
}

// The shard gives way as long as a client that it woke has not run, within reason.
func TestShardGivesWayUntilClientsRan(t *testing.T) {
	s := unstarted(t, still(t))
	defer s.Shutdown()
	runs, never := newSleeper(t, s), newSleeper(t, s)
	runs.given(s)
	never.given(s)
	now := runs.ring.rung
	never.ring.rung = now.Add(wakeTime << 10) // later than any yield of this test
	runs.ring.rung = never.ring.rung
	if s.giveWay(now); len(s.clients.woken) != 2 {
		t.Errorf("%d clients are about to run, want 2", len(s.clients.woken))
	}
	runs.runs(t)
	if s.giveWay(now); len(s.clients.woken) != 1 || runs.ring.wakes || !never.ring.wakes {
		t.Errorf("%d clients are about to run, want 1", len(s.clients.woken))
	}
	never.ring.rung = now.Add(-wakeTime)
	if s.giveWay(now); len(s.clients.woken) != 0 || never.ring.wakes || never.ring.shares {
		t.Error("a client that does not run is waited for without end")
	}
}
