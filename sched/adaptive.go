package sched

// adaptive is wd with a measured weight, the link's congestion window, and among links that have room only. With
// windows that follow the links' speeds, outstanding bytes over window is the part of a link's queueing that is used
// up, so all links drain together; a link that slows down fills its window and drops out by itself.
type adaptive struct{ load }

// Measured says that its weights are the windows.
func (*adaptive) Measured() {}

func (s *adaptive) Pick(live, room uint64) (int, bool) {
	if live &= room; live == 0 {
		return 0, false
	}
	return s.lightest(live), true
}
