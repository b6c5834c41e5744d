package shard

import (
	"testing"
	"time"

	"multiedge/internal/ipc"
	"multiedge/internal/mono"
)

// submitted has the shard take a submission of the client.
func (c *sleeper) submitted(s *Shard, e *ipc.SQE) {
	p := c.rings.SubmitProducer()
	p.Put(e)
	p.Publish()
	s.drainClient(mono.Now(), c.Client)
}

// flushed has the shard publish what it was given, and wake who waits for it, however long earlier rings took.
func (c *sleeper) flushed(s *Shard) {
	c.ring.shares, c.ring.until = false, 0
	s.flushClients(mono.Now())
}

// ABI A8.7: entries of a connection wake the thread at whose word it is aimed, and no other; all others ring.
func TestEntriesWakeTheirWord(t *testing.T) {
	s := unstarted(t, still(t))
	defer s.Shutdown()
	c := newSleeper(t, s)
	c.rings.Allow(ipc.FeatureWords)
	c.conns[7], c.conns[8] = &Conn{id: 7, client: c.Client}, &Conn{id: 8, client: c.Client}
	defer clear(c.conns)
	c.rings.SleepOn(2, true)
	c.rings.SleepOn(3, true)
	c.rings.SetClientAsleep(true)
	c.submitted(s, &ipc.SQE{Op: ipc.OpAim, Conn: 7, Imm: 2})
	if c.flushed(s); c.rings.SleepsOn(2) || !c.rings.SleepsOn(3) || c.rung() {
		t.Error("who sleeps on the word at which a connection is aimed does not look again, or others do")
	}
	calls := s.idle.calls.Wakes
	c.rings.SleepOn(2, true)
	s.put(c.Client, &ipc.CQE{Kind: ipc.CQComplete, Conn: 7})
	if c.flushed(s); !c.rings.SleepsOn(2) {
		t.Error("an operation that ended well wakes who dozes")
	}
	s.put(c.Client, &ipc.CQE{Kind: ipc.CQNotify, Conn: 7})
	if c.flushed(s); c.rings.SleepsOn(2) || !c.rings.SleepsOn(3) || c.rung() || s.idle.calls.Wakes != calls+1 {
		t.Errorf("a notification wakes others than who waits for it, or not that one, by %d calls",
			s.idle.calls.Wakes-calls)
	}
	c.rings.SleepOn(2, true)
	s.put(c.Client, &ipc.CQE{Kind: ipc.CQNotify, Conn: 8})
	if c.flushed(s); !c.rings.SleepsOn(2) || !c.rung() {
		t.Error("a connection that is aimed at no word does not ring, or wakes a word")
	}
}

// Who aims connections that are not there floods the ring as others do.
func TestAimingNothing(t *testing.T) {
	s := unstarted(t, still(t))
	defer s.Shutdown()
	c := newSleeper(t, s)
	c.rings.Allow(ipc.FeatureWords)
	c.rings.SleepOn(1, false)
	c.submitted(s, &ipc.SQE{Op: ipc.OpAim, Conn: 9, Imm: 1})
	if c.flushed(s); !c.rings.SleepsOn(1) || c.flight.useless != 1 {
		t.Errorf("%d useless submissions, want 1; or a word is woken", c.flight.useless)
	}
}

// The thread's clock is a system call: it is read for a while after a ring that seemed long, and not for ever.
func TestDoubtOfRingsEnds(t *testing.T) {
	s := unstarted(t, still(t))
	defer s.Shutdown()
	c := newSleeper(t, s)
	for _, tc := range []struct {
		doubt mono.Time
		looks bool
	}{{mono.Now().Add(time.Hour), true}, {mono.Now(), false}} {
		c.ring.doubt, c.ring.until, c.ring.looks = tc.doubt, 0, 0
		c.ring.owe(owed{bell: true})
		c.ring.ring(new(debt))
		if looks := c.ring.looks > 0; looks != tc.looks {
			t.Errorf("doubt until %v from now: the clock was read %d times", tc.doubt.Sub(mono.Now()), c.ring.looks)
		}
	}
}
