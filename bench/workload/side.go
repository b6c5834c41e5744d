package workload

import (
	"context"
	"time"

	"multiedge/bench/kit"
	"multiedge/bench/pattern"
	"multiedge/bench/report"
	"multiedge/edge"
	"multiedge/edge/atomics"
	"multiedge/internal/mono"
)

// side is one end of an established series.
type side struct {
	ch    *channel
	lanes []lane // connections that carry operations; the first is ch's
	mem   *regions
	show  func(done uint64) // progress of the own sender; may be nil

	patterns *pattern.Source
	seed     uint64

	afterPrepare func(*setup) // of tests that spoil memory; nil
}

// outcome is what one side saw of a measurement.
type outcome struct {
	sent      uint64
	elapsed   time.Duration
	peak      float64
	lat, post *report.Recorder // nil when nothing was sent
	scale     float64          // of lat: 0.5 when it holds round trips
	integrity Integrity
	notes     []string
}

// setup is memory prepared for one measurement.
type setup struct {
	spec    Spec
	from    pattern.Layout // of sources, at both ends
	to      pattern.Layout // of targets
	checker *pattern.Checker
	streams *streams // of byte streams; else nil
}

// prepare lays out and fills this side's memory for spec.
func (s *side) prepare(spec Spec, client bool) *setup {
	p := &setup{spec: spec}
	var err error
	if p.from, p.to, err = pattern.PairAt(spec.Region, spec.Size, spec.Integrity, spec.Align); err != nil {
		kit.Fail("%w: choose smaller messages or a larger --region", err)
	}
	if spec.ByteStream {
		p.streams = newStreams(&spec, client, s.mem)
		return p
	}
	if !spec.Integrity {
		return p
	}
	if s.patterns == nil || s.seed != spec.Seed {
		s.patterns, s.seed = pattern.New(spec.Seed), spec.Seed
	}
	if s.mem.source != nil {
		p.from.Fill(s.mem.source.Bytes()[:spec.Region], s.patterns)
	}
	// messages of the peer, or what the own reads bring
	receives := !client || spec.serverSends() || spec.Test == report.PingPong || spec.Test == report.Read
	if receives && s.mem.target != nil {
		p.checker = pattern.NewChecker(s.patterns, s.mem.target.Bytes()[:spec.Region], p.from, p.to)
	}
	if s.afterPrepare != nil {
		s.afterPrepare(p)
	}
	return p
}

// execute runs one measurement on this side, prepared by p.
func (s *side) execute(ctx context.Context, p *setup, client bool) *outcome {
	sends := client || p.spec.serverSends()
	switch {
	case p.streams != nil:
		return p.streams.run(ctx, &p.spec, client)
	case p.spec.Test == report.PingPong && client:
		return s.ping(ctx, p)
	case p.spec.Test == report.PingPong:
		return s.pong(ctx, p)
	case p.spec.Test == report.SendLatency && client:
		return s.sendPing(ctx, p)
	case p.spec.Test == report.SendLatency:
		return s.sendPong(ctx, p)
	case p.spec.Test == report.SendRate:
		return s.sendRate(ctx, p, client)
	}
	return s.stream(ctx, p, sends, !client || p.spec.serverSends())
}

// deadline is when a sender stops posting.
func deadline(s *Spec, now mono.Time) mono.Time {
	if s.Duration <= 0 {
		return mono.Never
	}
	return now.Add(s.Duration)
}

// count is how many messages a sender may post.
func count(s *Spec) uint64 {
	if s.Count == 0 {
		return 1 << 62
	}
	return s.Count
}

// newSender returns the sender of this side's operations for p.
func (s *side) newSender(p *setup) *sender {
	spec := p.spec
	if spec.Test == report.Read {
		spec.Depth = min(spec.Depth, p.to.Slots) // no two reads into one slot at a time
		spec.Batch = min(spec.Batch, spec.Depth)
		d := newSender(s.lanes[:spec.conns()], edge.Work{Kind: edge.Read, Local: s.mem.target}, p.to, p.from, &spec)
		if p.checker != nil {
			d.complete = p.checker.Message
		}
		return d
	}
	w := edge.Work{Kind: edge.Write, Local: s.mem.source}
	if spec.Integrity {
		w.Flags |= edge.Notify
	}
	if spec.Test == report.Atomic {
		w = edge.Work{Kind: edge.Atomic, Func: atomics.FetchAdd, Operand: 1}
		if spec.Compare {
			w.Func, w.Compare = atomics.CompareSwap, ^uint64(0)
		}
	}
	return newSender(s.lanes[:spec.conns()], w, p.from, p.to, &spec)
}
