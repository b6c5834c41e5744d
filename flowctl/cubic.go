package flowctl

import (
	"math"
	"time"

	"multiedge/internal/mono"
)

// Cabled is a Congestion whose paths over the lanes between two links share one budget: eight lanes are to take no more
// of a line than one.
type Cabled interface {
	Congestion
	// Cable returns the Congestion of the lanes of one pair of links, which share what New returns.
	Cable() Congestion
}

// Sharer is a Controller that shares something with those of other paths.
type Sharer interface {
	Controller
	// Share says whether its path may carry data now: of those that may not there is nothing to be left over for.
	// It has no part before the first call.
	Share(on bool)
}

// Deputy is a Sharer that may rest, and then stand in for another.
type Deputy interface {
	Sharer
	// StandIn says that the controller's path is answered while o's is not, although it was asked: the controller, if
	// it rests, takes o's window, if both are of one cable.
	StandIn(o Controller)
}

// Budgeted is a Controller whose window may be larger than what a session has for all its paths.
type Budgeted interface {
	Controller
	// Budget returns that window in frames; 0: it is not now.
	Budget() float64
}

// CubicParams are those of one CUBIC window (RFC 9438), for long paths that are shared with TCP: it fills queues as TCP
// does, and gets its part beside it, where a window driven by delay gives way.
type CubicParams struct {
	Max float64 // frames; 0: any number
}

// Values of RFC 9438, and of what stands around it.
const (
	cubicC        = 0.4
	cubicBeta     = 0.7
	cubicBetaMark = 0.85                                  // RFC 8511
	cubicFriendly = 3 * (1 - cubicBeta) / (1 + cubicBeta) // frames a round trip, as a Reno sender takes its part
	cubicInitial  = 10                                    // RFC 6928
	cubicMin      = 2
	hystartMin    = 4 * time.Millisecond  // delay above the least at which a start has filled the line (RFC 9406)
	hystartLeast  = 16                    // frames
	paceFrom      = time.Millisecond      // round trips from which on frames are spread
	paceBurst     = time.Millisecond      // time of which the frames may leave at once
	paceLeast     = 2                     // or so many
	paceTick      = 10 * time.Microsecond // the least wait
	paceGain      = 1.25                  // of the window a round trip
	paceGainStart = 2                     // while that grows by itself each round trip
)

// New returns the controller of a path alone.
func (p CubicParams) New() Controller { return p.Cable().New() }

// Fixed returns 0.
func (p CubicParams) Fixed() int { return 0 }

// Cable implements Cabled.
func (p CubicParams) Cable() Congestion { return p.cable() }

func (p CubicParams) cable() *cubicCable {
	if p.Max <= 0 {
		p.Max = math.Inf(1)
	}
	return &cubicCable{p: p, window: min(cubicInitial, p.Max), starting: true}
}

// cubicCable is the window of all lanes of a cable. Each lane says what is in flight on it; a lane that has nothing to
// send leaves its part to the others.
type cubicCable struct {
	p        CubicParams
	window   float64 // frames, of all lanes together
	starting bool    // it grows by a frame for each acknowledged, until the delay rises or something is lost
	peak     float64 // the window before the latest cut
	friendly float64 // what a Reno sender would have
	epoch    mono.Time
	cutAt    mono.Time
	ackAt    mono.Time     // latest
	fullAt   mono.Time     // the latest time that the window kept a frame back
	rtt      time.Duration // smoothed, of the lane that was acknowledged last
	inFlight int
	lanes    int // that may carry data
	timeouts int // in a row, of all lanes
	tokens   float64
	tokenAt  mono.Time
	next     mono.Time // when pacing lets a frame go
}

// New implements Congestion.
func (c *cubicCable) New() Controller { return c.lane() }

func (c *cubicCable) lane() *cubicLane { return &cubicLane{c: c} }

// Fixed implements Congestion.
func (c *cubicCable) Fixed() int { return 0 }

// cubicLane is the part of one lane.
type cubicLane struct {
	c        *cubicCable
	inFlight int // as the cable knows it
	shares   bool
}

// Share implements Sharer.
func (l *cubicLane) Share(on bool) {
	if on == l.shares {
		return
	}
	if l.shares = on; on {
		l.c.lanes++
		return
	}
	l.settle(0)
	l.c.lanes--
}

// settle tells the cable what is in flight on the lane. More than before was sent since.
func (l *cubicLane) settle(inFlight int) {
	more := inFlight - l.inFlight
	l.inFlight = inFlight
	l.c.inFlight += more
	if more > 0 {
		l.c.tokens -= float64(more)
	}
}

