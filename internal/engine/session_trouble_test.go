package engine

import (
	"testing"
	"time"

	"multiedge/internal/mono"
)

// Sessions that open again and again are noticed; a daemon that is restarted has a new epoch each time, two that share
// a key come back by turns.
func TestPast(t *testing.T) {
	var p past
	now := mono.Time(time.Hour)
	for i := range 3 {
		p.opened(now.Add(time.Duration(i)*time.Second), uint64(1+i))
	}
	if now = now.Add(3 * time.Second); p.flaps(now) || p.returns != 0 {
		t.Errorf("three restarts: flaps %v, returns %d", p.flaps(now), p.returns)
	}
	p.opened(now, 3)
	if !p.flaps(now) || p.flaps(now.Add(2*flapTime)) || p.returns != 0 {
		t.Errorf("four sessions in a few seconds: flaps %v, a while later %v, returns %d", p.flaps(now),
			p.flaps(now.Add(2*flapTime)), p.returns)
	}
	for _, epoch := range []uint64{4, 3, 4} {
		p.opened(now, epoch)
	}
	if p.returns != 2 || p.sessions != 7 {
		t.Errorf("two daemons by turns: returns %d, sessions %d", p.returns, p.sessions)
	}
}
