package shard

import (
	"runtime"
	"testing"
	"time"

	"multiedge/internal/idle"
	"multiedge/internal/mono"

	"golang.org/x/sys/unix"
)

func TestWaitPolicy(t *testing.T) {
	const us = time.Microsecond
	start := mono.Time(time.Hour)
	tests := []struct {
		name    string
		mode    string
		idleFor time.Duration
		polling bool
		due     bool
		lookFor time.Duration // since the latest yield
		slowAgo time.Duration // a slow yield this long ago; 0: none
		want    action
	}{
		{"work just ended, nobody polls", "adaptive", 1 * us, false, false, time.Hour, 0, actPoll},
		{"a client polls and waits", "adaptive", 1 * us, true, false, 99 * us, 0, actPoll},
		{"a client polls, and has not had the core for long", "adaptive", 1 * us, true, false, 100 * us, 0, actYield},
		{"a client polls and was given something", "adaptive", 1 * us, true, true, 0, 0, actYield},
		{"a client was woken", "adaptive", 1 * us, false, true, 0, 0, actYield},
		{"spin over", "adaptive", 50 * us, false, false, time.Hour, 0, actBlock},
		{"spin not over while a client polls", "adaptive", 199 * us, true, false, 99 * us, 0, actPoll},
		{"spin over though a client polls", "adaptive", 200 * us, true, false, time.Hour, 0, actBlock},
		{"contended core", "adaptive", 1 * us, true, false, time.Hour, 500 * us, actBlock},
		{"contended core, a client was given something", "adaptive", 1 * us, true, true, time.Hour, 500 * us, actBlock},
		{"contended core, nobody polls", "adaptive", 1 * us, false, false, time.Hour, 500 * us, actPoll},
		{"contention is forgotten", "adaptive", 1 * us, true, false, time.Hour, 1001 * us, actYield},
		{"block", "block", 0, true, true, time.Hour, 0, actBlock},
		{"busy for ever", "busy", time.Hour, false, false, time.Hour, 0, actPoll},
		{"busy yields to a client", "busy", time.Hour, true, false, 100 * us, 0, actYield},
		{"busy looks between yields", "busy", time.Hour, true, false, 99 * us, 0, actPoll},
		{"busy on a contended core", "busy", time.Hour, true, true, time.Hour, 500 * us, actPoll},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			w := waiter{mode: tc.mode, spin: idle.Patience{Base: defaultSpin}, lastWork: start}
			now := start.Add(tc.idleFor)
			w.yielded = now.Add(-tc.lookFor)
			if tc.slowAgo != 0 {
				w.core.Yielded(now.Add(-tc.slowAgo), 300*us)
			}
			w.core.Yielded(now.Add(-time.Second), 199*us) // quick enough: never counts
			if got := w.idle(now, tc.polling, false, false, tc.due); got != tc.want {
				t.Fatalf("idle = %d, want %d", got, tc.want)
			}
			// One that works gets this core, if it needs that, where a client polls that does not.
			want := tc.want
			if tc.polling && want == actPoll && tc.slowAgo == 0 {
				want = actYield
			}
			if got := w.idle(now, tc.polling, true, false, tc.due); got != want {
				t.Fatalf("while another client works idle = %d, want %d", got, want)
			}
		})
	}
}

// A yield to clients that can only wait, and that is longer than two switches, found somebody at work on this core: for
// a while the shard yields more often.
func TestShardGivesWayToWhoWorksBeside(t *testing.T) {
	start := mono.Time(time.Hour)
	for _, c := range []struct {
		took, later time.Duration
		want        action
	}{
		{workedTime - 1, 0, actPoll},
		{workedTime, 0, actYield},
		{workedTime, besideTime - looksBeside - 1, actYield},
		{workedTime, besideTime, actPoll},
	} {
		w := waiter{mode: "adaptive", spin: idle.Patience{Base: defaultSpin}}
		w.gaveWay(start, c.took)
		now := start.Add(c.later + looksBeside)
		w.lastWork, w.yielded = now, now.Add(-looksBeside)
		if got := w.idle(now, true, false, false, false); got != c.want {
			t.Errorf("%v after a yield of %v: %d, want %d", c.later, c.took, got, c.want)
		}
	}
}

// A client that works on this core gets it, though none polls: the shard was woken in its midst.
func TestShardGivesWayToWhoWorksHere(t *testing.T) {
	start := mono.Time(time.Hour)
	for _, c := range []struct {
		here   bool
		looked time.Duration
		slow   bool
		want   action
	}{
		{true, looksBeside, false, actYield},
		{true, looksBeside - 1, false, actPoll},
		{true, looksBeside, true, actBlock},
		{false, time.Hour, false, actPoll},
		{false, time.Hour, true, actPoll},
	} {
		w := waiter{mode: "adaptive", spin: idle.Patience{Base: defaultSpin}}
		w.lastWork, w.yielded = start, start.Add(-c.looked)
		if c.slow {
			w.core.Yielded(start, time.Hour)
		}
		if got := w.idle(start, false, true, c.here, false); got != c.want {
			t.Errorf("here %v, %v after a yield, contended %v: %d, want %d", c.here, c.looked, c.slow, got, c.want)
		}
	}
}

// Goroutines that serve requests get the core, though no client waits for the shard.
func TestShardGivesWayToWhoServesRequests(t *testing.T) {
	start := mono.Time(time.Hour)
	for _, c := range []struct {
		ago, looked time.Duration
		want        action
	}{
		{0, looksBeside, actYield},
		{0, looksBeside - 1, actPoll},
		{servedTime - 1, looksBeside, actYield},
		{servedTime, time.Hour, actPoll},
	} {
		w := waiter{mode: "adaptive", spin: idle.Patience{Base: defaultSpin}}
		w.lastWork, w.served, w.yielded = start, start.Add(-c.ago), start.Add(-c.looked)
		if got := w.idle(start, false, false, false, false); got != c.want {
			t.Errorf("%v after a request, %v after a yield: %d, want %d", c.ago, c.looked, got, c.want)
		}
	}
}

// The shard's thread gets a short slice before it sleeps, and the ordinary one before it yields. A kernel that has no
// slices of threads (before Linux 6.12) says 0 to both.
func TestHurry(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	slice := func() uint64 {
		a, err := unix.SchedGetAttr(0, 0)
		if err != nil {
			t.Fatal(err)
		}
		return a.Runtime
	}
	calm := slice()
	hurried := uint64(hurriedSlice)
	if calm == 0 {
		hurried = 0
	}
	if a, err := unix.SchedGetAttr(0, 0); err != nil || a.Policy != unix.SCHED_NORMAL && a.Policy != unix.SCHED_BATCH ||
		unix.SchedSetAttr(0, a, 0) != nil {
		lacks(t, "sched_setattr, and an ordinary policy")
	}
	var s Shard
	for _, on := range []bool{true, true, false, false, true, false} {
		want := calm
		if s.hurry(on); on {
			want = hurried
		}
		if got := slice(); got != want {
			t.Errorf("hurry %v: the slice is %d ns, want %d", on, got, want)
		}
	}
	if n := testing.AllocsPerRun(10, func() { s.hurry(true); s.hurry(false) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
