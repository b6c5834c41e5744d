package notify

import (
	"context"
	"encoding/binary"
	"errors"
	"strconv"
	"time"

	"multiedge/bench/kit"
	"multiedge/bench/proc"
	"multiedge/bench/report"
	"multiedge/bench/workload"
	"multiedge/edge"
	"multiedge/edge/named"
)

const (
	maxRounds  = 100_000
	pause      = 300 * time.Microsecond // so that the receiver rests again
	setupTimes = 100
	besides    = 256 // bytes of a write's frame that are not the write's, at most: headers, acknowledgements
)

// round is one write, in nanoseconds of CLOCK_MONOTONIC; 0: not known.
type round struct{ post, sent, got, start, end, back int64 }

// Run measures. show is called now and then with what is being done and how far that is.
func Run(ctx context.Context, d *edge.Device, s Spec, show func(string, float64)) *Result {
	if s.Rounds < 1 || s.Rounds > maxRounds || s.Bytes < 1 || s.Bytes > most {
		kit.Fail("%d rounds of %d bytes; choose 1 to %d of 1 to %d", s.Rounds, s.Bytes, maxRounds, most)
	}
	res := &Result{Spec: s}
	for _, wait := range s.Waits {
		kit.Doing(func() {
			rounds, spent := s.run(ctx, d, wait, func(share float64) { show("notifications, "+wait, share) })
			b := breakdown(wait, rounds)
			b.Efforts = spent
			res.Runs = append(res.Runs, b)
		}, "%s", wait)
	}
	show("export and import", 0)
	res.Setup = setup(ctx, d, s.Peer)
	return res
}

// run measures the rounds of one way to wait.
func (s *Spec) run(ctx context.Context, d *edge.Device, wait string, show func(float64)) ([]round, report.Efforts) {
	c := kit.Get(d.Dial(ctx, s.Peer, service+wait, edge.Data([]byte(strconv.Itoa(s.Rounds)))))
	defer c.Close()
	to := kit.Get(c.Import(ctx, bell))
	times := kit.Get(c.Import(ctx, stamps))
	mem := kit.Get(d.Register(most))
	defer mem.Close()
	out := newTap(ctx, s.Sockets[0], true)
	defer out.close()
	in := newTap(ctx, s.Sockets[1], false)
	defer in.close()
	before := s.spent(ctx, to, times, 0)
	rounds := s.write(ctx, mem, to, show)
	spent := proc.Since(s.spent(ctx, to, times, 1), before)
	sent, got := out.close(), in.close()
	b := make([]byte, s.Rounds*stamp)
	kit.Get(times.ReadAt(b, 0))
	for i := range rounds {
		r, at := &rounds[i], func(k int) int64 { return int64(binary.LittleEndian.Uint64(b[i*stamp+8*k:])) }
		r.start, r.end, r.back = at(0), at(1), at(2)
	}
	match(rounds, sent, got, s.Bytes+besides)
	return rounds, spent
}

// spent is what both hosts have spent so far. The server's process tells it twice: where the times of a round would be
// that many behind the last, when that is notified.
func (s *Spec) spent(ctx context.Context, to, times *edge.RemoteRegion, tell int) (e report.Efforts) {
	at := s.Rounds + tell
	kit.Do(ctx, to.Conn(), &edge.Work{Kind: edge.Write, Inline: []byte{1}, Remote: to, Flags: edge.Notify,
		Imm: uint32(at)})
	b := make([]byte, stamp)
	for told := false; !told; { // until the handler has run: twice the same, and not nothing
		was := e.ServerProcess
		kit.Get(times.ReadAtContext(ctx, b, int64(at*stamp)))
		kit.Get(binary.Decode(b, binary.LittleEndian, &e.ServerProcess))
		told = e.ServerProcess == was && was != (report.Effort{})
	}
	e.ClientProcess = workload.ProcessEffort(to.Conn().Device())
	for i, of := range []*report.Effort{&e.ClientDaemon, &e.ServerDaemon} {
		*of = workload.ReadDaemon(ctx, s.Sockets[i]).Daemon
	}
	return e
}

