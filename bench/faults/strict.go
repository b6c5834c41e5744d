package faults

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"multiedge/bench/kit"
	"multiedge/edge"
	"multiedge/internal/lab"
)

// A send without patience is taken, or refused at once if no buffer is posted (VIA's rule, clause 14.4). A receiver
// that posts buffers now and then must get, in order, every message whose send succeeded, and no other. Both ends are
// in this process.
const (
	strictDepth = 8 // sends in flight, and buffers at most
	strictSize  = 4096
)

func strictScenarios() []Scenario {
	return []Scenario{{Name: "sends without patience over bad wires and path cuts", Group: Network, Short: true,
		Set: twoLinks, Run: strictSends, Criteria: "each send is taken or fails with no-buffer; messages " +
			"that are taken arrive once, in order and whole, patient sends included; no buffer is lost"}}
}

// strictness is a connection over which messages are sent, some without patience.
type strictness struct {
	*standing
	dice     *rand.Rand
	within   time.Duration
	refused  atomic.Uint64
	mu       sync.Mutex // guards the rest
	due      []uint32   // messages whose sends succeeded and which have not arrived, in order
	came     []uint32   // messages that arrived and whose sends have not ended, in order
	bad      error
	received uint64
}

// strictSent is a send in flight.
type strictSent struct {
	op      edge.Op
	n       uint32
	patient bool
}

func (s *strictness) fail(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.bad == nil {
		s.bad = fmt.Errorf(format, args...)
	}
}

// send sends until ctx ends, then waits for the sends in flight.
func (s *strictness) send(ctx context.Context) {
	var flying []strictSent
	for n := uint32(0); ctx.Err() == nil || len(flying) > 0; {
		if len(flying) == strictDepth || ctx.Err() != nil {
			if !s.ended(flying[0]) {
				return
			}
			flying = flying[1:]
			continue
		}
		off, size := int(n%strictDepth)*strictSize, 1+s.dice.IntN(strictSize)
		s.script.src.Fill(s.out.Bytes()[off:off+size], s.script.id(n))
		f := strictSent{n: n, patient: s.dice.IntN(8) == 0}
		w := edge.Work{Kind: edge.Send, Flags: edge.Notify, Imm: n, Local: s.out, LocalOff: off, Len: size,
			Patience: -1}
		if f.patient {
			w.Patience = 0
		}
		var err error
		if f.op, err = s.from.Post(context.WithoutCancel(ctx), &w); err != nil {
			s.fail("message %d: %w", n, err)
			return
		}
		flying = append(flying, f)
		n++
	}
}

// ended waits for the end of a send.
func (s *strictness) ended(f strictSent) bool {
	ctx, cancel := context.WithTimeout(context.Background(), s.within)
	defer cancel()
	switch err := f.op.Wait(ctx); {
	case err == nil:
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.due = append(s.due, f.n); len(s.due) > 4*strictDepth {
			s.bad = fmt.Errorf("the sends of messages %v succeeded, but the messages have not arrived", s.due)
		}
		s.match()
		return s.bad == nil
	case errors.Is(err, edge.ErrNoBuffer) && !f.patient:
		s.refused.Add(1)
	default:
		s.fail("message %d, patient %v: %w", f.n, f.patient, err)
		return false
	}
	return true
}

// match drops messages that have arrived and whose sends have succeeded. Both lists are in the order of the sends. The
// caller holds mu.
func (s *strictness) match() {
	for len(s.due) > 0 && len(s.came) > 0 {
		if s.due[0] != s.came[0] {
			if s.bad == nil {
				s.bad = fmt.Errorf("message %d arrived, but the next send that succeeded is that of message %d",
					s.came[0], s.due[0])
			}
			return
		}
		s.due, s.came = s.due[1:], s.came[1:]
		s.received++
	}
}

