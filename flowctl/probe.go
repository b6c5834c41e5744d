package flowctl

import (
	"time"

	"multiedge/internal/mono"
)

// probeState finds losses that no later packet reveals: the last frames before a pause, and a path that went dark. When
// nothing was acknowledged for a probe timeout while something is outstanding, one eliciting frame is to be sent; its
// acknowledgement lets the judgement by time do the rest. This is the paper's retransmission of the last frame (section
// 2.1.2), with RFC 8985 section 7 for its time.
//
// The timeout runs from anchor: the last progress, the last probe, or the moment the path stopped being idle. It does
// not restart with each frame sent (as in RFC 9002), or a trickle of frames into a dark path would put the probe off
// until its window is full. It doubles with each probe unanswered, up to the coarse timeout.
type probeState struct {
	anchor  mono.Time
	pto     time.Duration // not backed off
	count   int           // consecutive probes unanswered
	pressed mono.Time     // when the peer answered elsewhere first since the first of them; 0: it has not
	// numbers below it were sent before the end of a silence, of the peer through several probes or of ourselves
	silent uint64
}

// progress records that something was newly acknowledged.
func (l *Ledger) progress(now mono.Time, rtt *RTT) {
	p := &l.probe
	p.anchor, p.pto, p.count, p.pressed = now, rtt.PTO(l.params.AckDelay), 0, 0
}

// probeAt returns when the next probe is due.
func (l *Ledger) probeAt() mono.Time {
	p := &l.probe
	limit := max(l.params.CoarseTimeout, p.pto) // never below what the path itself needs
	doubled := min(p.count, 16)
	if p.pressed == 0 {
		return p.anchor.Add(min(p.pto<<doubled, limit))
	}
	return max(p.anchor.Add(min(p.pto<<(doubled-1), limit)), p.pressed.Add(p.pto/2))
}

// Press says that the peer has answered by another path since the first probe left here: the second need not wait for a
// processor that may be busy, and is due after one timeout, as the first was. If the peer was busy for longer than
// that, its answers to all paths come together, not in one moment: the one of this path has half a timeout more. Press
// has no effect before the first probe, nor again before something is acknowledged.
func (l *Ledger) Press(now mono.Time) {
	if l.probe.count > 0 && l.probe.pressed == 0 {
		l.probe.pressed = now
	}
}

// Probes returns how many consecutive probes went unanswered: the engine's measure of a suspect path. AbandonAll does
// not reset it, any newly acknowledged packet does.
func (l *Ledger) Probes() int { return l.probe.count }

// Deadline returns when OnTimeout must be called: the next loss judgement or probe; Never when nothing is outstanding.
// It may change with every other call.
func (l *Ledger) Deadline() mono.Time {
	if l.frames == 0 {
		return mono.Never
	}
	return mono.Min(l.loss.at, l.probeAt())
}

// OnTimeout does what the passing of time calls for; before Deadline that is nothing. Packets lost are appended to
// lost. probe: nothing was heard for a probe timeout; send an eliciting frame now, whatever the window says (CanSend
// still holds): best new data, else the newest unacknowledged again. Handle all frames that wait before calling it: a
// host that was off its core finds its timers run out and the acknowledgements that answer them in the same moment.
func (l *Ledger) OnTimeout(now mono.Time, rtt *RTT, lost []Sent) (_ []Sent, probe bool) {
	if l.frames == 0 {
		return lost, false
	}
	if l.loss.at <= now {
		lost = l.judge(now, l.patience(rtt), rtt, lost)
	}
	if l.frames == 0 || l.probeAt() > now {
		return lost, false
	}
	l.probe.anchor = now
	l.probe.count++
	return lost, true
}
