package daemon

import (
	"testing"
	"time"

	"multiedge/internal/idle"
	"multiedge/internal/mono"
)

func TestWaitPolicy(t *testing.T) {
	const us = time.Microsecond
	start := mono.Time(time.Hour)
	tests := []struct {
		name    string
		mode    string
		idleFor time.Duration
		polling bool
		slowAgo time.Duration // a slow yield this long ago; 0: none
		want    action
	}{
		{"work just ended, nobody polls", "adaptive", 1 * us, false, 0, actPoll},
		{"work just ended, a client polls", "adaptive", 1 * us, true, 0, actYield},
		{"just before the spin ends", "adaptive", 49 * us, true, 0, actYield},
		{"spin over", "adaptive", 50 * us, false, 0, actBlock},
		{"spin over though a client polls", "adaptive", 50 * us, true, 0, actBlock},
		{"contended core", "adaptive", 1 * us, true, 500 * us, actBlock},
		{"contended core, nobody polls", "adaptive", 1 * us, false, 500 * us, actPoll},
		{"contention is forgotten", "adaptive", 1 * us, true, 1001 * us, actYield},
		{"block", "block", 0, true, 0, actBlock},
		{"busy for ever", "busy", time.Hour, false, 0, actPoll},
		{"busy yields to a client", "busy", time.Hour, true, 0, actYield},
		{"busy on a contended core", "busy", time.Hour, true, 500 * us, actPoll},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			w := waiter{mode: tc.mode, spin: idle.Patience{Base: defaultSpin}, lastWork: start}
			now := start.Add(tc.idleFor)
			if tc.slowAgo != 0 {
				w.core.Yielded(now.Add(-tc.slowAgo), 300*us)
			}
			w.core.Yielded(now.Add(-time.Second), 199*us) // quick enough: never counts
			if got := w.idle(now, tc.polling); got != tc.want {
				t.Fatalf("idle = %d, want %d", got, tc.want)
			}
		})
	}
}
