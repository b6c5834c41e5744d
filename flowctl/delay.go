package flowctl

import (
	"math"
	"time"

	"multiedge/internal/mono"
)

// DelayParams are the limits of a window that is driven by delay. Missing limits are those of DefaultDelay.
type DelayParams struct {
	Target   time.Duration // delay allowed above the path's minimum round trip
	Min, Max float64       // frames; Min may be a fraction, below 1 the path is paced
	Initial  float64       // frames at the start
	Base     time.Duration // round trip of the idle path, if known; 0: the least one measured
}

// DefaultDelay: a target of 250 us (280 to 375 with scaling, see allowed) is several times what threads in user
// space wake late, yet at 25 Gbit/s and 8 KiB frames only about 110 frames of queue, which a receive ring of 256 slots
// holds. Max leaves that ring room for a second sender. Min 4 keeps a path going after the peer was off its core for
// milliseconds, which delay cannot tell from congestion; lower it (to 0.01) where hundreds of senders meet at one port.
var DefaultDelay = DelayParams{Target: 250 * time.Microsecond, Min: 4, Max: 192, Initial: 32}

const (
	cutGain      = 0.8 // of the excess delay, relative to the delay
	cutMost      = 0.5 // of the window, in one round trip
	cutPerLoss   = 0.5 // frames per frame lost
	cutPerMark   = 0.2 // of the window
	longestPause = 100 * time.Millisecond
	drainEvery   = 100 * time.Millisecond // a queue that stood for so long hides the minimum
	drainRounds  = 4                      // and for so many round trips, of which a drain takes two
	lowTimeouts  = 3                      // probes in a row before the window is cut
	drainFrames  = 4                      // the window meanwhile
	// drains in a row, over such a time, that stayed far above the minimum: the path itself has become longer
	riseDrains   = 3
	riseTime     = 900 * time.Millisecond
	riseExcess   = 1.1 // how far, of what other senders on the path may keep there
	minSamples   = 3   // of delay in a round
	longestDelay = time.Duration(1<<63 - 1)
	slowLeast    = 4  // smaller windows are of paths that many share
	slowQueue    = 16 // frames that may queue on a slow path
	slowMost     = 2 * time.Millisecond
)

// DelayWindow is the window of one path, driven by delay as in Swift: below the target it grows by a frame per round
// trip, above it shrinks in proportion to the excess, at most once per round trip.
//
//	starting  grows by a frame per frame acknowledged, until the first sign of congestion
//	steady    as above
//
// The delay that shrinks it is the least of the round (as in Copa), not the latest: a queue delays every frame, while a
// thread that was off its core or a frame that took a detour delays some. Seen from user space the latter is the common
// case.
//
// It grows only while the sender finds it full (Allows said no within about two round trips): an unused window proves
// nothing. Loss is a weak signal, because links lose for other reasons: half a frame per frame lost, so that a loss
// rate p without queueing settles near 2/p frames (200 at 1 %, 40 at 5 %), while a start that overran a shallow buffer
// is still undone within a few round trips.
type DelayWindow struct {
	p         DelayParams
	frames    float64
	starting  bool
	rtt       time.Duration // for spacing cuts and pacing
	roundAt   mono.Time     // when the round began
	roundEnd  mono.Time     // when the window may next be cut for delay
	roundMin  time.Duration // least delay since the round began
	lossAt    mono.Time     // start of the round trip that lossFloor bounds
	lossFloor float64
	fullAt    mono.Time     // last time Allows said no
	lowAt     mono.Time     // last time the delay was near the minimum, or the window narrowed to see
	drainEnd  mono.Time     // until when it is narrowed; 0: nothing of it is to be judged
	drainMin  time.Duration // least delay since it was
	riseMin   time.Duration // least delay of the drains so far that stayed far above the minimum
	rises     int           // those drains
	riseAt    mono.Time     // when the first of them ended
	rate      float64       // the most frames per second acknowledged in a round
	nextSend  mono.Time
	samples   int       // in roundMin
	acked     int       // frames, in this round
	timeouts  int       // since the last acknowledgement
	part      float64   // of a frame, by which it grows in a round trip
	holdTo    mono.Time // it does not grow before
}

// New returns a *DelayWindow.
func (p DelayParams) New() Controller { return p.window() }

