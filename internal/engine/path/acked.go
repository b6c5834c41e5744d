package path

import (
	"time"

	"multiedge/flowctl"
	"multiedge/internal/frame"
	"multiedge/internal/mono"
	"multiedge/internal/wire"
)

// Bits of a frame's tag in the ledger. The others are the owner's, and zero if the frame carried nothing that would be
// sent again.
const (
	TagPicked  = 1 << 31 // the scheduler chose the path, and is to hear when the frame is done
	TagCapable = 1 << 30 // it left with ECT(0)
	TagNotes   = TagPicked | TagCapable
)

// messageFrames is how many frames drivers send as one message at most.
const messageFrames = 64

// OnAck takes an acknowledgement of one of our paths. It reports whether the frame may count as received.
func (s *Set) OnAck(now mono.Time, g *wire.Segment) bool {
	net := s.net
	p := s.Tx[g.Path]
	if p == nil {
		return true
	}
	net.Words = net.Words[:0]
	for w := range g.Words() {
		net.Words = append(net.Words, g.Word(w))
	}
	net.block = flowctl.Block{Path: g.Path, Largest: g.Size, Floor: g.Place, Delay: time.Duration(g.Delay),
		Nack: g.Flags&wire.AckNack != 0, Bits: net.Words}
	var res flowctl.AckResult
	net.acked, net.Lost, res = p.Ledger.OnAck(now, &net.block, &p.RTT, net.acked[:0],
		net.Lost[:0])
	if res.Invalid {
		net.count.Reject.RejectedMalformed++
		return false
	}
	net.count.Loss.SpuriousLosses += uint64(res.SpuriousLosses)
	if res.HasRTT {
		net.Links[p.Link].RoundTrips.Observe(p.RTT.Latest())
	}
	if net.Links[p.Link].ECN {
		p.told(now, g, net.acked)
	}
	if len(net.acked) > 0 {
		p.onAlive(now)
		p.Cwnd.OnAck(now, len(net.acked), &p.RTT)
		if net.Links[p.Link].Congestion != nil {
			s.widen()
		}
		s.onAcked(now, p, net.acked)
		if s.measured && p.Usable() {
			s.Sched.SetWeight(p.Link, p.Cwnd.Frames())
		}
	}
	if len(net.Lost) > 0 {
		s.OnLost(now, p, net.Lost)
	}
	return true
}

// onAcked acts on what the frames carried.
func (s *Set) onAcked(now mono.Time, p *Tx, acked []flowctl.Sent) {
	s.InFlight -= len(acked)
	for k := range acked {
		if acked[k].Tag&TagPicked != 0 {
			s.Sched.Done(p.Link, int(acked[k].Bytes))
		}
		p.doubtSize(now, &acked[k], false)
	}
	s.owner.Acked(now, acked)
}

// OnLost queues again what the frames carried, where it still matters (clause 3.6).
func (s *Set) OnLost(now mono.Time, p *Tx, lost []flowctl.Sent) {
	net := s.net
	s.InFlight -= len(lost)
	n, ends := uint64(0), uint64(0)
	message := flowctl.Message{Least: frame.HeaderLen + wire.MinFrame, Most: net.Links[p.Link].Super,
		Packets: messageFrames}
	// probes and pings may be lost for their size or because the path is dead; that says nothing of congestion
	carried := 0
	for k := range lost {
		if lost[k].Tag&TagPicked != 0 {
			s.Sched.Done(p.Link, int(lost[k].Bytes))
		}
		if lost[k].Tag&^TagNotes != 0 {
			carried++
			if lost[k].Tag&TagCapable != 0 {
				p.Marking.lost++
			}
			if p.PMTU.Joined && p.Usable() && p.Ledger.EndedMessage(lost[k].PN, &message) {
				ends++
			}
			p.doubtSize(now, &lost[k], true)
		} else if !p.Usable() || int(lost[k].Bytes)-frame.HeaderLen > wire.MinFrame {
			continue // a probe of a path known not to answer, or of a size or form that may not pass (clause 9)
		}
		n++
	}
	s.owner.Lost(lost)
	s.FramesLost += n
	net.count.Loss.FramesLost += n
	net.Links[p.Link].Count.Loss.FramesLost += n
	net.count.Loss.TrainEndsLost += ends
	net.Links[p.Link].Count.Loss.TrainEndsLost += ends
	p.Count.Lost += n
	if carried > 0 && p.State != StateDead {
		p.Cwnd.OnLoss(now, carried)
	}
}

// Rx is the receive side of a path.
type Rx struct {
	Tracker flowctl.Tracker
	Policy  flowctl.AckPolicy
	Marks   Marks
}

// AckAt is when an explicit acknowledgement of the path is due: later when data is waiting to leave that will carry it.
func (r *Rx) AckAt(waiting bool) mono.Time {
	if waiting {
		return r.Policy.OverdueAt()
	}
	return r.Policy.Deadline()
}
