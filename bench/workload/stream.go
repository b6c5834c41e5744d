package workload

import (
	"context"

	"multiedge/bench/kit"
	"multiedge/bench/report"
	"multiedge/internal/mono"
)

// stream runs one-way, two-way, read and rate on one side: operations back to back, then an end behind all of them that
// the peer acknowledges. receives: the peer sends, too, and will say its end.
//
// When data is checked, notifications are handled beside the sender by a second goroutine. Otherwise nothing but the
// ends is notified, and they are waited for when the sender is through: a second goroutine that waits would only be in
// its way.
func (s *side) stream(ctx context.Context, p *setup, sends, receives bool) *outcome {
	out := &outcome{scale: 1}
	r := &receiver{ch: s.ch, lanes: s.lanes[1:p.spec.conns()], size: p.spec.Size, wantEnd: receives, wantAck: sends}
	reads := p.spec.Test == report.Read
	if !reads {
		r.checker = p.checker
	}
	var d *sender
	if sends {
		d = s.newSender(p)
		d.progress = s.show
		out.lat, out.post = d.lat, d.post
		if p.spec.Integrity && !reads {
			d.credit = newCredit(p.to.Slots)
			r.credit = d.credit
		}
	}
	start := mono.Now()
	s.drive(ctx, p, d, r, out)
	if d != nil {
		out.peak = d.peak.best
	}
	out.elapsed = max(r.ackAt, r.endAt).Sub(start)
	total := r.peerSent
	if reads {
		total = out.sent
	}
	out.integrity = checked(p.checker, total)
	return out
}

// drive runs the sender d, if there is one, and the receiver r: beside each other when d depends on the credit r takes.
func (s *side) drive(ctx context.Context, p *setup, d *sender, r *receiver, out *outcome) {
	if d == nil {
		r.run(ctx)
		return
	}
	send := func(ctx context.Context) {
		out.sent = d.run(ctx, count(&p.spec), deadline(&p.spec, mono.Now()))
		s.ch.end(ctx, out.sent)
	}
	if d.credit == nil {
		send(ctx)
		r.run(ctx)
		return
	}
	kit.Together(ctx, r.run, send)
}
