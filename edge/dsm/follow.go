package dsm

import (
	"math/bits"
	"sync/atomic"
)

// following is what this rank knows of pages whose changes are brought to barriers (DSM clause 3.8).
type following struct {
	by     []uint64 // the ranks that follow each page, a bit each
	ranks  uint64   // those that follow any
	asked  []uint64 // runs of pages that this rank follows and has not said so: first page * 2^32 + pages
	packed int      // words of changes that this rank brings to the next barrier
	phase  uint32   // barriers that are over, times stampStep
	stamps []uint32 // phase of the latest known change of each page, plus 1 + the rank that made it; 0: several did
}

// begin follows the pages of bytes from up to to.
func (f *following) begin(from, to int) {
	first, last := from/pageSize, (to-1)/pageSize
	f.asked = append(f.asked, uint64(first)<<32|uint64(last-first+1))
}

// tellFollows puts runs of pages that this rank begins to follow at a place of the control region, and returns how
// many. What finds no room waits for the next barrier.
func (m *Memory) tellFollows(at int) int {
	f := &m.follow
	n := min(len(f.asked), followWords)
	for i, run := range f.asked[:n] {
		atomic.StoreUint64(word(m.ctl, at+8*i), run)
	}
	f.asked = f.asked[n:]
	return n
}

// heedFollows takes which pages rank q begins to follow, from what it brought to a barrier. No page is dirty here
// meanwhile, so each that is written from now on has a twin.
func (m *Memory) heedFollows(q, arrived int) {
	n := atomic.LoadUint64(word(m.ctl, arrived+24))
	if n > followWords {
		broken(q, "it follows %d runs of pages at once", n)
	}
	for i := range int(n) {
		run := atomic.LoadUint64(word(m.ctl, arrived+arrivedFollows+8*i))
		first, pages := run>>32, run&(1<<32-1)
		if first+pages > uint64(len(m.state)) {
			broken(q, "it follows page %d of %d", first+pages, len(m.state))
		}
		for p := first; p < first+pages; p++ {
			m.follow.by[p] |= 1 << q
		}
		m.follow.ranks |= 1 << q
	}
}

// pageWords is the length of a page in words, changeHead that of what is in front of the changed words of a page: its
// number, and a bit for each of its words.
const (
	pageWords  = pageSize / 8
	changeHead = 1 + pageWords/64
)

// stampStep is more than there are ranks, and one.
const stampStep = 2 * MaxRanks

// alone takes it that a rank has changed a page since the last barrier, and reports whether no other has, as far as is
// known here.
func (m *Memory) alone(p, rank int) bool {
	f := &m.follow
	mine := f.phase + uint32(rank) + 1
	switch s := f.stamps[p]; {
	case s-f.phase >= stampStep: // of an earlier phase
		f.stamps[p] = mine
	case s != mine:
		f.stamps[p] = f.phase
		return false
	}
	return true
}

// crowded takes it that several ranks may have changed any page since the last barrier.
func (m *Memory) crowded() {
	for p := range m.follow.stamps {
		m.follow.stamps[p] = m.follow.phase
	}
}

// pack adds what has changed of a dirty page to what this rank brings to the barrier, if there is room.
func (m *Memory) pack(p int) {
	if m.grain[p] != 8 {
		return // a word may hold bytes of several ranks
	}
	var masks [changeHead - 1]uint64
	words, from := 0, p*pageSize
	for i := range pageWords {
		if m.state[p] == owned || *word(m.mem, from+8*i) != *word(m.twin, from+8*i) {
			masks[i/64] |= 1 << (i % 64)
			words++
		}
	}
	if m.follow.packed+changeHead+words > changeWords {
		return
	}
	at := m.lay.out + arrivedChanges + 8*m.follow.packed
	*word(m.ctl, at) = uint64(p)
	at += 8
	for i := range masks {
		*word(m.ctl, at+8*i) = masks[i]
	}
	at += 8 * len(masks)
	for i, mask := range masks {
		for ; mask != 0; mask &= mask - 1 {
			*word(m.ctl, at) = *word(m.mem, from+8*(64*i+bits.TrailingZeros64(mask)))
			at += 8
		}
	}
	m.follow.packed += changeHead + words
}

// changes are those that a rank brought to a barrier and that were not looked at yet, in bytes of the control region.
// Their pages are in the order of its log.
type changes struct{ at, end int }

// brought returns the changes that rank q brought to this barrier.
func (m *Memory) brought(q int) changes {
	at := m.lay.arrival(m.barriers, q) + arrivedChanges
	return changes{at, at + 8*m.arrived[q].changes[m.barriers&1]}
}

func (c *changes) none() bool { return c.at == c.end }

// change makes the changes that rank q brought of a page, if there are any, and reports whether the page is now as q
// has left it. They are right only if no other rank has changed the page since the last barrier: at its home the twin
// does not tell what others wrote meanwhile. A page that is stale is fetched whole; at its home it is right already;
// and of a page that is checked the program has another view.
func (m *Memory) change(q, p int, alone bool, c *changes) bool {
	if c.none() || *word(m.ctl, c.at) != uint64(p) {
		return false
	}
	head := c.at + 8
	c.at += 8 * changeHead
	words := 0
	for i := range changeHead - 1 {
		if c.at <= c.end {
			words += bits.OnesCount64(*word(m.ctl, head+8*i))
		}
	}
	if c.at+8*words > c.end {
		broken(q, "its changes of page %d are cut off", p)
	}
	from := c.at
	c.at += 8 * words
	if !alone || m.state[p] != clean || !m.away(p) || m.guard != nil {
		return false
	}
	for i := range changeHead - 1 {
		for mask := *word(m.ctl, head+8*i); mask != 0 && from < c.at; mask &= mask - 1 {
			*word(m.mem, p*pageSize+8*(64*i+bits.TrailingZeros64(mask))) = *word(m.ctl, from)
			from += 8
		}
	}
	m.stats.Brought++
	return true
}
