package line

import (
	"math"
	"time"

	"multiedge/flowctl"
	"multiedge/internal/mono"
)

// Edge is a sender of this transport, and its receiver, on one lane.
type Edge struct {
	Arrived int // packets

	s          *Sim
	fwd, back  *Wire
	ledger     *flowctl.Ledger
	rtt        flowctl.RTT
	window     flowctl.Controller
	tracker    flowctl.Tracker
	policy     flowctl.AckPolicy
	timer      mono.Time // for which an event is scheduled; Never: none
	ackTimer   mono.Time
	paced      mono.Time
	acked, now []flowctl.Sent // for one call
}

// frameBytes is what a packet counts for.
const frameBytes = 1500

// wakes is how late a thread in user space wakes at most.
const wakes = 100 * time.Microsecond

// NewEdge returns a sender with a window of c. Lanes share a window if c is what flowctl.Cabled.Cable returned.
func NewEdge(s *Sim, c flowctl.Congestion, fwd, back *Wire) *Edge {
	p := flowctl.Profiles[0]
	e := &Edge{s: s, fwd: fwd, back: back, ledger: flowctl.NewLedger(flowctl.WindowBits), window: c.New(),
		timer: mono.Never, ackTimer: mono.Never}
	e.ledger.Configure(p.Loss(p.Acks))
	e.policy.Init(p.Acks)
	if w, ok := e.window.(flowctl.Sharer); ok {
		w.Share(true)
	}
	s.at(s.Now, e.poll)
	return e
}

// poll sends what may leave.
func (e *Edge) poll() {
	for e.ledger.CanSend() {
		n, _ := e.ledger.InFlight()
		if !e.window.Allows(n, e.s.Now) {
			if at := e.window.NextSend(); at > e.s.Now && e.paced <= e.s.Now {
				e.paced = at
				e.s.at(at, e.poll)
			}
			break
		}
		e.send()
	}
	if at := e.ledger.Deadline(); at < e.timer {
		e.timer = at
		e.s.at(at.Add(e.late()), e.expired)
	}
}

// late is how late a thread in user space wakes this time.
func (e *Edge) late() time.Duration { return time.Duration(e.s.rng.Int64N(int64(wakes))) }

func (e *Edge) send() {
	pn := e.ledger.Record(e.s.Now, frameBytes, 0, true)
	e.fwd.send(e.s, func() { e.arrive(pn) })
}

func (e *Edge) expired() {
	e.timer = mono.Never
	var probe bool
	e.now, probe = e.ledger.OnTimeout(e.s.Now, &e.rtt, e.now[:0])
	e.window.OnLoss(e.s.Now, len(e.now))
	if probe {
		e.window.OnTimeout(e.s.Now)
		e.send()
	}
	e.poll()
}

// arrive is the receiver's.
func (e *Edge) arrive(pn uint64) {
	if e.tracker.Check(pn) != flowctl.New {
		return
	}
	e.Arrived++
	gap, _ := e.tracker.Commit(pn, e.s.Now)
	e.policy.OnFrame(e.s.Now, true, gap)
	e.speak()
}

func (e *Edge) speak() {
	if e.policy.Due(e.s.Now) {
		if b, ok := e.policy.Block(e.s.Now, &e.tracker, nil, flowctl.MaxAckWords, false); ok {
			e.back.send(e.s, func() { e.told(&b) })
		}
	} else if at := e.policy.Deadline(); at < e.ackTimer {
		e.ackTimer = at
		e.s.at(at.Add(e.late()), func() { e.ackTimer = mono.Never; e.speak() })
	}
}

// told takes an acknowledgement.
func (e *Edge) told(b *flowctl.Block) {
	e.acked, e.now, _ = e.ledger.OnAck(e.s.Now, b, &e.rtt, e.acked[:0], e.now[:0])
	e.window.OnAck(e.s.Now, len(e.acked), &e.rtt)
	e.window.OnLoss(e.s.Now, len(e.now))
	e.poll()
}

// Jain is Jain's index of fairness of what each has: 1 if all have the same, 1/n if one has all.
func Jain(parts ...float64) float64 {
	var sum, squares float64
	for _, x := range parts {
		sum += x
		squares += x * x
	}
	if squares == 0 {
		return math.NaN()
	}
	return sum * sum / float64(len(parts)) / squares
}
