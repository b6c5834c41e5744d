package flowctl

import (
	"slices"
	"time"

	"multiedge/internal/mono"
)

// FabricParams are those of windows within a building. Each lane has a window that follows delay and, where routers
// mark, the share of marked frames as DCTCP does (RFC 8257): a few marks narrow it a little, and queues stay as short
// as the threshold of the marks.
type FabricParams struct {
	DelayParams         // of all lanes together; what Max bounds is each lane
	Least       float64 // frames of a lane, which marks alone can bring a window to
	Share       float64 // of marked frames, with which a window begins
}

// DefaultFabric begins with as many frames as TCP (RFC 6928): of the senders that meet at a port, all windows arrive
// before any mark came back. Delay cannot tell a busy peer from a full queue, so that it stops at DefaultDelay's least
// window. A mark can, and goes below it. Least is half a frame: still lower windows pause for many round trips, leave
// the queue empty meanwhile, and then all grow at once. Share is less than the 1 of common senders of DCTCP: beside
// windows that have learnt a small share, one that begins would halve itself at each mark, and short flows be over
// before they had their part. Still less has more senders that begin at once overrun their port again.
var DefaultFabric = func() FabricParams {
	p := FabricParams{DelayParams: DefaultDelay, Least: 1.0 / 2, Share: 0.35}
	p.Initial = 10
	return p
}()

// dctcpGain is the weight of the newest round trip in the share of marked frames (RFC 8257 section 4.2).
const dctcpGain = 1.0 / 16

// New returns the controller of a path alone.
func (p FabricParams) New() Controller { return p.cable().New() }

// Fixed returns 0.
func (p FabricParams) Fixed() int { return 0 }

// Cable implements Cabled.
func (p FabricParams) Cable() Congestion { return p.cable() }

func (p FabricParams) cable() *fabricCable {
	p.DelayParams = p.window().p
	return &fabricCable{p: p}
}

// fabricCable is what the lanes of a cable share: they grow together as one window would, and begin and end with its
// least, however many they are. Of small windows there are few: a lane without a whole frame gives what it has to the
// one with the largest window, and rests until another has two frames and gives it one. Otherwise each lane of many
// senders that meet at a port would have a frame there, and learn from its marks alone, several times as slowly as one
// window does.
type fabricCable struct {
	p     FabricParams
	lanes []*fabricLane // that may carry data
}

// wakeAt is how many frames a window has that gives one to a lane that rests.
const wakeAt = 2

// New implements Congestion.
func (c *fabricCable) New() Controller { return c.lane() }

func (c *fabricCable) lane() *fabricLane {
	return &fabricLane{DelayWindow: *c.p.window(), c: c, fresh: true, share: c.p.Share}
}

// Fixed implements Congestion.
func (c *fabricCable) Fixed() int { return 0 }

// divide gives each lane its part of what a window has at first, and each that does not rest its part of the least.
func (c *fabricCable) divide() {
	awake := 0
	for _, l := range c.lanes {
		if !l.rests {
			awake++
		}
	}
	for _, l := range c.lanes {
		l.p.Min = max(c.p.Min/float64(max(awake, 1)), min(c.p.Least, c.p.Min))
		if l.fresh && !l.rests {
			l.frames = min(max(c.p.Initial/float64(len(c.lanes)), l.p.Min), l.p.Max)
		}
	}
}

// others finds the lane with the largest window that does not rest, and one that does, besides l, each a silent one
// only if there is no other. One of all lanes is awake.
func (c *fabricCable) others(l *fabricLane) (largest, resting *fabricLane) {
	if !slices.Contains(c.lanes, l) {
		return nil, nil
	}
	for _, o := range c.lanes {
		switch {
		case o == l:
		case o.rests:
			if resting == nil || resting.data.silent {
				resting = o
			}
		case largest == nil || largest.data.silent || !o.data.silent && o.frames > largest.frames:
			largest = o
		}
	}
	return largest, resting
}

// fabricLane is the window of one lane.
type fabricLane struct {
	DelayWindow
	c     *fabricCable
	fresh bool    // nothing was acknowledged
	rests bool    // others have its part of the window
	share float64 // of marked frames, smoothed: alpha of RFC 8257
	data  dataWindow
	peak  peak
}

// peak is the most frames that were in flight in this round trip and in the one before.
type peak struct {
	now, before int
	end         mono.Time // of this round trip
}

// dataWindow is the frames in flight when it began. What DCTCP does once it does for one of them (RFC 8257). A time
// would not do: a queue that grows makes the round trip several times as long as the smoothed one, and marks of frames
// that left before a cut would cut again.
type dataWindow struct {
	flying int       // frames in flight, as far as they were told
	rest   int       // of those that were when it began
	end    mono.Time // when it ends at the latest: of some frames nothing is told
	told   int       // frames whose marks were told since it began
	marked int       // of them
	silent bool      // they were asked after in vain, while another lane was answered
}

