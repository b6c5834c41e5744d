package daemon

import (
	"time"

	"multiedge/internal/ipc"
)

// pacer spaces the control requests of a user who makes more than a share: each costs the daemon processor time, which
// others would miss. A second's worth may come at once. The zero pacer is ready; it reads no clock.
type pacer struct {
	due time.Time // when the next request would be in time at the full rate
}

// wait returns how long to wait before serving a request of some weight that arrived now.
func (p *pacer) wait(now time.Time, perSecond, weight int) time.Duration {
	if burst := now.Add(-time.Second); p.due.Before(burst) {
		p.due = burst
	}
	p.due = p.due.Add(time.Duration(weight) * time.Second / time.Duration(perSecond))
	return max(p.due.Sub(now), 0)
}

// pacers are a user's: greetings wait apart from the rest.
type pacers struct{ hello, rest pacer }

// maxPacers is how many users are remembered before those who were quiet for a second are forgotten.
const maxPacers = 256

// pace returns how long a request of a user must wait.
func (a *accounts) pace(now time.Time, uid uint32, hello bool, weight int) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	p := a.pacersOf(now, uid)
	if hello {
		return p.hello.wait(now, a.limits.Requests, weight)
	}
	return p.rest.wait(now, a.limits.Requests, weight)
}

// longestBan bounds what evictions add up to, for the sake of the user's honest programs.
const longestBan = 2 * time.Second

// evicted makes a user wait before attaching again.
func (a *accounts) evicted(now time.Time, uid uint32) {
	a.mu.Lock()
	defer a.mu.Unlock()
	p := &a.pacersOf(now, uid).hello
	before := p.due
	p.wait(now, a.limits.Requests, weightEvict)
	if limit := now.Add(longestBan); p.due.After(limit) {
		p.due = limit
		if before.After(limit) {
			p.due = before
		}
	}
}

func (a *accounts) pacersOf(now time.Time, uid uint32) *pacers {
	p := a.pacers[uid]
	if p == nil {
		if len(a.pacers) >= maxPacers {
			for other, p := range a.pacers {
				if now.Sub(p.hello.due) >= time.Second && now.Sub(p.rest.due) >= time.Second {
					delete(a.pacers, other)
				}
			}
		}
		p = new(pacers)
		a.pacers[uid] = p
	}
	return p
}

// pause makes the serving goroutine wait its user's turn for a request of that kind. It returns early when the session
// ends.
func (ss *session) pause(k ipc.Kind) {
	d := ss.d.accounts.pace(time.Now(), ss.cred.UID, k == ipc.KindHello, max(handlers[k].weight, 1))
	if d == 0 {
		return
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ss.quit:
	}
}