// write writes once a round.
func (s *Spec) write(ctx context.Context, mem *edge.Region, to *edge.RemoteRegion, show func(float64)) []round {
	clock := kit.Get(newClock())
	rounds := make([]round, s.Rounds)
	for i := range rounds {
		if i%64 == 0 {
			show(float64(i) / float64(len(rounds)))
		}
		rounds[i].post = clock.now()
		kit.Do(ctx, to.Conn(), &edge.Work{Kind: edge.Write, Local: mem, Len: s.Bytes, Remote: to, Flags: edge.Notify,
			Imm: uint32(i)})
		time.Sleep(pause)
	}
	return rounds
}

// match finds the frame of each round: the longest that was sent between the post and the handler, of no more than most
// bytes, and the one of the same length that was received after it. Others of that time are acknowledgements, which are
// shorter, and probes of the path MTU, which are longer.
func match(rounds []round, sent, got []frame, most int) {
	for i := range rounds {
		r := &rounds[i]
		var f frame
		for _, g := range within(&sent, r.post, r.start) {
			if g.len > f.len && g.len <= most {
				f = g
			}
		}
		if f.len == 0 {
			continue
		}
		for _, g := range within(&got, f.at, r.start) {
			if g.len == f.len {
				r.sent, r.got = f.at, g.at
				break
			}
		}
	}
}

// breakdown sums rounds up.
func breakdown(wait string, rounds []round) Breakdown {
	b := Breakdown{Wait: wait}
	rec := report.Recorders(6)
	for _, r := range rounds {
		if r.got == 0 {
			b.Missed++
			continue
		}
		steps := []int64{r.sent - r.post, r.got - r.sent, r.start - r.got, r.end - r.start, r.back - r.end,
			r.start - r.sent + r.back - r.end}
		if r.back < r.end { // it did not run before the next notification
			steps = steps[:4]
		}
		for i, ns := range steps {
			rec[i].Record(time.Duration(ns))
		}
	}
	report.Summaries(rec, &b.Post, &b.Arrival, &b.Schedule, &b.Handler, &b.Return, &b.Overhead)
	return b
}

// setup measures exports of a page, and imports of one of the peer's.
func setup(ctx context.Context, d *edge.Device, peer string) (s Setup) {
	rec := report.Recorders(5)
	own := kit.Get(d.Register(most))
	here := kit.Get(named.Export(ctx, d, own, "edgebench-here", edge.RemoteWrite))
	for range setupTimes {
		t0 := time.Now()
		r := kit.Get(d.Register(most))
		t1 := time.Now()
		n, err := named.Export(ctx, d, r, "edgebench-mine", edge.RemoteWrite)
		t2 := time.Now()
		if err != nil {
			kit.Check(errors.Join(err, r.Close()))
		}
		back, err := n.Unexport(ctx)
		t3 := time.Now()
		kit.Check(errors.Join(err, back.Close()))
		t4 := time.Now()
		m := kit.Get(named.Import(ctx, d, peer, page))
		t5 := time.Now()
		local := kit.Get(named.Import(ctx, d, d.Name(), here.Name()))
		t6 := time.Now()
		for i, took := range []time.Duration{t1.Sub(t0), t2.Sub(t1), t5.Sub(t4), t6.Sub(t5), t3.Sub(t2)} {
			rec[i].Record(took)
		}
		kit.Check(errors.Join(m.Conn().Close(), local.Conn().Close()))
	}
	back, err := here.Unexport(ctx)
	kit.Check(errors.Join(err, back.Close()))
	report.Summaries(rec, &s.Register, &s.Export, &s.Import, &s.ImportHere, &s.Unexport)
	return s
}
