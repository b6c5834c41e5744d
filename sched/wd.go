package sched

// wd is the paper's weighted dynamic scheduler: the link with the lowest B/W, B being the bytes scheduled on it and not
// yet done, W its static weight. Room does not enter the choice.
type wd struct{ load }

func (s *wd) Pick(live, room uint64) (int, bool) {
	if live == 0 {
		return 0, false
	}
	link := s.lightest(live)
	return link, has(room, link)
}
