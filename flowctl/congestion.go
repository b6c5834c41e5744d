package flowctl

import "multiedge/internal/mono"

// Congestion is a way to control congestion, with its parameters. A Profile names one. A further one is a file with two
// types, this and its Controller, and a Profile that has it (Register).
type Congestion interface {
	// New returns the controller of a path that begins.
	New() Controller
	// Fixed is the constant window of every path, in frames; 0: it follows the path.
	Fixed() int
}

// Controller says how many frames of one path may be in flight. One thread owns it. It does not allocate.
type Controller interface {
	// Kind names how it controls congestion now: fixed, delay, fabric, wan or lossy.
	Kind() string
	// OnAck records that frames were newly acknowledged; rtt has their sample already. A path that was found to be
	// longer than before is told to rtt.
	OnAck(now mono.Time, frames int, rtt *RTT)
	// OnMarks records that the peer tells of that many more frames which came with an ECN mark or could have, and how
	// many of them were marked: routers on the way are about to be congested. It precedes the OnAck of the same
	// acknowledgement, whose round trip rtt has already.
	OnMarks(now mono.Time, frames, marked int, rtt *RTT)
	// OnLoss records that frames were judged lost.
	OnLoss(now mono.Time, frames int)
	// OnTimeout records that a probe was due.
	OnTimeout(now mono.Time)
	// Frames returns the window. Below 1 the path is paced.
	Frames() float64
	// Allows reports whether a frame may leave while inFlight are unacknowledged. It is asked only when there is a
	// frame to send, and for every frame: a refusal says that the window is used.
	Allows(inFlight int, now mono.Time) bool
	// NextSend returns the time before which pacing holds frames back; 0: it does not.
	NextSend() mono.Time
}

// FixedWindow is a constant window of so many frames, as in the paper: no reaction to congestion. It is its own
// controller, since it remembers nothing.
type FixedWindow int

func (w FixedWindow) New() Controller { return w }
func (w FixedWindow) Fixed() int      { return int(w) }

func (w FixedWindow) Kind() string                            { return "fixed" }
func (w FixedWindow) OnAck(mono.Time, int, *RTT)              {}
func (w FixedWindow) OnMarks(mono.Time, int, int, *RTT)       {}
func (w FixedWindow) OnLoss(mono.Time, int)                   {}
func (w FixedWindow) OnTimeout(mono.Time)                     {}
func (w FixedWindow) Frames() float64                         { return float64(w) }
func (w FixedWindow) Allows(inFlight int, now mono.Time) bool { return inFlight < int(w) }
func (w FixedWindow) NextSend() mono.Time                     { return 0 }
