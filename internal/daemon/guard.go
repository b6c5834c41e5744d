package daemon

import (
	"context"
	"time"

	"multiedge/internal/mono"

	"golang.org/x/sys/unix"
)

// guardPeriod is how often the guard looks, and so for how long a hostile client can hold the shard up, once.
const guardPeriod = 250 * time.Millisecond

// guard frees a shard that is stuck ringing a doorbell. The file behind a doorbell is the client's too: one that makes it blocking and fills
// its counter would stop the daemon. Reading the counter ends the write; the client is evicted.
func (d *Daemon) guard(ctx context.Context, s *shard) {
	t := time.NewTicker(guardPeriod)
	defer t.Stop()
	var before *client
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		now := s.ringing.Load()
		if now != nil && now == before && mono.Now().Sub(mono.Time(s.beat.Load())) > guardPeriod/2 {
			d.unjam(s, now)
		}
		before = now
	}
}

// unjam reads away the counter of the doorbell that the shard is stuck on.
func (d *Daemon) unjam(s *shard, c *client) {
	fd := c.ring.FD()
	var b [8]byte
	for range 1000 {
		if s.ringing.Load() != c {
			break
		}
		// RWF_NOWAIT: the client may have made reading block as well.
		unix.Preadv2(fd, [][]byte{b[:]}, -1, unix.RWF_NOWAIT)
		time.Sleep(10 * time.Microsecond)
	}
	s.box.post(func(mono.Time) {
		s.evict(c, "it blocked its doorbell") // if it is still there
	})
}
