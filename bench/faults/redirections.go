package faults

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"multiedge/bench/kit"
	"multiedge/edge"
	"multiedge/edge/redirect"
	"multiedge/internal/lab"
)

// A receiver redirects part of an export to other memory (clause 15.2), before, while and after a peer writes it.
// Afterwards each byte must be where the redirection reports it, and no other byte may have changed. Both ends are in
// this process.
const (
	divertSize  = 1 << 20   // of the export, and of the other memory
	divertWrite = 512 << 10 // bytes of a write at most
	divertNamed = "diverted"
	// rounds that end between one fault and the next
	divertRounds = 6
)

func redirectionScenarios() []Scenario {
	where := "each byte is in the export or in the other memory, as the redirection reports; no byte beside it changes"
	return []Scenario{
		{Name: "redirections over bad wires and path cuts", Group: Network, Short: true, Set: twoLinks,
			Criteria: "no write and no redirection fails; " + where, Run: redirectedCut},
		{Name: "redirections, daemons restarted", Group: Host, Short: true, Set: slowWire,
			Criteria: "redirections end with a typed error; " + where + "; if their daemon was killed, the bytes " +
				"may be at either place; new redirections succeed",
			Run: redirectedRestarted},
	}
}

// diversion is memory at host 1 that host 0 writes.
type diversion struct {
	joined
	remote     *edge.RemoteRegion
	grant      *edge.Grant
	src, away  *edge.Region // what is written, and where redirected bytes go
	mem, other []byte       // what the export and the other memory must hold
	dice       *rand.Rand
	within     time.Duration
	rounds     atomic.Uint64
	tally      diverted
}

// diverted counts the bytes that redirections reported, and redirections by outcome.
type diverted struct{ bytes, whole, partly, none, compared uint64 }

// divert connects host 0 to host 1 and exports memory there.
func (t *Trial) divert(seed uint64) *diversion {
	d := &diversion{dice: rand.New(rand.NewPCG(t.seed, seed)), within: deadline(t.dead)}
	d.joined = t.join(divertNamed)
	mem := kit.Get(d.far.RegisterContext(t.ctx, divertSize))
	d.away = kit.Get(d.far.RegisterContext(t.ctx, divertSize))
	d.src = kit.Get(d.near.RegisterContext(t.ctx, divertWrite))
	d.grant = kit.Get(mem.Export(d.to, exportName, edge.RemoteWrite, 0, divertSize))
	d.mem, d.other = make([]byte, divertSize), make([]byte, divertSize)
	d.remote = kit.Get(d.from.Import(t.ctx, exportName))
	return d
}

// detour is one write and the redirection of part of it.
type detour struct {
	off, n int // of the write, in the export
	lo, m  int // of what is redirected, within the write
	at     int // where to, in the other memory
	late   bool
}

// draw chooses a write and a redirection: of any length, or so long that they take milliseconds on the link.
func (d *diversion) draw() detour {
	n := 1 + d.dice.IntN(1<<(1+d.dice.IntN(19)))
	long := d.dice.IntN(2) == 0
	if long {
		n = divertWrite - d.dice.IntN(divertWrite/4)
	}
	x := detour{off: d.dice.IntN(divertSize - n + 1), n: n, late: d.dice.IntN(2) == 0}
	if x.m = 1 + d.dice.IntN(n); long {
		x.m = n - d.dice.IntN(n/4)
	}
	x.lo, x.at = d.dice.IntN(n-x.m+1), d.dice.IntN(divertSize-x.m+1)
	// Each written byte differs from the byte that is there, so that every byte shows where it went.
	src := d.src.Bytes()[:n]
	was := d.mem[x.off : x.off+n]
	for i := range src {
		src[i] = was[i] + 1 + byte(d.dice.Uint32N(200))
	}
	for i := range x.m { // and from the byte in the other memory
		if p := &src[x.lo+i]; *p == d.other[x.at+i] {
			if *p++; *p == was[x.lo+i] {
				*p++
			}
		}
	}
	return x
}

