package mono

import (
	"testing"
	"time"
)

func TestPatience(t *testing.T) {
	const us = time.Microsecond
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
