package daemon

import (
	"context"
	"log/slog"
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
type pacers struct {
	hello, rest pacer
	lines       linePacer
}

// How many lines the clients of a user cause in the log: so many at once, then one in lineEvery.
const (
	linesAtOnce = 128
	lineEvery   = time.Second
)

// linePacer bounds the lines in the log. The zero linePacer is ready; it reads no clock.
type linePacer struct {
	due     time.Time // when the next line is in time
	leftOut int       // lines since the latest
}

// may reports whether a line may be written now, and how many were left out before it.
func (p *linePacer) may(now time.Time) (ok bool, leftOut int) {
	if first := now.Add((1 - linesAtOnce) * lineEvery); p.due.Before(first) {
		p.due = first
	}
	if p.due.After(now) {
		p.leftOut++
		return false, 0
	}
	p.due = p.due.Add(lineEvery)
	leftOut, p.leftOut = p.leftOut, 0
	return true, leftOut
}

// mayLog is linePacer.may for a user.
func (a *accounts) mayLog(now time.Time, owner uint32) (ok bool, leftOut int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.pacersOf(now, owner).lines.may(now)
}

// log writes a line that this client causes, unless its user has caused many. The next one says how many were left out.
func (ss *session) log(level slog.Level, text string, args ...any) {
	ok, leftOut := ss.d.accounts.mayLog(time.Now(), ss.owner)
	if !ok {
		return
	}
	args = append([]any{"pid", ss.cred.PID, "uid", ss.cred.UID}, args...)
	if leftOut > 0 {
		args = append(args, "left_out", leftOut)
	}
	ss.d.log.Log(context.Background(), level, text, args...)
}

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
				if now.Sub(p.hello.due) >= time.Second && now.Sub(p.rest.due) >= time.Second &&
					now.Sub(p.lines.due) >= linesAtOnce*lineEvery {
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
	ss.await(ss.d.accounts.pace(time.Now(), ss.owner, k == ipc.KindHello, max(handlers[k].weight, 1)))
}

// pauseFor is pause for what a request costs besides, by its arguments: a piece of it, a measurement.
func (ss *session) pauseFor(weight int) {
	ss.await(ss.d.accounts.pace(time.Now(), ss.owner, false, weight))
}

// owe charges a user for what a request cost besides: the next one waits for it.
func (ss *session) owe(weight int) {
	if weight > 0 {
		ss.d.accounts.pace(time.Now(), ss.owner, false, weight)
	}
}

func (ss *session) await(d time.Duration) {
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
