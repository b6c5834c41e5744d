package flowctl

import (
	"slices"

	"multiedge/internal/mono"
)

// FabricParams are those of windows within a building. Each lane has a window that follows delay and, where routers
// mark, the share of marked frames as DCTCP does (RFC 8257): a few marks narrow it a little, and queues stay as short
// as the threshold of the marks.
type FabricParams struct {
	DelayParams         // of all lanes together; what Max bounds is each lane
	Least       float64 // frames of a lane, which marks alone can bring a window to
}

// DefaultFabric: delay cannot tell a busy peer from a full queue, so that it stops at DefaultDelay's least window. A
// mark can, and a hundred senders that meet at a port of 10 Gbit/s have a third of a frame each. Still lower windows
// cost goodput: they pause for many round trips, and a queue that many of them left empty has them all grow at once.
var DefaultFabric = FabricParams{DelayParams: DefaultDelay, Least: 1.0 / 2}

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
// least, however many they are.
type fabricCable struct {
	p     FabricParams
	lanes []*fabricLane // that may carry data
}

// New implements Congestion.
func (c *fabricCable) New() Controller { return c.lane() }

func (c *fabricCable) lane() *fabricLane {
	return &fabricLane{DelayWindow: *c.p.window(), c: c, fresh: true, share: 1}
}

// Fixed implements Congestion.
func (c *fabricCable) Fixed() int { return 0 }

// divide gives each lane its part of what a window has at least and at first.
func (c *fabricCable) divide() {
	n := float64(max(len(c.lanes), 1))
	for _, l := range c.lanes {
		l.p.Min = max(c.p.Min/n, min(c.p.Least, c.p.Min))
		if l.fresh {
			l.frames = min(max(c.p.Initial/n, l.p.Min), l.p.Max)
		}
	}
}

// fabricLane is the window of one lane.
type fabricLane struct {
	DelayWindow
	c      *fabricCable
	fresh  bool      // nothing was acknowledged
	share  float64   // of marked frames, smoothed: alpha of RFC 8257
	told   int       // frames in this round
	marked int       // of them
	end    mono.Time // of the round
}

// Share implements Sharer.
func (l *fabricLane) Share(on bool) {
	switch i := slices.Index(l.c.lanes, l); {
	case on && i < 0:
		l.c.lanes = append(l.c.lanes, l)
	case !on && i >= 0:
		l.c.lanes = slices.Delete(l.c.lanes, i, i+1)
	}
	l.c.divide()
}

// OnAck implements Controller. All lanes together grow by a frame in a round trip (RFC 6356, with windows that follow
// the same signals on all lanes).
func (l *fabricLane) OnAck(now mono.Time, frames int, rtt *RTT) {
	l.fresh = l.fresh && frames <= 0
	if l.part = 1; len(l.c.lanes) > 1 {
		sum := 0.0
		for _, o := range l.c.lanes {
			sum += o.frames
		}
		l.part = min(1, l.frames/sum)
	}
	l.DelayWindow.OnAck(now, frames, rtt)
}

// OnMarks implements Controller: once in a round trip the share of marked frames is taken, and if there were any the
// window cut by half of the smoothed share (RFC 8257 section 3.3).
func (l *fabricLane) OnMarks(now mono.Time, frames, marked int, rtt *RTT) {
	l.told += frames
	l.marked += marked
	if now >= l.end {
		l.share += dctcpGain * (float64(l.marked)/float64(max(l.told, 1)) - l.share)
		l.told, l.marked = 0, 0
		l.end = now.Add(max(rtt.SRTT(), LeastRTT))
	}
	if marked > 0 && now >= l.holdTo {
		l.cutForMark(now, l.share/2, l.c.p.Least, rtt)
	}
}
