package faults

import (
	"time"

	"multiedge/internal/lab"
)

// lateTime is the delay of frames on one of two links. It is longer than a restart of the daemon that sent them.
const lateTime = 1500 * time.Millisecond

// senderRestarted kills the daemon of clients that write, while their frames are on a long link, and starts it again.
// The memory that they write stays registered and mapped: only the end of the session keeps the frames out. Servers
// take a checksum of the memory once the new daemon has been heard over the short link. The old frames arrive after
// that.
func senderRestarted(t *Trial) {
	c := t.atWork(MixBulk, 2)
	server := t.servers[0]
	t.setFaultsOf(1, lab.Faults{Delay: lateTime})
	t.pause(20 * time.Millisecond) // frames that leave over that link from now on are late
	killed := time.Now()
	t.killDaemon(0)
	t.injected("daemons killed", 1)
	t.startDaemon(0)
	_, ok := t.event(2*time.Second, func() bool { return len(server.endings()) >= c.job.Conns })
	took := time.Since(killed)
	t.ms("old connections ended after", took)
	t.check("old connections end before the last old frames come", ok && took < lateTime, "%d of %d after %v",
		len(server.endings()), c.job.Conns, took)
	was := t.unknown()
	t.pause(lateTime + lateTime/2 - min(took, lateTime))
	t.setFaultsOf(1, lab.Faults{})
	t.flowing(c, 10*time.Second)
	now := t.unknown()
	t.tried("old frames that came afterwards", now-was)
	w := t.mark(c, "after")
	t.check("clients reconnect", w.Up == c.job.Conns, "%d of %d connections", w.Up, c.job.Conns)
}

// unknown returns the number of frames that host 1 received for sessions that it does not have.
func (t *Trial) unknown() uint64 {
	return t.status(1).Counters["unknown_session"]
}
