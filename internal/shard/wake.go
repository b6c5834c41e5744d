package shard

// How clients come to run. One that polls and was given something has the core, if it is the shard's, until it has
// taken it; one that has, and polls on, can only wait for the shard. One that sleeps on another core is rung for as
// soon as its ring shows what it is given. One that seems to sleep on the shard's own core has to wait for the shard,
// and the shard for its answer:
//
//   - frames leave before it is woken;
//   - one such client is woken at a time. Its answer leaves before the next one is woken, so that the peer works
//     meanwhile. Several would otherwise run one after another, and all their answers wait for the last;
//   - the shard gives way until it was seen to run, since a yield does not always change to it, and polling would take
//     the core that it waits for. That is one switch to the client and one back. Where others need the core as well, a
//     yield would give them a slice: then all are woken, and the shard sleeps.

import (
	"time"

	"multiedge/internal/mono"
)

const (
	sharedTime = 10 * time.Microsecond  // a ring or a yield that takes longer gave the core to somebody
	wakeTime   = 100 * time.Microsecond // after that a client should have run
	mostYields = 4                      // in a row, for one client
)

// wake rings a client's doorbell, and wakes those of its threads that sleep on words.
func (s *Shard) wake(c *Client) {
	s.idle.calls.Wakes += c.ring.ring(&s.clients.slow)
	s.idle.calls.Looks += c.ring.looks
	c.ring.looks = 0
	s.await(c, false)
}

// await adds a client to those that must run next. The shard yields to it until it has run.
func (s *Shard) await(c *Client, polls bool) {
	c.ring.polls = polls || c.ring.due && c.ring.polls
	if !c.ring.due {
		c.ring.due = true
		s.clients.due = append(s.clients.due, c)
	}
}

// ringBells wakes clients that run on the shard's core, up to the first that was seen to. It reports whether some are
// left, for the next iteration.
func (s *Shard) ringBells() (left bool) {
	bells := s.clients.bells
	for ran := false; len(bells) > 0 && !ran; {
		c := bells[0]
		bells = bells[1:]
		if c.ring.waits = false; c.rings == nil { // it is dying
			continue
		}
		s.wake(c)
		now := c.ring.rung
		for n := 0; n < mostYields && c.ring.due && !s.idle.wait.core.At(now); n++ {
			now = s.giveWay(now)
		}
		ran = !c.ring.due && c.ring.shares
		c.ring.shares = ran
	}
	n := copy(s.clients.bells, bells)
	clear(s.clients.bells[n:])
	s.clients.bells = s.clients.bells[:n]
	return n > 0
}

// giveWay yields the processor, finds which of the clients that had to run have, and returns the time. before is
// shortly before.
func (s *Shard) giveWay(before mono.Time) (now mono.Time) {
	s.idle.calls.Yields++
	waited := len(s.clients.due) == 0
	yield()
	now = mono.Now()
	took := now.Sub(before)
	if waited {
		s.idle.wait.gaveWay(now, took)
	}
	s.idle.wait.yielded = now
	s.idle.wait.core.Yielded(now, took)
	s.stillDue(now, took)
	return now
}

// stillDue reports whether clients have to run, and whether some of them poll, once those are forgotten that did, or
// had their time. took is how long a yield took that ended now, if one did.
func (s *Shard) stillDue(now mono.Time, took time.Duration) (any, poll bool) {
	if len(s.clients.due) == 0 {
		return false, false
	}
	still := s.clients.due[:0]
	for _, c := range s.clients.due {
		switch {
		case c.rings != nil && !c.tookAll():
			if now.Sub(c.ring.rung) < wakeTime {
				still = append(still, c)
				poll = poll || c.ring.polls
				continue
			}
			c.ring.shares = false
		case took > sharedTime:
			c.ring.shares, c.ring.took = true, true
		default:
			c.ring.took = true
		}
		c.ring.due = false
	}
	clear(s.clients.due[len(still):])
	s.clients.due = still
	return len(still) > 0, poll
}

// tookAll reports whether a client has taken everything from its completion ring.
func (c *Client) tookAll() bool {
	_, err := c.cq.Refresh()
	return err != nil || c.cq.Used() == 0
}
