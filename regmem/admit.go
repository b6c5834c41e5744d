package regmem

import (
	"slices"
	"time"
)

// Admission of parts of operations that wait. A chunk that one waits for is pinned for it and stays so until the part
// has used it (ChunkOwed), as pages of operations in flight are never evicted (UTLB §3.4): whatever the policy, each
// chunk that is pinned for a waiter serves at least one use. A part is admitted with all the chunks that it needs or
// not at all, so that no two parts each have what the other lacks. Parts for which there is no room take turns in the
// order in which they came. A part that never comes back, since its connection ended, loses its chunks when others
// starve.

const (
	mostOwed   = 1024 // chunks that are pinned for waiters at once, at most, and no more than half of the budget
	mostWanted = 512  // parts that wait for their turn; those beyond are asked for again when these were served
	wantCost   = 64   // bytes of each
	owedTime   = 100 * time.Millisecond
)

// want is a part of an operation that waits for its turn: chunks first to last, of which page was missing.
type want struct{ first, last, page uint64 }

// wants is a queue of them, one for each page.
type wants struct {
	ring    []want
	head, n int
	of      map[uint64]struct{} // their pages
	more    bool                // some were not taken
}

// push reports whether it took one that was not there.
func (q *wants) push(w want) bool {
	if q.ring == nil {
		q.ring, q.of = make([]want, mostWanted), make(map[uint64]struct{}, mostWanted)
	}
	if _, there := q.of[w.page]; there {
		return false
	}
	if q.n == mostWanted {
		q.more = true
		return false
	}
	q.ring[(q.head+q.n)%mostWanted] = w
	q.of[w.page] = struct{}{}
	q.n++
	return true
}

func (q *wants) pop() {
	delete(q.of, q.ring[q.head].page)
	q.head = (q.head + 1) % mostWanted
	q.n--
}

// mostOwed is how many chunks may be pinned for waiters, or be about to be.
func (s *Space) mostOwed() int { return min(mostOwed, max(4, s.budget/2)) }

// used says that a range, all of which is resident, is used.
func (s *Space) used(first, last uint64) {
	for i := first; i <= last; i++ {
		switch s.table.State(i) {
		case ChunkAhead:
			s.Count.Used++
			s.table.Used(i)
		case ChunkOwed:
			s.table.Settle(i)
			s.freed = true
		}
	}
}

// miss admits a part that does not find all it needs, or remembers it.
func (s *Space) miss(first, last, page uint64) {
	if last-first >= uint64(s.mostOwed()) { // more than can be kept for one
		first, last = page, page
	}
	if !s.Starves() && s.admit(first, last) || s.table.State(page) == ChunkPinning {
		return
	}
	for i := first; i <= last; i++ { // it keeps nothing while it waits for its turn
		if s.table.State(i) == ChunkOwed {
			s.table.Settle(i)
			s.freed = true
		}
	}
	if !s.wants.push(want{first, last, page}) {
		return
	}
	if s.Count.Full++; s.wants.n == 1 && s.cfg.Starve != nil {
		s.cfg.Starve()
	}
}

// await says that chunk i, which was asked for, is kept for a waiter when it comes.
func (s *Space) await(i uint64) {
	first, early := s.table.Await(i)
	if first {
		s.awaited++
	}
	if early {
		s.Count.Used++
	}
}

// lacks reports whether chunk i has to be pinned: it is absent and does not stay without that, or is to be held.
func (s *Space) lacks(i uint64) bool {
	return s.table.State(i) == ChunkAbsent && (!s.stays(i) || s.toHold(i))
}

// admit has what is lacking of a range pinned, and what is pinned kept, if there is room for all of it.
func (s *Space) admit(first, last uint64) bool {
	before, absent := s.table.Owed(), 0
	for i := first; i <= last && i < s.table.Len(); i++ {
		switch s.table.State(i) {
		case ChunkAbsent:
			if s.lacks(i) {
				absent++
			}
		case ChunkPinning:
			s.await(i)
		case ChunkOwed:
		default:
			s.table.Owe(i)
		}
	}
	if absent > 0 && !s.room(first, last, absent) {
		s.table.SettleTo(before)
		return false
	}
	asked := s.table.Len() // the first of them; else none
	for i := first; i <= last && i < s.table.Len(); i++ {
		if !s.lacks(i) {
			continue
		}
		if s.table.Crowded(i) || !s.pin(i) {
			return false
		}
		s.await(i)
		asked = min(asked, i)
	}
	if asked == s.table.Len() {
		return true
	}
	// misses of neighbours, one after the other, are taken to go on
	if s.missed == asked && asked > 0 && s.cfg.Ahead != AheadOff {
		for k := last + 1; k <= last+aheadChunks && (s.stays(k) || s.early(k)); k++ {
		}
	}
	s.missed = last + 1
	if s.budget >= spareFrom && s.full(1) { // behind what was asked for, so that the next miss waits for no unpinning
		s.evict(1)
	}
	return true
}

// room makes room for the absent chunks of a range. It reports whether there is.
func (s *Space) room(first, last uint64, absent int) bool {
	if s.table.Owed()+s.awaited+absent > s.mostOwed() {
		return false
	}
	for tries := victimTries; tries > 0 && (s.full(absent) || s.crowded(first, last)); tries-- {
		if !s.evict(absent) {
			break
		}
	}
	return !s.full(absent)
}

// crowded reports whether a chunk of a range needs a leaf that there may not be.
func (s *Space) crowded(first, last uint64) bool {
	for i := first; i <= last && i < s.table.Len(); i++ {
		if s.table.Crowded(i) {
			return true
		}
	}
	return false
}

// Starves reports whether somebody waits for their turn.
func (s *Space) Starves() bool { return s.wants.n > 0 }

// waits reports whether somebody waits for a chunk still: others may have had it pinned meanwhile.
func (s *Space) waits(i uint64) bool { return s.toHold(i) || s.cfg.Waits == nil || s.cfg.Waits(i) }

// toHold reports whether chunk i is the next of some that are to be held.
func (s *Space) toHold(i uint64) bool {
	return slices.ContainsFunc(s.holds, func(h *Hold) bool { return h.next == i })
}

// AskMore admits those whose turn it is now. It reports whether others, who were not remembered, should ask again
// (Ask). The function that Starve called calls it now and then, by a clock, as long as the space Starves.
func (s *Space) AskMore(now time.Duration) (again bool) {
	if now-s.judged >= owedTime {
		s.judged, s.freed = now, true
		s.table.Forgive()
	}
	if !s.freed {
		return false
	}
	for s.freed = false; s.wants.n > 0; s.wants.pop() {
		if w := s.wants.ring[s.wants.head]; s.waits(w.page) && !s.admit(w.first, w.last) {
			return false
		}
	}
	again, s.wants.more = s.wants.more, false
	return again
}
