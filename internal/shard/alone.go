package shard

// Clients that wait for several operations, or notifications (ABI A8.8), are left alone until these are there: to wake
// one costs two switches on a core that it shares with the shard, and a call besides. They never wait for want of more:
//
//   - whatever else comes is told at once, and so is the last operation in flight;
//   - nobody is left alone for longer than heldTime, or noteTime: what else the client has in flight may wait for a
//     peer that waits for this client;
//   - nor when the shard has found nothing to do for restTime, or sleeps: to tell a client delays nothing then.
//
// A client that asks for more than there will be harms itself alone.

import (
	"time"

	"multiedge/internal/mono"
)

const (
	heldTime = time.Millisecond       // longer than four operations of 1 MiB take at 40 Gbit/s
	noteTime = 100 * time.Microsecond // of notifications, which programs wait for to answer
	restTime = 20 * time.Microsecond  // longer than between two frames of one sender
)

// heldSet has the clients that are left alone.
type heldSet struct {
	list []*Client // and some that were, until release looks
	next mono.Time // when it does
}

// leaveAlone notes whether a client whose ring was published is left alone.
func (s *Shard) leaveAlone(now mono.Time, c *Client) {
	r, set := &c.ring, &s.clients.held
	held, notes := c.cq.Held()
	switch {
	case !held:
		r.held = 0
		return
	case notes && (r.held == 0 || r.held > now.Add(noteTime)):
		r.held = now.Add(noteTime)
	case r.held == 0:
		r.held = now.Add(heldTime)
	}
	if len(set.list) == 0 || r.held < set.next {
		set.next = r.held
	}
	if !r.listed {
		r.listed = true
		set.list = append(set.list, c)
	}
}

// release has those told who were left alone for as long as may be, or everybody. It reports whether there were any.
func (s *Shard) release(now mono.Time, all bool) (any bool) {
	set := &s.clients.held
	if !all && now < set.next {
		return false
	}
	still := set.list[:0]
	set.next = mono.Never
	for _, c := range set.list {
		r := &c.ring
		if c.rings != nil && r.held > now && !all {
			set.next = min(set.next, r.held)
			still = append(still, c)
			continue
		}
		if r.listed = false; c.rings == nil || r.held == 0 {
			continue
		}
		any, r.overdue, r.held = true, true, 0
		s.touch(c)
	}
	clear(set.list[len(still):])
	set.list = still
	if any {
		s.flushClients(now)
		s.ringBells()
	}
	return any
}
