package park

import (
	"testing"
	"time"

	"multiedge/internal/mono"
)

// The time for which parts were left unreceived counts from the first of them, and anew if none came for a second
// (clause 16.4). The clock's milliseconds may exceed 2^32.
func TestUnreceived(t *testing.T) {
	for _, start := range []time.Duration{time.Second, (1<<32)*time.Millisecond - 1300*time.Millisecond} {
		var u Unreceived
		for i, c := range []struct{ after, want time.Duration }{
			{0, 0}, {400, 400}, {999, 1399}, {5000, 0}, {900, 900}, {1000, 0}, {1, 1},
		} {
			start += c.after * time.Millisecond
			if got := u.More(mono.Time(start)); got != c.want*time.Millisecond {
				t.Errorf("step %d: waited for %v, want %v ms", i, got, int(c.want))
			}
		}
	}
}
