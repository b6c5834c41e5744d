package flowctl

import (
	"time"

	"multiedge/internal/mono"
)

// AutoParams chooses for the lanes of a cable: within a building the window of each follows delay and marks, on longer
// paths they share one CUBIC window.
type AutoParams struct {
	Near   FabricParams
	Far    CubicParams
	Border time.Duration // the least round trip of a long path
}

// autoSamples is how many acknowledgements must have told the round trip: the first may come from a busy peer.
const autoSamples = 4

// New returns the controller of a path alone.
func (p AutoParams) New() Controller { return p.Cable().New() }

// Fixed returns 0.
func (p AutoParams) Fixed() int { return 0 }

// Cable implements Cabled.
func (p AutoParams) Cable() Congestion { return &autoCable{p.Border, p.Near.cable(), p.Far.cable()} }

type autoCable struct {
	border time.Duration
	near   *fabricCable
	far    *cubicCable
}

// New implements Congestion.
func (c *autoCable) New() Controller { return &autoLane{Sharer: c.near.lane(), c: c} }

// Fixed implements Congestion.
func (c *autoCable) Fixed() int { return 0 }

// autoLane is the Controller that a lane has now.
type autoLane struct {
	Sharer
	c       *autoCable
	samples int
	far     bool
	shares  bool
}

// OnAck implements Controller, and chooses anew when the least round trip says so.
func (l *autoLane) OnAck(now mono.Time, frames int, rtt *RTT) {
	if rtt.Valid() {
		l.samples = min(l.samples+1, autoSamples)
	}
	if far := rtt.Min() >= l.c.border; l.samples == autoSamples && far != l.far {
		l.choose(far)
	}
	l.Sharer.OnAck(now, frames, rtt)
}

func (l *autoLane) choose(far bool) {
	l.far = far
	l.Sharer.Share(false)
	if !far {
		l.Sharer = l.c.near.lane()
		l.Sharer.Share(l.shares)
		return
	}
	near := l.Sharer.Frames()
	l.Sharer = l.c.far.lane()
	l.Sharer.Share(l.shares)
	if l.c.far.lanes == 1 && l.c.far.starting { // the first: what it reached already, it need not find again
		l.c.far.window = max(l.c.far.window, min(near, l.c.far.p.Max))
	}
}

// Share implements Sharer.
func (l *autoLane) Share(on bool) {
	l.shares = on
	l.Sharer.Share(on)
}

// StandIn implements Deputy.
func (l *autoLane) StandIn(o Controller) {
	if d, ok := l.Sharer.(Deputy); ok {
		d.StandIn(o)
	}
}

// Budget implements Budgeted.
func (l *autoLane) Budget() float64 {
	if b, ok := l.Sharer.(Budgeted); ok {
		return b.Budget()
	}
	return 0
}

// LossyParams are those of a window that follows delay and may be as large as a long line needs it. It gives way to
// TCP, and is for lines of its owner's that lose frames without being full.
type LossyParams struct{ DelayParams }

// New implements Congestion.
func (p LossyParams) New() Controller { return lossyWindow{p.window()} }

type lossyWindow struct{ *DelayWindow }

// Kind implements Controller.
func (w lossyWindow) Kind() string { return "lossy" }

// Budget implements Budgeted.
func (w lossyWindow) Budget() float64 { return w.Frames() }

// farMost is the most frames of a window over a long path: as many packet numbers as a peer tells apart, less some for
// what is late.
const farMost = WindowBits * 3 / 4

// ipCongestions are the ways to control congestion on IP links, by name; the first is the default.
var ipCongestions = []struct {
	name string
	way  Congestion
}{
	{"auto", AutoParams{Near: DefaultFabric, Far: CubicParams{Max: 8 * farMost}, Border: 2 * time.Millisecond}},
	{"fabric", DefaultFabric},
	{"wan", CubicParams{Max: 8 * farMost}},
	{"lossy", LossyParams{DelayParams{Max: farMost, Target: DefaultDelay.Target}}},
}

// IPCongestions lists the names that IPCongestion knows; the first is the default.
func IPCongestions() (names []string) {
	for _, c := range ipCongestions {
		names = append(names, c.name)
	}
	return names
}

// IPCongestion returns how congestion is controlled on IP links by that name; nil: there is none of it.
func IPCongestion(name string) Congestion {
	for _, c := range ipCongestions {
		if c.name == name {
			return c.way
		}
	}
	return nil
}