// round redirects part of one write and judges where the bytes went. It returns the errors of the write and of the
// redirection. An outcome that must not occur is errWrong.
func (d *diversion) round(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, d.within)
	defer cancel()
	x := d.draw()
	var op edge.Op
	var werr error
	write := func() {
		w := edge.Work{Kind: edge.Write, Local: d.src, Len: x.n, Remote: d.remote, RemoteOff: x.off}
		op, werr = d.remote.Conn().Post(ctx, &w)
	}
	if x.late {
		write()
	}
	r, err := redirect.Begin(d.grant, x.off+x.lo, x.m, d.away, x.at)
	if !x.late {
		write()
	}
	var spans []redirect.Span
	copies := d.dice.IntN(4) == 0
	if copies || d.dice.IntN(3) == 0 { // otherwise the redirection is ended during the write
		if werr = errors.Join(werr, op.Wait(ctx)); werr != nil {
			d.end(ctx) // which ends the redirection, too
		}
	}
	copies = copies && werr == nil
	switch {
	case err != nil: // there is no redirection
	case copies:
		spans, err = r.Take(ctx)
	default:
		spans, err = r.End(ctx)
	}
	werr = errors.Join(werr, op.Wait(ctx))
	if err = errors.Join(err, werr); err != nil {
		return errors.Join(err, d.failed(ctx, &x, spans, err))
	}
	return d.judge(&x, spans, copies, false, false)
}

// end waits until the owner's end of the connection ends, and returns the reason.
func (d *diversion) end(ctx context.Context) (why error) {
	for why == nil {
		_, why = d.to.WaitNotify(ctx)
	}
	return why
}

// failed judges a round in which an end failed. Nothing arrives any more once the owner's end has ended, too.
func (d *diversion) failed(ctx context.Context, x *detour, spans []redirect.Span, why error) error {
	if _, ok := typeOf(why); !ok {
		return fmt.Errorf("untyped: %w", errWrong)
	}
	end := d.end(ctx)
	if ctx.Err() != nil {
		return fmt.Errorf("a write of %d bytes, of which %d were redirected, has not ended at both ends after %v: %w",
			x.n, x.m, d.within, errWrong)
	}
	// Nobody knows where a killed daemon put the bytes that had arrived.
	return d.judge(x, spans, false, true, errors.Is(end, edge.ErrDaemonDown))
}

// judge compares both memories with what they must hold. took: all redirected bytes must be in the other memory.
// unsure: the written bytes may have arrived or not. lost: they may have arrived at either place.
func (d *diversion) judge(x *detour, spans []redirect.Span, took, unsure, lost bool) error {
	src := d.src.Bytes()[:x.n]
	here := make([]bool, x.n) // bytes of the write that are in the other memory
	told := 0
	for _, s := range spans {
		if s.Off < 0 || s.Len <= 0 || s.Len > x.m-s.Off {
			return fmt.Errorf("the redirection reports bytes %d to %d of %d: %w", s.Off, s.Off+s.Len, x.m, errWrong)
		}
		told += s.Len
		for i := range s.Len {
			here[x.lo+s.Off+i] = true
		}
	}
	mem, other := d.grant.Bytes(), d.away.Bytes()
	for i, b := range src {
		inside := i >= x.lo && i < x.lo+x.m
		m, o := &d.mem[x.off+i], new(byte)
		if inside {
			o = &d.other[x.at+i-x.lo]
		}
		switch {
		case lost:
			if mem[x.off+i] == b {
				*m = b
			}
			if inside && other[x.at+i-x.lo] == b {
				*o = b
			}
		case here[i]:
			*o = b
		case unsure && mem[x.off+i] == *m && (!inside || other[x.at+i-x.lo] != b): // the byte never arrived
		default:
			*m = b
			if inside && (took || other[x.at+i-x.lo] == b) { // the bytes of all but two spans are copied back
				*o = b
			}
		}
	}
	d.tally.count(uint64(told), uint64(x.m), uint64(x.n))
	for what, c := range map[string][2][]byte{"the export": {mem, d.mem}, "the other memory": {other, d.other}} {
		if !bytes.Equal(c[0], c[1]) {
			at := 0
			for c[0][at] == c[1][at] {
				at++
			}
			return fmt.Errorf("byte %d of %s is %d, want %d, after a write of %d bytes at %d; %d of them, from "+
				"%d on, were redirected to %d; reported %v: %w", at, what, c[0][at], c[1][at], x.n, x.off,
				x.m, x.lo, x.at, spans, errWrong)
		}
	}
	d.rounds.Add(1)
	return nil
}