// OnAck implements Controller.
func (l *cubicLane) OnAck(now mono.Time, frames int, rtt *RTT) {
	if frames <= 0 || !rtt.Valid() {
		return
	}
	l.settle(max(0, l.inFlight-frames))
	c := l.c
	c.timeouts, c.rtt = 0, rtt.SRTT()
	idle := now.Sub(c.ackAt)
	c.ackAt = now
	if now.Sub(c.fullAt) > 2*c.rtt+time.Millisecond { // a window that is not used proves nothing
		if c.epoch != 0 {
			c.epoch = c.epoch.Add(idle)
		}
		return
	}
	if c.starting {
		c.window += float64(frames)
		if least := rtt.Min(); rtt.Latest() > least+max(least/8, hystartMin) && c.window > hystartLeast {
			c.starting, c.peak = false, c.window
		}
	} else {
		c.grow(now, float64(frames))
	}
	c.window = min(c.window, c.p.Max)
}

// grow follows the curve of RFC 9438 section 4.
func (c *cubicCable) grow(now mono.Time, frames float64) {
	if c.epoch == 0 {
		c.epoch, c.peak, c.friendly = now, max(c.peak, c.window), c.window
	}
	k := math.Cbrt(max(c.peak-cubicBeta*c.peak, 0) / cubicC)
	d := (now.Sub(c.epoch) + c.rtt).Seconds() - k
	c.friendly += cubicFriendly * frames / c.window
	target := min(max(cubicC*d*d*d+c.peak, c.friendly), 1.5*c.window)
	if target > c.window {
		c.window += frames * (target - c.window) / c.window
	} else {
		c.window += 0.01 * frames / c.window
	}
}

// cut narrows the window to that part of it, once in a round trip and the time that finding a loss takes.
func (c *cubicCable) cut(now mono.Time, part float64) {
	if c.cutAt != 0 && now.Sub(c.cutAt) < c.rtt+c.rtt/4 {
		return
	}
	c.starting, c.cutAt, c.epoch = false, now, now
	if c.window < c.peak { // fast convergence: others have come
		c.peak = c.window * (1 + cubicBeta) / 2
	} else {
		c.peak = c.window
	}
	c.window = max(c.window*part, cubicMin)
	c.friendly = c.window
}

// OnLoss implements Controller.
func (l *cubicLane) OnLoss(now mono.Time, frames int) {
	if frames <= 0 {
		return
	}
	l.settle(max(0, l.inFlight-frames))
	l.c.cut(now, cubicBeta)
}

// OnMarks implements Controller: a mark narrows the window less than a loss, since queues that mark are short (RFC
// 8511).
func (l *cubicLane) OnMarks(now mono.Time, _, marked int, rtt *RTT) {
	if marked <= 0 || !rtt.Valid() {
		return
	}
	l.c.rtt = rtt.SRTT()
	l.c.cut(now, cubicBetaMark)
}

// OnTimeout implements Controller. As of a window driven by delay, a silence of all lanes counts from the third probe
// on.
func (l *cubicLane) OnTimeout(now mono.Time) {
	c := l.c
	if c.ackAt == 0 {
		return // without any answer: perhaps the path is only long
	}
	if c.timeouts++; c.timeouts >= lowTimeouts*max(c.lanes, 1) {
		c.timeouts = 0
		c.cut(now, 1-cutMost)
	}
}

// Frames implements Controller: the lane's part of the window.
func (l *cubicLane) Frames() float64 { return max(l.c.window/float64(max(l.c.lanes, 1)), 1) }

// Budget implements Budgeted.
func (l *cubicLane) Budget() float64 { return l.Frames() }

// Allows implements Controller.
func (l *cubicLane) Allows(inFlight int, now mono.Time) bool {
	l.settle(inFlight)
	c := l.c
	c.next = 0
	if float64(c.inFlight) >= c.window {
		c.fullAt = now
		return false
	}
	return c.paces(now)
}

// paces reports whether a frame may leave now: at most those of a millisecond at once, on long paths.
func (c *cubicCable) paces(now mono.Time) bool {
	if c.rtt < paceFrom { // what was sent without pacing is no debt
		c.tokens, c.tokenAt = paceLeast, now
		return true
	}
	gain := float64(paceGain)
	if c.starting {
		gain = paceGainStart
	}
	rate := gain * c.window / c.rtt.Seconds()
	most := max(rate*paceBurst.Seconds(), paceLeast)
	c.tokens = min(most, c.tokens+rate*min(now.Sub(c.tokenAt), time.Second).Seconds())
	c.tokenAt = now
	if c.tokens >= 1 {
		return true
	}
	c.fullAt = now
	c.next = now.Add(max(time.Duration((most/2-c.tokens)/rate*float64(time.Second)), paceTick))
	return false
}

// NextSend implements Controller.
func (l *cubicLane) NextSend() mono.Time { return l.c.next }

// Kind implements Controller.
func (l *cubicLane) Kind() string { return "wan" }
