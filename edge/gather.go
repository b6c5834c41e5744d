package edge

import (
	"sync/atomic"
	"time"

	"multiedge/internal/ipc"
	"multiedge/internal/mono"
)

// Gathering: a goroutine that drives an embedded transport, posts one operation after the other and looks for the end
// of the oldest in between would send each in a frame of its own. So Done leaves the transport alone for gatherTime
// after it took what was posted, while few short operations wait and others are under way. A lone operation leaves at
// once, and so does everything once somebody waits or polls.
const (
	gatherTime    = 10 * time.Microsecond // a frame takes the sender about three
	gatherMost    = 64                    // operations
	gatherLongest = 64 << 10              // bytes; a longer operation fills a super-frame alone
)

// long reports whether an operation, whose entry in the ring is e, is worth a frame of its own. The length in e is that
// of the last piece alone.
func long(e *ipc.SQE, w *Work) bool {
	n := e.Len
	if w != nil && len(w.Pieces) > 1 {
		for _, p := range w.Pieces[:len(w.Pieces)-1] {
			n += uint64(p.Len)
		}
	}
	return n > gatherLongest
}

type gather struct {
	posted atomic.Uint32 // attachment.out.freeHead as published
	pushed atomic.Uint32 // posted as of the latest drive
	at     atomic.Int64  // mono.Time of the latest drive that took something; 0: nothing is gathered until the next
}

// push has the transport take what is posted, and do whatever else it can. The caller leads.
func (d *attachment) push() (worked bool) {
	g := &d.slots.gather
	posted := g.posted.Load()
	worked, ran := d.drive.Drive()
	if ran && posted != g.pushed.Load() {
		g.pushed.Store(posted)
		g.at.Store(int64(mono.Now()))
	}
	return worked
}

// gathers reports whether what is posted shall wait for more.
func (d *attachment) gathers() bool {
	g := &d.slots.gather
	posted := g.posted.Load()
	waiting := posted - g.pushed.Load()
	if waiting == 0 || waiting >= gatherMost {
		return false
	}
	inFlight := posted + uint32(len(d.slots.free)) - d.slots.freeTail.Load()
	return inFlight > waiting && mono.Now() < mono.Time(g.at.Load()).Add(gatherTime)
}