func (c *diverted) count(told, of, written uint64) {
	c.bytes += told
	c.compared += written
	switch told {
	case of:
		c.whole++
	case 0:
		c.none++
	default:
		c.partly++
	}
}

// run repeats rounds until ctx ends or a round fails.
func (d *diversion) run(ctx context.Context) error {
	for ctx.Err() == nil {
		if err := d.round(context.WithoutCancel(ctx)); err != nil {
			return err
		}
	}
	return nil
}

// diverting repeats rounds while during runs, and returns how the rounds ended. during may call goesOn to wait for more
// rounds.
func (t *Trial) diverting(d *diversion, during func(goesOn func())) (ended error) {
	ctx, cancel := context.WithCancel(t.ctx)
	done := make(chan error, 1)
	go func() { done <- d.run(ctx) }()
	defer func() {
		cancel()
		ended = <-done
	}()
	goesOn := func() {
		was := d.rounds.Load()
		took, ok := t.event(5*goesOnTime, func() bool { return len(done) > 0 || d.rounds.Load() > was+divertRounds })
		if !ok {
			kit.Fail("%d redirections end within %v", d.rounds.Load()-was, took)
		}
	}
	goesOn()
	during(goesOn)
	return nil
}

// redirectedCut redirects over two links that lose, repeat and hold back frames while they are cut.
func redirectedCut(t *Trial) {
	d := t.divert(1)
	t.setFaults(badWires)
	b := t.count()
	ended := t.diverting(d, func(goesOn func()) { t.cuts(goesOn) })
	did, l := t.since(b)
	t.injected("lost", l.Lost)
	t.wasCut(l.Cut)
	t.injected("held back", l.Reordered)
	t.check("every redirection and write succeeds, each byte is where the redirection reports it", ended == nil, "%v",
		ended)
	t.check("the daemon counts the same bytes", did["bytes_redirected"] == d.tally.bytes,
		"%d, redirections reported %d", did["bytes_redirected"], d.tally.bytes)
	t.tried("redirected whole", d.tally.whole)
	t.tried("redirected in part", d.tally.partly)
	t.tried("not redirected", d.tally.none)
	t.row.Counted[bytesCompared] += d.tally.compared
	t.setFaults(lab.Faults{})
}

// redirectedRestarted kills the owner's daemon, then the writer's, during redirections.
func redirectedRestarted(t *Trial) {
	var rounds uint64
	for i := range t.many(16, 6) {
		d := t.divert(uint64(i))
		host := (i + 1) % 2
		ended := t.diverting(d, func(func()) {
			t.restarted(host)
		})
		d.close()
		name, typed := typeOf(ended)
		t.check(fmt.Sprintf("the end of host %d's daemon is reported, each byte is where the redirection reports it",
			host), ended != nil && typed && !errors.Is(ended, errWrong), "%s: %v", name, ended)
		rounds += d.rounds.Load()
		t.row.Counted[bytesCompared] += d.tally.compared
	}
	d := t.divert(99)
	ended := t.diverting(d, func(goesOn func()) { goesOn() })
	t.check("new redirections succeed", ended == nil, "%v", ended)
	t.tried("redirections that ended", rounds+d.rounds.Load())
}
