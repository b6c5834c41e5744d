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
	s.flushClients(mono.Now())
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
	if len(s.clients.due) != 1 {
		t.Fatalf("%d clients are about to run, want 1", len(s.clients.due))
	}
	s.free(c.Client)
	if len(s.clients.due) != 0 {
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
	if s.giveWay(now); len(s.clients.due) != 2 {
		t.Errorf("%d clients are about to run, want 2", len(s.clients.due))
	}
	runs.runs(t)
	if s.giveWay(now); len(s.clients.due) != 1 || runs.ring.due || !never.ring.due {
		t.Errorf("%d clients are about to run, want 1", len(s.clients.due))
	}
	never.ring.rung = now.Add(-wakeTime)
	if s.giveWay(now); len(s.clients.due) != 0 || never.ring.due || never.ring.shares {
		t.Error("a client that does not run is waited for without end")
	}
}

// The shard gives way to a client that it gave what that polls for, before anything else, until the client took it;
// then not any more, though the client polls on.
func TestShardGivesWayToPollersThatHaveSomething(t *testing.T) {
	s := unstarted(t, still(t))
	defer s.Shutdown()
	c := newSleeper(t, s)
	now := mono.Now()
	given := func(polls ipc.Polling, kind ipc.Completion, status ipc.Status) {
		c.rings.SetClientPolling(polls)
		s.put(c.Client, &ipc.CQE{Kind: kind, Status: status})
		s.flushClients(now)
	}
	check := func(what string, want bool) {
		t.Helper()
		if due, polls := s.stillDue(now, 0); due != want || polls != want {
			t.Errorf("%s: due %v, as one that polls %v, want %v", what, due, polls, want)
		}
	}
	given(ipc.NotPolling, ipc.CQNotify, ipc.StatusOK)
	check("one that does not poll and is awake", false)
	given(ipc.PollsForPeer, ipc.CQComplete, ipc.StatusOK)
	check("a completion for one that does not wait for it", false)
	given(ipc.PollsForPeer, ipc.CQComplete, ipc.StatusKey)
	check("a failure for one that does not wait for completions", true)
	c.runs(t)
	check("it took everything", false)
	given(ipc.PollsForPeer, ipc.CQNotify, ipc.StatusOK)
	check("a notification for the same", true)
	c.runs(t)
	given(ipc.Polls, ipc.CQComplete, ipc.StatusOK)
	check("a completion for one that waits for it", true)
	now = now.Add(wakeTime - 1)
	check("it did not take it so far", true)
	now = now.Add(1)
	check("it does not take it", false)
	given(ipc.Polls, ipc.CQComplete, ipc.StatusOK)
	s.await(c.Client, false)
	check("another thread of it was woken, too", true)
	c.runs(t)
	check("it took all", false)
	c.rings.SetClientPolling(ipc.NotPolling)
	c.given(s) // and sleeps
	if due, polls := s.stillDue(c.ring.rung, 0); !due || polls {
		t.Errorf("one that was woken: due %v, as one that polls %v", due, polls)
	}
}

// A client works from when it took what it was given, or submitted something, until it polls or sleeps.
func TestClientsThatWork(t *testing.T) {
	s := unstarted(t, still(t))
	defer s.Shutdown()
	c, other := newSleeper(t, s), newSleeper(t, s)
	entries := c.rings.SubmitProducer()
	check := func(what string, wantPolling, wantWorking bool) {
		t.Helper()
		s.stillDue(c.ring.rung, 0)
		for _, c.ring.shares = range []bool{true, false} {
			polling, working, here := s.clientsPoll()
			wantHere := wantWorking && c.ring.shares
			if polling != wantPolling || working != wantWorking || here != wantHere {
				t.Errorf("%s: polling %v, working %v, on this core %v, want %v, %v, %v", what, polling, working, here,
					wantPolling, wantWorking, wantHere)
			}
		}
	}
	check("nobody was given anything", false, false)
	for _, waits := range []func(){
		func() { c.rings.SetClientPolling(ipc.Polls) },
		func() { c.rings.SetClientAsleep(true) },
	} {
		c.ring.shares = false // or it is woken later
		c.given(s)
		check("it was woken", false, false)
		c.runs(t)
		check("it took what it was given", false, true)
		other.rings.SetClientPolling(ipc.PollsForPeer)
		check("it works, and another polls", true, true)
		other.rings.SetClientPolling(ipc.NotPolling)
		waits()
		polls := c.rings.ClientPolling() != ipc.NotPolling
		check("it waits", polls, false)
		c.rings.SetClientPolling(ipc.NotPolling)
		c.rings.SetClientAsleep(false)
		check("it does something of its own", false, false)
		if _, err := entries.Room(); err != nil {
			t.Fatal(err)
		}
		entries.Put(&ipc.SQE{Op: ipc.OpCredit, Imm: 1})
		entries.Publish()
		s.drainClients(mono.Now())
		check("it submitted something", false, true)
		waits()
		check("and waits", polls, false)
		c.rings.SetClientPolling(ipc.NotPolling)
		c.rings.SetClientAsleep(false)
	}
}
