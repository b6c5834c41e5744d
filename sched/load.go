package sched

import "math/bits"

// load is what the dynamic schedulers know of each link: its weight W, and B, the bytes sent on it that are not done.
type load struct {
	cursor int               // ties go round robin from here, so that equal links share
	bytes  [MaxLinks]float64 // B
	per    [MaxLinks]float64 // 1/W; 0 if no weight is set
	set    uint64            // bit i: per[i] is not 0
	unset  float64           // 1/W of links without a weight: the largest of per; 0 if none is set
}

// lightest returns the link of set with the lowest B/W; set must not be empty.
func (l *load) lightest(set uint64) int {
	best, least := -1, 0.0
	for r := bits.RotateLeft64(set, -l.cursor); r != 0; r &= r - 1 {
		link := (bits.TrailingZeros64(r) + l.cursor) % MaxLinks
		if ratio := l.bytes[link] * l.slowness(link); best < 0 || ratio < least {
			best, least = link, ratio
		}
	}
	return best
}

func (l *load) slowness(link int) float64 {
	switch {
	case l.per[link] > 0:
		return l.per[link]
	case l.unset > 0:
		return l.unset
	}
	return 1
}

func (l *load) Sent(link, bytes int) {
	l.bytes[link] += float64(bytes)
	l.cursor = following(link)
}

func (l *load) Done(link, bytes int) { l.bytes[link] -= float64(bytes) }

func (l *load) SetWeight(link int, w float64) {
	was := l.per[link]
	l.per[link] = 0
	l.set &^= 1 << link
	if valid(w) {
		l.per[link] = 1 / w
		l.set |= 1 << link
	}
	switch {
	case l.per[link] >= l.unset:
		l.unset = l.per[link]
	case was == l.unset: // the slowest became faster: look for the new one
		l.unset = 0
		for m := l.set; m != 0; m &= m - 1 {
			l.unset = max(l.unset, l.per[bits.TrailingZeros64(m)])
		}
	}
}
