package flowctl

import (
	"slices"
	"testing"
	"time"

	"multiedge/internal/mono"
)

// halving is a congestion control of another file: a frame more per round trip, half of it after a loss.
type halving struct{ start int }

func (h halving) New() Controller { return &halved{frames: float64(h.start)} }
func (halving) Fixed() int        { return 0 }

type halved struct {
	frames float64
	cutAt  mono.Time
	rtt    time.Duration
	cuts   int
}

func (h *halved) OnAck(_ mono.Time, n int, rtt *RTT) {
	h.frames += float64(n) / h.frames
	h.rtt = rtt.SRTT()
}

func (h *halved) OnLoss(now mono.Time, n int) {
	if n > 0 && now.Sub(h.cutAt) > h.rtt {
		h.frames, h.cutAt = max(1, h.frames/2), now
		h.cuts++
	}
}

func (h *halved) Kind() string                          { return "halved" }
func (h *halved) OnMarks(mono.Time, int, int, *RTT)     {}
func (h *halved) OnTimeout(mono.Time)                   {}
func (h *halved) Frames() float64                       { return h.frames }
func (h *halved) Allows(inFlight int, _ mono.Time) bool { return inFlight < int(h.frames) }
func (h *halved) NextSend() mono.Time                   { return 0 }

// A congestion control takes one file: its profile is found by name, and a path runs under it.
func TestAnotherController(t *testing.T) {
	before := slices.Clone(Profiles)
	defer func() { Profiles = before }()
	p := Profiles[0]
	p.Name, p.Congestion = "halving", halving{start: 10}
	Register(p)
	p, err := ProfileByName("halving")
	if err != nil {
		t.Fatal(err)
	}
	f := newFlow(t, newSim(1), 5000, p, tenGig(), ackWire())
	f.fwd.loss = 0.01
	f.finish(time.Minute)
	c, ok := f.cwnd.(*halved)
	if !ok || c.cuts == 0 || f.losses == 0 {
		t.Errorf("controller %+v after %d losses", f.cwnd, f.losses)
	}
}
