package shard

import (
	"math"
	"testing"
	"time"

	"multiedge/internal/ipc"
	"multiedge/internal/mono"
)

// patient is a client that sleeps until n operations have ended, of which it has some in flight.
func patient(t *testing.T, s *Shard, n uint32) *sleeper {
	c := newSleeper(t, s)
	c.flight.inflight = 9
	t.Cleanup(func() { c.flight.inflight = 0 })
	c.rings.SetClientAwaits(n)
	c.rings.SetClientAsleep(true)
	return c
}

// ends has operations of the client end, and the shard publish that at a time.
func (c *sleeper) ended(s *Shard, now mono.Time, status ...ipc.Status) {
	for _, st := range status {
		s.put(c.Client, &ipc.CQE{Kind: ipc.CQComplete, Status: st})
	}
	c.ring.shares, c.ring.until = false, 0
	s.flushClients(now)
}

// ABI A8.8: a client is left alone until as many operations have ended as it waits for, unless one failed, something
// else came, or none is left in flight.
func TestClientsAreLeftAloneUntilTheyHaveEnough(t *testing.T) {
	s := unstarted(t, still(t))
	defer s.Shutdown()
	now := mono.Now()
	ok := ipc.StatusOK
	for _, asks := range []uint32{0, 1} {
		if c := patient(t, s, asks); true {
			if c.ended(s, now, ok); !c.rung() {
				t.Errorf("one that waits for %d is left alone", asks)
			}
		}
	}
	for _, asks := range []uint32{2, 3, 1 << 30, math.MaxInt32} {
		c := patient(t, s, asks)
		for have := uint32(1); have <= min(asks, 8); have++ {
			if c.ended(s, now, ok); c.rung() != (have == asks) {
				t.Errorf("one that waits for %d: wrong with %d", asks, have)
			}
		}
	}
	c := patient(t, s, 3)
	if c.ended(s, now, ok, ok, ok, ok); !c.rung() {
		t.Error("more than it waits for at once do not wake it")
	}
	c = patient(t, s, 5)
	c.ended(s, now, ok)
	if c.ended(s, now, ok, ipc.StatusKey); !c.rung() {
		t.Error("a failure does not wake it")
	}
	c = patient(t, s, 5)
	c.ended(s, now, ok)
	s.put(c.Client, &ipc.CQE{Kind: ipc.CQNotify})
	if c.flushed(s); !c.rung() {
		t.Error("a notification does not wake it")
	}
	c = patient(t, s, 5)
	c.ended(s, now, ok)
	c.flight.inflight = 0
	if c.ended(s, now, ok); !c.rung() {
		t.Error("it is left alone with nothing in flight")
	}
	c = patient(t, s, 2)
	c.ended(s, now, ok)
	c.runs(t)
	c.ended(s, now, ok)
	if c.rung() {
		t.Error("what it took counts for the next time")
	}
}

// Nobody is left alone for longer than heldTime, nor when the shard sleeps.
func TestNobodyIsLeftAloneForLong(t *testing.T) {
	s := unstarted(t, still(t))
	defer s.Shutdown()
	now := mono.Now()
	c, other := patient(t, s, 5), patient(t, s, 5)
	c.ended(s, now, ipc.StatusOK)
	other.ended(s, now.Add(heldTime/2), ipc.StatusOK)
	c.ended(s, now.Add(heldTime-1), ipc.StatusOK)
	if s.release(now.Add(heldTime-1), false) || c.rung() {
		t.Error("woken too early")
	}
	if !s.release(now.Add(heldTime), false) || !c.rung() || other.rung() {
		t.Error("the one that waited for so long is not woken, or another is")
	}
	if !s.release(now.Add(2*heldTime), false) || c.rung() || !other.rung() {
		t.Error("the other is not woken when its time has come, or the first is again")
	}
	c.rings.SetClientAsleep(true)
	c.runs(t)
	c.ended(s, now, ipc.StatusOK)
	s.idle.busy = false
	if s.prepareSleep(now, &s.idle.threadSet) || !c.rung() {
		t.Error("the shard sleeps, and leaves a client alone")
	}
	s.wakeUp()
	c.rings.SetClientAsleep(true)
	c.runs(t)
	c.ended(s, now, ipc.StatusOK)
	c.runs(t)
	if s.release(now.Add(time.Second), false); c.rung() {
		t.Error("one that has taken all is woken")
	}
	if len(s.clients.held.list) != 0 {
		t.Errorf("%d clients are kept", len(s.clients.held.list))
	}
}

// Who was woken since begins anew, and one that has gone is kept by nothing.
func TestLeftAloneAnew(t *testing.T) {
	s := unstarted(t, still(t))
	defer s.Shutdown()
	now := mono.Now()
	c := patient(t, s, 2)
	c.ended(s, now, ipc.StatusOK)
	c.ended(s, now, ipc.StatusOK)
	c.runs(t)
	if !c.rung() {
		t.Fatal("it has enough and is not woken")
	}
	c.rings.SetClientAsleep(true)
	c.ended(s, now.Add(heldTime/2), ipc.StatusOK)
	if s.release(now.Add(heldTime), false) || c.rung() {
		t.Error("its time counts from before it was woken")
	}
	if !s.release(now.Add(3*heldTime/2), false) || !c.rung() {
		t.Error("it is left alone for too long")
	}
	c.rings.SetClientAsleep(true)
	c.runs(t)
	c.ended(s, now, ipc.StatusOK)
	s.detach(now, c.Client)
	if s.release(now.Add(time.Hour), false); c.rung() {
		t.Error("one that has gone is woken")
	}
	d := patient(t, s, 2)
	d.ended(s, now, ipc.StatusOK)
	d.flight.inflight = 0
	s.free(d.Client)
	if len(s.clients.held.list) != 0 {
		t.Error("a client that has gone is kept")
	}
}

// The shard gives way to a client that polls when that has as many as it waits for.
func TestPollersAreLeftAlone(t *testing.T) {
	s := unstarted(t, still(t))
	defer s.Shutdown()
	now := mono.Now()
	c := patient(t, s, 2)
	c.rings.SetClientAsleep(false)
	c.rings.SetClientPolling(ipc.Polls)
	c.ended(s, now, ipc.StatusOK)
	if len(s.clients.due) != 0 {
		t.Error("the shard gives way to one that waits for more")
	}
	if c.ended(s, now, ipc.StatusOK); len(s.clients.due) != 1 {
		t.Error("the shard does not give way to one that has enough")
	}
	c.runs(t)
	s.stillDue(now, 0)
	c.ended(s, now, ipc.StatusOK)
	if s.release(now.Add(heldTime), false); len(s.clients.due) != 1 {
		t.Error("the shard does not give way to one that has waited for long")
	}
}
