package edge

// Counters is what a Device has done and holds, for a program's own metrics. The daemon counts bytes and frames
// (edgectl conn -j, /metrics).
type Counters struct {
	Attached    uint64 // daemons attached to so far: more than 1 after one was lost
	Posted      uint64 // operations since Open, those of ReadAt, WriteAt and streams among them; no receives
	Failed      uint64 // of them, those that ended with an error that the transport reported
	InFlight    int    // operations posted and not complete
	Conns       int    // connections that have not ended
	Regions     int    // mapped, those of streams and ReadAt and WriteAt among them
	RegionBytes int64
	BounceBytes int64  // of RegionBytes, what ReadAt and WriteAt have (Config.Bounce)
	BounceWaits uint64 // calls of ReadAt and WriteAt that waited because all of it was in use; since the attachment

	// System calls that the library has made for operations through the daemon since it attached; those of a goroutine
	// that waits are counted when its wait is over. While the daemon and the program are awake there are no others than
	// yields. Those of Go's runtime, which parks and wakes goroutines, and of requests such as Dial and Register are
	// not among them; those of an embedded transport are in its status (package node).
	Wakes  uint64 // writes to the daemon's doorbell, and to the own one
	Sleeps uint64 // epoll_wait
	Yields uint64 // sched_yield
	Clears uint64 // doorbells that are cleared: by an embedded transport alone, elsewhere the sleep does that
}

// Counters returns what the Device has done so far and holds now. It takes locks of the Device for a moment: ask every
// second, and not for each operation.
func (d *Device) Counters() (c Counters) {
	a := d.at.Load()
	c.Attached, c.Failed = d.attached.Load(), d.failures.Load()
	a.out.post.Lock()
	c.Posted = d.posted.Load() + a.out.posted
	c.InFlight = len(a.slots.free) - int(a.slots.freeTail.Load()-a.out.freeHead)
	a.out.post.Unlock()
	a.conns.mu.Lock()
	c.Conns = len(a.conns.byNumber)
	a.conns.mu.Unlock()
	d.mu.Lock()
	for r := range d.regions {
		c.Regions++
		c.RegionBytes += int64(r.size)
	}
	d.mu.Unlock()
	if b := a.bounce.Load(); b != nil {
		c.BounceBytes, c.BounceWaits = int64(b.made.Load())*bounceBlock, b.waits.Load()
	}
	n := a.systemCalls()
	c.Wakes, c.Sleeps, c.Yields, c.Clears = n.wakes, n.sleeps, n.yields, n.clears
	return c
}