// Fixed returns 0.
func (p DelayParams) Fixed() int { return 0 }

func (p DelayParams) window() *DelayWindow {
	d := DefaultDelay
	if p.Target <= 0 {
		p.Target = d.Target
	}
	if p.Min <= 0 {
		p.Min = d.Min
	}
	if p.Max <= 0 {
		p.Max = d.Max
	}
	p.Max = max(p.Max, p.Min)
	if p.Initial <= 0 {
		p.Initial = d.Initial
	}
	return &DelayWindow{p: p, frames: min(max(p.Initial, p.Min), p.Max), starting: true, rtt: InitialPTO / 2,
		roundMin: longestDelay, part: 1}
}

// OnAck records that ackedFrames were newly acknowledged; rtt has their sample already.
func (c *DelayWindow) OnAck(now mono.Time, ackedFrames int, rtt *RTT) {
	if ackedFrames <= 0 || !rtt.Valid() {
		return
	}
	c.timeouts = 0
	delay, base := rtt.Latest(), rtt.Min()
	if c.p.Base > 0 {
		base = min(base, c.p.Base)
	}
	target := base + c.allowed()
	c.rtt = rtt.SRTT()
	if c.drain(now, delay, base) {
		rtt.Rise(c.riseMin)
		c.starting = true // the window that fits the longer path is far away
	}
	c.roundMin = min(c.roundMin, delay)
	c.samples++
	c.acked += ackedFrames
	if now >= c.roundEnd && c.samples >= min(minSamples, int(c.frames)) {
		if c.roundMin >= target {
			c.starting = false
			c.narrow(c.frames*(1-min(cutMost, cutGain*float64(c.roundMin-target)/float64(c.roundMin))), c.p.Min)
		}
		c.rate = max(c.rate, float64(c.acked)/now.Sub(c.roundAt).Seconds())
		c.roundAt, c.roundEnd, c.roundMin, c.samples, c.acked = now, now.Add(c.rtt), longestDelay, 0, 0
	}
	if delay < target && now >= c.holdTo && now.Sub(c.fullAt) <= 2*c.rtt+time.Millisecond {
		if c.starting {
			c.frames += float64(ackedFrames)
		} else {
			c.frames += c.part * float64(ackedFrames) / max(c.frames, 1)
		}
	}
	c.settle(now)
}

// narrow cuts the window to so many frames, but not below the least, unless it was there.
func (c *DelayWindow) narrow(to, least float64) { c.frames = max(to, min(c.frames, least)) }

// allowed returns the delay allowed above the idle path's: the target, and up to half of it again for small windows, so
// that of flows which share a queue the smaller are cut later and grow towards the larger (Swift's flow-based scaling).
// On a slow path, where the target is a frame or three, it is what slowQueue frames take: a thread that is late for the
// time of so few would leave the link idle.
func (c *DelayWindow) allowed() time.Duration {
	allowed := time.Duration(float64(c.p.Target) * (1 + 1/math.Sqrt(max(c.frames, 4))))
	if c.frames >= slowLeast && c.frames < slowQueue {
		allowed = max(allowed, min(time.Duration(slowQueue*float64(c.rtt)/c.frames), slowMost))
	}
	return allowed
}

// drain narrows the window for two round trips when the delay has not come near the minimum for long: the queue that
// stands there may be all there ever was since this path began, and its minimum too high by that queue (the latecomer's
// advantage; BBR's ProbeRTT).
//
// It reports that the path has become longer, to riseMin: drains in a row brought the delay neither near the minimum
// nor to where other senders on the path keep it. In riseTime a short path has ten. If that was a queue after all, a
// lower minimum shows as soon as it shrinks.
func (c *DelayWindow) drain(now mono.Time, delay, base time.Duration) (rose bool) {
	if c.drainEnd != 0 {
		c.drainMin = min(c.drainMin, delay)
		if now >= c.drainEnd {
			c.drainEnd = 0
			rose = c.drained(now, base)
		}
	}
	switch {
	case c.lowAt == 0 || delay <= base+max(c.p.Target/4, min(base/32, c.far())):
		c.lowAt, c.rises = now, 0
	case now.Sub(c.lowAt) > max(drainEvery, drainRounds*c.rtt):
		c.lowAt = now
		c.drainEnd, c.drainMin = now.Add(2*c.rtt), longestDelay
	}
	return rose
}