// take posts a few buffers at a time, pauses now and then, and judges the messages that arrive.
func (s *strictness) take(ctx context.Context, dice *rand.Rand) {
	var done [strictDepth]edge.Completion
	out := 0
	for ctx.Err() == nil {
		for range 1 + dice.IntN(strictDepth) {
			if out == strictDepth {
				break
			}
			w := edge.Work{Kind: edge.Receive, Local: s.in, LocalOff: standArea + s.posted%strictDepth*strictSize,
				Len: strictSize, Queue: s.cq}
			if _, err := s.to.Post(ctx, &w); err != nil {
				s.fail("posting a buffer: %w", err)
				return
			}
			s.posted++
			out++
		}
		for out > dice.IntN(2)*strictDepth/2 {
			n, err := s.cq.Wait(ctx, done[:])
			if err != nil {
				break
			}
			out -= n
			for i := range done[:n] {
				s.judge(&done[i])
			}
		}
		sleep(ctx, time.Duration(dice.IntN(3000))*time.Microsecond)
	}
}

// judge judges a message. Buffers come back in the order in which they were posted.
func (s *strictness) judge(c *edge.Completion) {
	if c.Err != nil {
		s.fail("a buffer came back: %w", c.Err)
		return
	}
	got := s.in.Bytes()[standArea+s.next%strictDepth*strictSize:][:c.Len]
	s.next++
	if wrong, first := s.script.src.Mismatch(got, s.script.id(c.Imm)); wrong > 0 {
		s.fail("message %d of %d bytes has %d wrong bytes, the first at %d", c.Imm, c.Len, wrong, first)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.compared += uint64(c.Len)
	s.came = append(s.came, c.Imm)
	s.match()
}

// strictSends sends over two links that lose, repeat and hold back frames while they are cut.
func strictSends(t *Trial) {
	st := t.standUp()
	s := &strictness{standing: st, dice: rand.New(rand.NewPCG(t.seed, 1)), within: deadline(t.dead)}
	t.setFaults(badWires)
	b := t.count()
	if err := kit.Try(func() { s.during(t, func(goesOn func()) { t.cuts(goesOn) }) }); err != nil {
		kit.Check(errors.Join(err, s.bad))
	}
	_, l := t.since(b)
	t.injected("lost", l.Lost)
	t.wasCut(l.Cut)
	t.check("each send is taken or fails with no-buffer, and what is taken arrives", s.bad == nil, "%v", s.bad)
	t.check("no message arrives whose send failed, and none is missing", len(s.due)+len(s.came) == 0,
		"%v were taken and have not come; %v came, and their senders were not told", s.due, s.came)
	buffers := t.buffers()
	t.check("no buffer is lost", s.bad != nil || buffers == uint64(s.posted-s.next), "%d of %d are posted", buffers,
		s.posted-s.next)
	t.tried("messages", s.received)
	t.tried("sends that failed with no-buffer", s.refused.Load())
	t.row.Counted[bytesCompared] += s.compared
	t.setFaults(lab.Faults{})
}

// settled reports whether every message that was taken has arrived, or something is wrong.
func (s *strictness) settled() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.bad != nil || len(s.due)+len(s.came) == 0
}

// during sends and takes while f runs. f may call goesOn to wait for more messages.
func (s *strictness) during(t *Trial, f func(goesOn func())) {
	sending, stopSending := context.WithCancel(t.ctx)
	defer stopSending()
	taking, stopTaking := context.WithCancel(t.ctx)
	var sender, taker sync.WaitGroup
	sender.Go(func() { s.send(sending) })
	taker.Go(func() { s.take(taking, rand.New(rand.NewPCG(t.seed, 2))) })
	defer taker.Wait()
	defer stopTaking()
	defer func() { // what is under way ends and comes: buffers are still posted
		stopSending()
		sender.Wait()
		t.event(s.within, s.settled)
	}()
	seen := func() (n uint64, over bool) {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.received, s.bad != nil
	}
	goesOn := func() {
		was, _ := seen()
		failed := s.refused.Load()
		took, ok := t.event(5*goesOnTime, func() bool {
			now, over := seen()
			return over || now > was+strictDepth && s.refused.Load() > failed
		})
		if !ok {
			now, _ := seen()
			kit.Fail("%d messages come and %d sends fail within %v", now-was, s.refused.Load()-failed, took)
		}
	}
	goesOn()
	f(goesOn)
}
