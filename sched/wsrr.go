package sched

import "math"

// mostPerTurn bounds a turn, should somebody weigh a link a billion times another.
const mostPerTurn = 1 << 16

// wsrr is the paper's weighted static round robin: W frames per link, then the next link, where W is the link's speed
// relative to the slowest link with a weight, rounded.
type wsrr struct {
	cursor int               // the link whose turn it is, or the next live one after it
	sent   int               // frames of this turn
	weight [MaxLinks]float64 // 0: none
	quota  [MaxLinks]int32   // frames per turn; 0 stands for 1
}

func (s *wsrr) Pick(live, room uint64) (int, bool) {
	if live == 0 {
		return 0, false
	}
	link := after(live, s.cursor)
	return link, has(room, link)
}

func (s *wsrr) Sent(link, _ int) {
	if link != s.cursor { // the link whose turn it was died
		s.cursor, s.sent = link, 0
	}
	s.sent++
	if s.sent >= int(s.quota[link]) {
		s.cursor, s.sent = following(link), 0
	}
}

func (*wsrr) Done(int, int) {}

func (s *wsrr) SetWeight(link int, w float64) {
	s.weight[link] = 0
	if valid(w) {
		s.weight[link] = w
	}
	least := math.Inf(1)
	for _, w := range s.weight {
		if w > 0 {
			least = min(least, w)
		}
	}
	for i, w := range s.weight {
		s.quota[i] = int32(min(math.Round(w/least), mostPerTurn))
	}
}
