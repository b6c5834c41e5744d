package sched

// srr is the paper's static round robin: one frame per link in turn, without further knowledge.
type srr struct {
	cursor int // the link whose turn it is, or the next live one after it
}

func (s *srr) Pick(live, room uint64) (int, bool) {
	if live == 0 {
		return 0, false
	}
	link := after(live, s.cursor)
	return link, has(room, link)
}

func (s *srr) Sent(link, _ int)     { s.cursor = following(link) }
func (*srr) Done(int, int)          {}
func (*srr) SetWeight(int, float64) {}