// far is the delay above the minimum from which on the path may have become longer: more than windows of the size
// drained to allow there. Slow paths have more.
func (c *DelayWindow) far() time.Duration {
	kept := c.p.Target + c.p.Target/2
	if c.rate*kept.Seconds() < slowQueue {
		kept = max(kept, slowMost)
	}
	return time.Duration(riseExcess * float64(kept))
}

// drained judges a drain that has ended, and reports whether it was the last it took to believe that the path has
// become longer.
func (c *DelayWindow) drained(now mono.Time, base time.Duration) bool {
	if c.p.Base > 0 || c.drainMin-base <= c.far() {
		c.rises = 0
		return false
	}
	if c.rises == 0 {
		c.riseMin, c.riseAt = longestDelay, now
	}
	c.riseMin = min(c.riseMin, c.drainMin)
	if c.rises++; c.rises < riseDrains || now.Sub(c.riseAt) < riseTime {
		return false
	}
	c.rises = 0
	return true
}

// OnLoss records that lostFrames were judged lost.
func (c *DelayWindow) OnLoss(now mono.Time, lostFrames int) {
	if lostFrames <= 0 {
		return
	}
	c.starting = false
	if now.Sub(c.lossAt) >= c.rtt {
		c.lossAt, c.lossFloor = now, c.frames*(1-cutMost)
	}
	c.narrow(max(c.frames-cutPerLoss*float64(lostFrames), min(c.frames, c.lossFloor)), c.p.Min)
	c.settle(now)
}

// OnMarks records that marked frames arrived: the window narrows once in a round trip, by as much as beside a sender
// that treats marks as losses is right (RFC 8511). The windows of a building know better (dctcp.go).
func (c *DelayWindow) OnMarks(now mono.Time, _, marked int, rtt *RTT) {
	if marked > 0 && now >= c.holdTo {
		c.cutForMark(now, cutPerMark, c.p.Min, rtt)
	}
}

// cutForMark cuts the window by that part, which then does not grow for a round trip.
func (c *DelayWindow) cutForMark(now mono.Time, part, least float64, rtt *RTT) {
	if rtt.Valid() {
		c.rtt = rtt.SRTT()
	}
	c.starting = false
	c.narrow(c.frames*(1-part), least)
	c.holdTo = now.Add(c.rtt)
	c.settle(now)
}

// OnTimeout records that a probe was due. One or two say little: the tail of a burst was lost, or the peer was off its
// core. From the third without an acknowledgement in between, 14 ms at least, the window is halved: persistent
// congestion (RFC 9002 section 7.6).
func (c *DelayWindow) OnTimeout(now mono.Time) {
	if c.timeouts++; c.timeouts < lowTimeouts {
		return
	}
	c.starting = c.starting && c.roundAt == 0 // without any answer: perhaps the path is only long
	c.narrow(c.frames*(1-cutMost), c.p.Min)
	c.settle(now)
}

// settle clamps the window and, below one frame, says when the next frame may leave: one per rtt/frames, of which the
// round trip of the frame that was just settled has passed.
func (c *DelayWindow) settle(now mono.Time) {
	c.frames = min(c.frames, c.p.Max)
	c.nextSend = 0
	if c.frames < 1 {
		pause := time.Duration(float64(c.rtt) * (1/c.frames - 1))
		c.nextSend = now.Add(min(pause, longestPause))
	}
}

// Frames returns the window.
func (c *DelayWindow) Frames() float64 { return c.frames }

// Allows reports whether a frame may leave while inFlight are unacknowledged. Ask it only when there is a frame to
// send, and for every frame: its refusals are what lets the window grow.
func (c *DelayWindow) Allows(inFlight int, now mono.Time) bool {
	var ok bool
	switch {
	case c.frames < 1:
		ok = inFlight == 0 && now >= c.nextSend
	case now < c.drainEnd:
		return inFlight < min(drainFrames, int(c.frames))
	default:
		ok = inFlight < int(c.frames)
	}
	if !ok {
		c.fullAt = now
	}
	return ok
}

// NextSend returns the time before which pacing holds frames back; 0 unless the window is below one frame.
func (c *DelayWindow) NextSend() mono.Time { return c.nextSend }

// Kind implements Controller.
func (c *DelayWindow) Kind() string { return "delay" }
