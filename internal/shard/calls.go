package shard

// Calls counts the system calls that a shard makes to wait and to wake: with linkdrv.Stats.SendCalls and RecvCalls
// all that an operation costs in the kernel. They are plain words, counted by who makes the call and read by Look. The
// calls of receivers (receiver.go), of Go's runtime and of the daemon's control side are not among them.
type Calls struct {
	Sleeps uint64 // poll
	Wakes  uint64 // writes to eventfds: clients' doorbells, and the shard's own from other threads
	Yields uint64 // sched_yield
	Looks  uint64 // what belongs to those: eventfds and doorbells that are cleared, the alarm, the clock of the thread
}

// fold takes over what was counted beside a sleep, without the token.
func (c *Calls) fold(b *pollSet) {
	c.Looks += b.looks
	b.looks = 0
}

// systemCalls is what the shard has counted so far. It runs by Do.
func (s *Shard) systemCalls() Calls {
	c := s.idle.calls
	c.Wakes += s.box.woken()
	c.Looks += s.idle.alarm.sets
	return c
}
