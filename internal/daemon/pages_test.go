package daemon

import (
	"fmt"
	"testing"

	"multiedge/internal/config"
)

// Daemons told to shuffle announce it, receive frames at page boundaries and copy from the pages, over one link and
// two, with receivers and without: clients see the bytes they were sent, whatever their regions. Sealed frames are not
// shuffled.
func TestDaemonsShuffle(t *testing.T) {
	for _, c := range []struct {
		links, receivers int
		security         string
	}{{1, 0, config.Plaintext}, {2, 0, config.Plaintext}, {1, 1, config.Plaintext}, {2, 1, config.Encrypted}} {
		t.Run(fmt.Sprintf("%d links, %d receivers, %s", c.links, c.receivers, c.security), func(t *testing.T) {
			wires(t, c.links, 9000)
			change := func(cfg *config.Config) { cfg.Copy, cfg.Receivers = config.CopyShuffle, c.receivers }
			a, b := serveOn(t, c.security, "a", c.links, change), serveOn(t, c.security, "b", c.links, change)
			s := crossing(t, a, b)[0]
			s.server.register(1 << 20) // large enough for an exchange, and mapped like any
			for range 20 {
				s.write(t)
			}
			snap := snapshot(t, a)
			n := &snap.Counters
			t.Logf("%d data frames received, %d shuffled", n.Traffic.DataFramesReceived, n.Placing.FramesShuffled)
			if want := c.security == config.Plaintext; want != (n.Placing.FramesShuffled >= 20*(streamSize/8192)) ||
				!want && n.Placing.FramesShuffled > 0 {
				t.Errorf("%d frames of 20 writes of %d bytes were shuffled", n.Placing.FramesShuffled, streamSize)
			}
			if n.Placing.FramesExchanged+n.Placing.FramesInPlace > 0 {
				t.Errorf("in memory that others map, %d payloads exchanged and %d received in place",
					n.Placing.FramesExchanged,
					n.Placing.FramesInPlace)
			}
		})
	}
}