// Share implements Sharer.
func (l *fabricLane) Share(on bool) {
	switch i := slices.Index(l.c.lanes, l); {
	case on && i < 0:
		l.c.lanes = append(l.c.lanes, l)
	case !on && i >= 0:
		if awake, resting := l.c.others(l); awake == nil && resting != nil {
			l.wake(resting, l.frames)
		}
		l.c.lanes = slices.Delete(l.c.lanes, i, i+1)
		l.rests = false
	}
	l.c.divide()
}

// wake gives a lane that rests so many frames, and what l knows of marks.
func (l *fabricLane) wake(o *fabricLane, frames float64) {
	o.rests, o.fresh, o.frames, o.share, o.starting, o.rtt = false, false, frames, l.share, l.starting, l.rtt
	o.settle(0)
}

// StandIn implements Deputy. The lanes that are awake may all lead by a way on which nothing passes any more, and a
// lane that rests would not be tried before the first of them is known to be dead. What the other has in flight it has
// besides: it was not heard of for two round trips.
func (l *fabricLane) StandIn(o Controller) {
	if auto, ok := o.(*autoLane); ok {
		o = auto.Sharer
	}
	silent, ok := o.(*fabricLane)
	if !ok || silent.c != l.c || !slices.Contains(l.c.lanes, silent) {
		return
	}
	if silent.data.silent = true; l.rests && !silent.rests {
		silent.wake(l, silent.frames)
		silent.rest()
	}
}

// rest leaves the lane's part of the window to the others.
func (l *fabricLane) rest() {
	l.frames, l.nextSend, l.rests, l.fresh = 0, 0, true, false
	l.c.divide()
}

// balance is called when the window has changed.
func (l *fabricLane) balance() {
	switch largest, resting := l.c.others(l); {
	case l.frames < 1 && largest != nil && !largest.data.silent:
		largest.frames = min(largest.frames+l.frames, largest.p.Max)
		l.rest()
	case l.frames >= wakeAt && resting != nil && !resting.data.silent:
		l.frames--
		l.wake(resting, 1)
		l.c.divide()
	}
}

// OnAck implements Controller. All lanes together grow by a frame in a round trip (RFC 6356, with windows that follow
// the same signals on all lanes). A window that was not reached of late does not grow (RFC 7661): where the sender's
// own port is what holds frames back it would become several times as large as the way needs, unnoticed, and fill the
// first queue that others share with it.
func (l *fabricLane) OnAck(now mono.Time, frames int, rtt *RTT) {
	l.data.silent = l.data.silent && frames <= 0
	if l.data.landed(frames); l.rests {
		return
	}
	l.fresh = l.fresh && frames <= 0
	if l.part = 1; len(l.c.lanes) > 1 {
		sum := 0.0
		for _, o := range l.c.lanes {
			sum += o.frames
		}
		l.part = min(1, l.frames/sum)
	}
	if float64(max(l.peak.now, l.peak.before)) < l.frames-1 {
		l.fullAt = 0
	}
	l.DelayWindow.OnAck(now, frames, rtt)
	if now >= l.peak.end {
		l.peak = peak{now: l.data.flying, before: l.peak.now, end: now.Add(l.rtt)}
	}
	l.balance()
}

// landed records that frames are in flight no more.
func (d *dataWindow) landed(frames int) {
	d.flying = max(0, d.flying-frames)
	d.rest = max(0, d.rest-frames)
}

// OnLoss implements Controller.
func (l *fabricLane) OnLoss(now mono.Time, frames int) {
	if l.data.landed(frames); l.rests {
		return
	}
	l.DelayWindow.OnLoss(now, frames)
	l.balance()
}

// OnTimeout implements Controller.
func (l *fabricLane) OnTimeout(now mono.Time) {
	if l.rests {
		return
	}
	l.DelayWindow.OnTimeout(now)
	l.balance()
}

// Allows implements Controller.
func (l *fabricLane) Allows(inFlight int, now mono.Time) bool {
	ok := !l.rests && l.DelayWindow.Allows(inFlight, now)
	if l.data.flying = inFlight; ok {
		l.data.flying++
	}
	l.peak.now = max(l.peak.now, l.data.flying)
	return ok
}

// Kind implements Controller.
func (l *fabricLane) Kind() string { return "fabric" }

// begin begins a window of data.
func (l *fabricLane) begin(now mono.Time) {
	l.data.rest, l.data.end = l.data.flying, now.Add(4*l.rtt+time.Millisecond)
}

// OnMarks implements Controller: for each window of data the share of marked frames is taken, and if there were any the
// window cut by half of the smoothed share (RFC 8257 section 3.3).
func (l *fabricLane) OnMarks(now mono.Time, frames, marked int, rtt *RTT) {
	if l.rests {
		return
	}
	d := &l.data
	d.told += frames
	d.marked += marked
	if d.rest == 0 || now >= d.end {
		l.share += dctcpGain * (float64(d.marked)/float64(max(d.told, 1)) - l.share)
		d.told, d.marked, l.holdTo = 0, 0, 0
		l.begin(now)
	}
	if marked > 0 && l.holdTo == 0 {
		l.cutForMark(now, l.share/2, l.c.p.Least, rtt)
		l.begin(now)
		l.holdTo = d.end
		l.balance()
	}
}
