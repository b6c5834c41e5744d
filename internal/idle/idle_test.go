package idle

import (
	"testing"
	"time"

	"multiedge/internal/mono"
)

const us = time.Microsecond

func TestPatience(t *testing.T) {
	p := Patience{Base: 50 * us}
	for i, step := range []struct{ slept, want time.Duration }{
		{0, 50 * us}, // before any sleep
		{30 * us, 100 * us},
		{199 * us, 200 * us},
		{1 * us, 200 * us},
		{200 * us, 50 * us},
		{time.Hour, 50 * us},
		{199 * us, 100 * us},
	} {
		if i > 0 {
			p.Slept(step.slept)
		}
		if got := p.Limit(); got != step.want {
			t.Fatalf("step %d, a sleep of %v: polls for %v, want %v", i, step.slept, got, step.want)
		}
	}
	if none := (Patience{}); none.Limit() != 0 {
		t.Fatalf("without a base it polls for %v", none.Limit())
	}
}

// One slow yield costs a millisecond without yields; a core that stays busy is asked ever less often; quiet is
// forgiven.
func TestContention(t *testing.T) {
	var c Contention
	now := mono.Time(time.Hour)
	slow := func(want time.Duration) {
		t.Helper()
		c.Yielded(now, slowYield+1)
		if !c.At(now) || !c.At(now.Add(want-1)) || c.At(now.Add(want)) {
			t.Fatalf("the pause is %v, want %v", c.pause, want)
		}
	}
	c.Yielded(now, slowYield)
	if c.At(now) {
		t.Fatal("a quick yield counts as slow")
	}
	slow(leastPause)
	for want := 2 * leastPause; want <= mostPause; want *= 2 {
		now = now.Add(want / 2)
		slow(want)
	}
	now = now.Add(mostPause)
	slow(mostPause)
	now = now.Add(mostPause + mostPause/2)
	slow(mostPause)
	now = now.Add(2 * mostPause)
	slow(leastPause)
}

func TestTurn(t *testing.T) {
	var turn Turn
	now := mono.Time(time.Hour)
	for i, step := range []struct {
		after time.Duration
		want  bool
	}{{0, true}, {0, false}, {turnEach - 1, false}, {1, true}, {turnEach - 1, false}, {time.Hour, true}, {1, false}} {
		now = now.Add(step.after)
		if got := turn.Due(now); got != step.want {
			t.Fatalf("step %d, %v later: due %v", i, step.after, got)
		}
	}
}
