package engine_test

import (
	"testing"
	"time"

	"multiedge/internal/engine"
)

// A kernel that spoils the last frame of each message that it cuts up, if that is as long as the others, is told from
// a link that loses frames by chance: of the frames lost nearly all were the last of a message, and alone.
func TestLostEndsOfMessagesAreCounted(t *testing.T) {
	inBothForms(t, func(t *testing.T, sealed bool) {
		for _, spoil := range []bool{true, false} {
			r := newRig(t, rigOptions{sealed: sealed, super: superBytes})
			s := newStream(r, r.connect(engine.DialOptions{}))
			r.settle()
			s.forTime(50*time.Millisecond, 50*time.Millisecond)
			if n := r.n[0].e.Count.Loss; n.TrainEndsLost > 0 {
				t.Errorf("%d lost ends of messages where nothing is lost", n.TrainEndsLost)
			}
			sent := 0
			r.spoil = spoil
			r.pass = func(from int, f *flight) bool {
				if from == 0 && f.joined {
					sent++
				}
				return spoil || from == 1 || sent%17 > 0
			}
			s.forTime(300*time.Millisecond, time.Second)
			n := r.n[0].e.Count.Loss
			if share := float64(n.TrainEndsLost) / float64(n.FramesLost); n.FramesLost < 50 || spoil && share < 0.8 ||
				!spoil && share > 0.4 {
				t.Errorf("spoilt %v: of %d frames lost %d are called ends of messages", spoil, n.FramesLost,
					n.TrainEndsLost)
			}
		}
	})
}
