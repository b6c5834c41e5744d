package peering

import (
	"testing"
	"time"

	"multiedge/internal/mono"
)

// Sessions that open again and again are noticed; a daemon that is restarted has a new epoch each time, two that share
// a key come back by turns.
func TestPast(t *testing.T) {
	var p Past
	now := mono.Time(time.Hour)
	for i := range 3 {
		p.Opened(now.Add(time.Duration(i)*time.Second), uint64(1+i))
	}
	if now = now.Add(3 * time.Second); p.Flaps(now) || p.Returns != 0 {
		t.Errorf("three restarts: flaps %v, returns %d", p.Flaps(now), p.Returns)
	}
	p.Opened(now, 3)
	if !p.Flaps(now) || p.Flaps(now.Add(2*flapTime)) || p.Returns != 0 {
		t.Errorf("four sessions in a few seconds: flaps %v, a while later %v, returns %d", p.Flaps(now),
			p.Flaps(now.Add(2*flapTime)), p.Returns)
	}
	for _, epoch := range []uint64{4, 3, 4} {
		p.Opened(now, epoch)
	}
	if p.Returns != 2 || p.Sessions != 7 {
		t.Errorf("two daemons by turns: returns %d, sessions %d", p.Returns, p.Sessions)
	}
}
