package faults

import (
	"context"
	"fmt"
	"time"

	"multiedge/internal/lab"
)

// lateTime is the delay of frames on one of two links. It is longer than a restart of the daemon that sent them.
const lateTime = 1500 * time.Millisecond

// senderRestarted kills the daemon of clients that write, while their frames are on a long link, and starts it again.
// The memory that they write stays registered and mapped: only the end of the session keeps the frames out. Servers
// take a checksum of the memory once the new daemon has been heard over the short link. The old frames arrive after
// that.
func senderRestarted(ctx context.Context, t *Trial) error {
	c, err := t.atWork(ctx, MixBulk, 2)
	if err != nil {
		return err
	}
	server := t.servers[0]
	if err := t.cluster.Lab().Link(1).SetFaults(lab.Faults{Delay: lateTime}); err != nil {
		return err
	}
	if !sleep(ctx, 20*time.Millisecond) { // frames that leave over that link from now on are late
		return ctx.Err()
	}
	killed := time.Now()
	t.killDaemon(0)
	t.injected("daemons killed", 1)
	if err := t.cluster.StartDaemon(ctx, 0); err != nil {
		return err
	}
	_, ok := t.event(ctx, 2*time.Second, func() bool { return len(server.endings()) >= c.job.Conns })
	took := time.Since(killed)
	t.ms("old connections ended after", took)
	t.check("old connections end before the last old frames come", ok && took < lateTime, "%d of %d after %v",
		len(server.endings()), c.job.Conns, took)
	was, err := t.unknown(ctx)
	if err != nil {
		return err
	}
	if !sleep(ctx, lateTime+lateTime/2-min(took, lateTime)) {
		return ctx.Err()
	}
	if err := t.cluster.Lab().Link(1).SetFaults(lab.Faults{}); err != nil {
		return err
	}
	if err := t.flowing(ctx, c, 10*time.Second); err != nil {
		return err
	}
	now, err := t.unknown(ctx)
	if err != nil {
		return err
	}
	t.tried("old frames that came afterwards", now-was)
	w, err := t.mark(ctx, c, "after")
	if err != nil {
		return err
	}
	t.check("clients reconnect", w.Up == c.job.Conns, "%d of %d connections", w.Up, c.job.Conns)
	return nil
}

// unknown returns the number of frames that host 1 received for sessions that it does not have.
func (t *Trial) unknown(ctx context.Context) (uint64, error) {
	st, err := t.status(ctx, 1)
	if err != nil {
		return 0, fmt.Errorf("counters of host 1: %w", err)
	}
	return st.Counters["unknown_session"], nil
}
