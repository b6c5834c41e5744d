package engine_test

import (
	"testing"
	"time"

	"multiedge/internal/engine"
)

// Frames of 8 to 16 KiB stop at 8 KiB, but for small operations that share them, where each has pages of its own; they are as long as the path lets them where they
// share a super-frame (clause 9.2).
func TestSuperFramesUseTheWholeMTU(t *testing.T) {
	inBothForms(t, func(t *testing.T, sealed bool) {
		for _, c := range []struct{ mtu, super, least, most int }{{8938, 0, 8192 - 16, 8192 + 512}, {8938, 65473, 8938 - 64, 8938}, {1438, 65473, 1438 - 64, 1438}} {
			r := newRig(t, rigOptions{sealed: sealed, mtu: c.mtu, super: c.super})
			longest := 0
			r.pass = func(from int, f *flight) bool {
				longest = max(longest, len(f.b)-14)
				return true
			}
			s := newStream(r, r.connect(engine.DialOptions{}))
			r.settle()
			longest = 0
			s.forTime(100*time.Millisecond, 50*time.Millisecond)
			if longest < c.least || longest > c.most {
				t.Errorf("MTU %d, super-frames of %d: frames of up to %d bytes, want %d to %d", c.mtu, c.super, longest, c.least, c.most)
			}
			s.finish()
		}
	})
}
