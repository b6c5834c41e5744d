package daemon

import "testing"

// One user does not take the place of all who would watch.
func TestWatchersOfOneUser(t *testing.T) {
	var n news
	const hostile, other = 1000, 0
	mine := 0
	for range 2 * maxWatchers {
		if _, ok := n.join(hostile); ok {
			mine++
		}
	}
	if _, ok := n.join(other); !ok || mine == 0 {
		t.Errorf("one user has %d of %d places, another gets one: %v", mine, maxWatchers, ok)
	}
}
