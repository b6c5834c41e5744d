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
	p.due = p.due.Add(duration(perSecond, weight))
	return max(p.due.Sub(now), 0)
}

// giveBack undoes the charge of a request that was not served.
func (p *pacer) giveBack(perSecond, weight int) { p.due = p.due.Add(-duration(perSecond, weight)) }

// duration is how long requests of some weight take at the full rate.
func duration(perSecond, weight int) time.Duration {
	return time.Duration(weight) * time.Second / time.Duration(perSecond)
}

// pacing has the pacers of users.
type pacing struct {
	of    map[uint32]*pacers
	swept time.Time // when those of quiet users were forgotten last
}

// pacers are a user's: greetings wait apart from the rest. A greeting waits for the end of the ban too, which evictions
// put off, and which is apart since nothing that the user does may shorten it.
type pacers struct {
	hello, rest, ban pacer
	lines            linePacer
}

// of returns the pacer of greetings, or of the rest.
func (p *pacers) of(hello bool) *pacer {
	if hello {
		return &p.hello
	}
	return &p.rest
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
func (ss *controlConn) log(level slog.Level, text string, args ...any) {
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

// maxPacers is how many users are remembered before those who were quiet for a second are forgotten. All are checked
// once in sweepEvery: to do so for each newcomer would be work that others cause.
const (
	maxPacers  = 256
	sweepEvery = time.Second
)

// pace charges a request to a user and returns how long it must wait.
func (a *accounts) pace(now time.Time, uid uint32, hello bool, weight int) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	p := a.pacersOf(now, uid)
	wait := p.of(hello).wait(now, a.limits.Requests, weight)
	if hello {
		wait = max(wait, p.ban.due.Sub(now))
	}
	return wait
}

// giveBack undoes pace for a request that was not served.
func (a *accounts) giveBack(now time.Time, uid uint32, hello bool, weight int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.pacersOf(now, uid).of(hello).giveBack(a.limits.Requests, weight)
}

// longestBan bounds what evictions add up to, for the sake of the user's honest programs.
const longestBan = 2 * time.Second

// evicted makes a user wait before attaching again.
func (a *accounts) evicted(now time.Time, uid uint32) {
	a.mu.Lock()
	defer a.mu.Unlock()
	ban := &a.pacersOf(now, uid).ban
	ban.wait(now, a.limits.Requests, weightEvict)
	if limit := now.Add(longestBan); ban.due.After(limit) {
		ban.due = limit
	}
}

func (a *accounts) pacersOf(now time.Time, uid uint32) *pacers {
	p := a.pacing.of[uid]
	if p == nil {
		if len(a.pacing.of) >= maxPacers && now.Sub(a.pacing.swept) >= sweepEvery {
			a.pacing.swept = now
			for other, p := range a.pacing.of {
				if now.Sub(p.hello.due) >= time.Second && now.Sub(p.rest.due) >= time.Second &&
					now.Sub(p.ban.due) >= time.Second && now.Sub(p.lines.due) >= linesAtOnce*lineEvery {
					delete(a.pacing.of, other)
				}
			}
		}
		p = new(pacers)
		a.pacing.of[uid] = p
	}
	return p
}

// pause makes the serving goroutine wait its user's turn for a request of that kind. It reports false when the client
// went meanwhile.
func (ss *controlConn) pause(k ipc.Kind) (there bool) {
	return ss.await(k == ipc.KindHello, max(handlers[k].weight, 1))
}

// pauseFor is pause for what a request costs besides, by its arguments: a piece of it, a measurement.
func (ss *controlConn) pauseFor(weight int) (there bool) { return ss.await(false, weight) }

// owe charges a user for what a request costs besides: the next one waits for it. It is
// charged before the work, and not given back if that fails: it was done, or a part of it.
func (ss *controlConn) owe(weight int) {
	if weight != 0 {
		ss.d.accounts.pace(time.Now(), ss.owner, false, weight)
	}
}

// goneEvery is how often a request that waits its turn checks whether its client is there: the socket is not read
// meanwhile.
const goneEvery = 100 * time.Millisecond

// await takes a place among the requests of the user and waits until its time. A client that goes gives it back.
func (ss *controlConn) await(hello bool, weight int) (there bool) {
	now := time.Now()
	due := now.Add(ss.d.accounts.pace(now, ss.owner, hello, weight))
	for left := due.Sub(now); left > 0; left = time.Until(due) {
		over := time.NewTimer(min(left, goneEvery))
		ended := false
		select {
		case <-over.C:
		case <-ss.quit:
			ended = true
		}
		if over.Stop(); ended || ss.conn.Gone() {
			ss.d.accounts.giveBack(time.Now(), ss.owner, hello, weight)
			return false
		}
	}
	return true
}
