package path

import (
	"testing"
	"time"

	"multiedge/internal/mono"
)

// Clause 8.4: an acknowledgement waits where answers carried the latest ones, and not where waiting was in vain.
func TestPushesWaitForAnswers(t *testing.T) {
	var p Pushes
	now := mono.Time(time.Hour)
	p.turn = 1
	round := func(answer time.Duration) time.Duration {
		now = now.Add(time.Millisecond)
		wait := p.Arrived(now)
		if answer > 0 {
			p.Left(now.Add(answer))
		} else {
			p.Alone()
		}
		return wait
	}
	if wait := round(0); wait != 0 {
		t.Errorf("without any answer before: %v", wait)
	}
	for range fewAnswers {
		round(5 * time.Microsecond)
	}
	for _, after := range []time.Duration{5 * time.Microsecond, 25 * time.Microsecond} {
		if wait := round(after); wait != AnswerDelay {
			t.Errorf("after answers, and before one that takes %v: %v", after, wait)
		}
	}
	if wait := round(5 * time.Microsecond); wait != AnswerDelay {
		t.Errorf("after a slow answer: %v", wait)
	}
	round(0) // in vain
	if wait := round(0); wait != 0 {
		t.Errorf("after waiting in vain: %v", wait)
	}
	for range fewAnswers {
		round(5 * time.Microsecond)
	}
	round(0)
	now = now.Add(PushDelay / 2) // so soon that the wait before it is not over
	if wait := p.Arrived(now); wait != 0 {
		t.Errorf("after an acknowledgement that left alone: %v", wait)
	}
	p.Alone()
	for range fewAnswers {
		round(time.Second)
	}
	if wait := round(0); wait != 0 {
		t.Errorf("after answers that came too late: %v", wait)
	}
}

// Frames that follow closely share an acknowledgement.
func TestPushesShare(t *testing.T) {
	var p Pushes
	now := mono.Time(time.Hour)
	p.Arrived(now)
	for range 3 {
		now = now.Add(closeTogether / 2)
		if wait := p.Arrived(now); wait != PushDelay {
			t.Errorf("in a crowd: %v", wait)
		}
	}
}
