package flowctl

import (
	"math/bits"

	"multiedge/internal/mono"
)

// WindowBits is how far behind the largest packet number a frame may arrive and still be told apart from a replay.
const WindowBits = 1 << 14

// MaxAckWords is a good limit for AckBits: 4096 numbers behind the largest. Frames that arrive later than the bitmap
// reaches back are never acknowledged, and are sent again for nothing; the words are spent only on a path with holes.
const MaxAckWords = 64

const windowWords = WindowBits / 64

// MaxPN is the largest packet number there can be: nobody gets there, and the arithmetic below has room above it.
const MaxPN = 1<<62 - 1

// Verdict says whether a packet number may be accepted.
type Verdict uint8

const (
	New       Verdict = iota // never committed: accept it
	Duplicate                // committed before: a duplicate or a replay
	TooOld                   // behind the window: it cannot be told from a replay; or above MaxPN
)

func (v Verdict) String() string {
	switch v {
	case New:
		return "new"
	case Duplicate:
		return "duplicate"
	case TooOld:
		return "too old"
	}
	return "unknown verdict"
}

// Tracker records which packet numbers of one path arrived. It serves the replay check and the acknowledgements alike.
//
// It is a ring of WindowBits bits that covers the window [next-WindowBits, next); bit pn mod WindowBits belongs to pn.
// Bits of numbers at or above next are leftovers of the previous lap: readers of a word mask them, and Commit
// clears those it steps over.
//
// Invariants: next is 0 or largest+1; next-WindowBits <= floor <= next; every number in the window below floor arrived;
// floor itself did not; missing counts the numbers in [floor, next) that did not.
//
// A number that was lost is never sent again, so floor stands at that hole until the window has slid past it. Then
// floor steps over it, and claims a frame that never came. This harms nobody: the peer's Ledger spans at most
// WindowBits numbers, so it settled that frame as lost before it sent the one that pushed it out.
//
// The zero value is ready. Once Check says New and the frame proved authentic, Commit it; nothing else changes the
// state, so forged frames cannot move the window.
type Tracker struct {
	bits    [windowWords]uint64
	next    uint64
	floor   uint64
	missing int
	at      mono.Time // arrival of next-1
	hole    hole
}

// hole is the first hole that no block has revealed.
type hole struct {
	open  bool
	first uint64    // the number that did not arrive
	at    mono.Time // when it was found
}

// Check says what Commit would find. It changes nothing.
func (t *Tracker) Check(pn uint64) Verdict {
	if pn >= t.next {
		if pn > MaxPN {
			return TooOld
		}
		return New
	}
	if t.next-pn > WindowBits {
		return TooOld
	}
	if t.has(pn) {
		return Duplicate
	}
	return New
}

// Commit records the arrival of pn, for which Check said New, at time now. gap: pn opened a new hole on this path.
// reordered: a larger number had arrived before.
func (t *Tracker) Commit(pn uint64, now mono.Time) (gap, reordered bool) {
	if pn < t.next {
		t.set(pn)
		t.missing--
		if pn == t.floor {
			t.raiseFloor()
		}
		if t.hole.open && pn == t.hole.first {
			t.hole.first, t.hole.at = t.nextMissing(pn), now
			t.hole.open = t.hole.first < t.next
		}
		return false, true
	}
	skipped := pn - t.next
	if skipped > 0 && !t.hole.open {
		t.hole = hole{true, t.next, now}
	}
	t.slide(pn + 1)
	t.set(pn)
	t.at = now
	if t.floor == pn {
		t.floor = pn + 1
	} else if !t.hasFloorHole() {
		t.raiseFloor()
	}
	return skipped > 0, false
}

// CommitRun records the arrival of n numbers from pn on, at least one and less than the window, of which pn is the
// first above the largest: none opens a hole, and none was overtaken. It does what so many calls of Commit do.
func (t *Tracker) CommitRun(pn uint64, n int, now mono.Time) {
	if pn != t.next {
		panic("BUG: flowctl: a run that does not begin behind the largest number")
	}
	end := pn + uint64(n)
	t.slide(end)
	t.missing -= n - 1
	for lo := pn; lo < end; lo = (lo | 63) + 1 {
		t.bits[lo>>6%windowWords] |= span(lo, end)
	}
	t.at = now
	if t.floor == pn {
		t.floor = end
	} else if !t.hasFloorHole() {
		t.raiseFloor()
	}
}

// slide moves the upper edge of the window to next, which is above the present one. Numbers stepped over become holes,
// except next-1, which the caller is about to set; holes that fall out at the lower edge are forgotten.
func (t *Tracker) slide(next uint64) {
	if next > WindowBits && t.floor < next-WindowBits {
		low := next - WindowBits
		if low >= t.next { // nothing of the old window remains
			t.missing = 0
			t.clear(low, next)
			t.missing = WindowBits - 1
			t.floor, t.next = low, next
			return
		}
		t.missing -= int(low-t.floor) - t.count(t.floor, low)
		t.floor = low
	}
	t.missing += int(next - t.next - 1)
	t.clear(t.next, next)
	t.next = next
}

// hasFloorHole reports whether floor is where it belongs: at a hole, or at next.
func (t *Tracker) hasFloorHole() bool { return t.floor == t.next || !t.has(t.floor) }

// raiseFloor moves floor over the run of numbers that arrived.
func (t *Tracker) raiseFloor() { t.floor = t.nextMissing(t.floor) }

// Largest returns the largest number committed and when it arrived; ok is false before the first.
func (t *Tracker) Largest() (pn uint64, at mono.Time, ok bool) {
	if t.next == 0 {
		return 0, 0, false
	}
	return t.next - 1, t.at, true
}

// Floor returns the cumulative edge: every number below it arrived or fell out of the window.
func (t *Tracker) Floor() uint64 { return t.floor }

// Missing returns how many numbers between floor and the largest have not arrived.
func (t *Tracker) Missing() int { return t.missing }

// AckBits appends to dst the bitmap of [floor, largest] and returns it with its floor: bit i of word w says whether
// floor+64w+i arrived. Without holes there are no words. The result is a copy: it does not change afterwards.
//
// At most maxWords words (at least one) are appended. If the span does not fit, the newest are kept and the floor
// returned is raised to a number that did arrive. Because a true floor never did, bit 0 tells the two apart: clear,
// everything below floor arrived; set, the block says nothing about what lies below it. See Block.
//
// A block with AckBits reveals every hole.
func (t *Tracker) AckBits(dst []uint64, maxWords int) (floor uint64, words []uint64) {
	t.hole.open = false
	return t.ackBits(dst, maxWords, t.next)
}

// Hole returns the first number that did not arrive and that no AckBits has revealed, and when its hole was found,
// which is after the number before it arrived; open is false if there is none in the window.
func (t *Tracker) Hole() (first uint64, found mono.Time, open bool) {
	return t.hole.first, t.hole.at, t.hole.open && t.next-t.hole.first < WindowBits
}

// AckBitsBelow is AckBits of the numbers below the hole, which it does not reveal; the largest is the one before it.
// There must be a hole, and a number below it.
func (t *Tracker) AckBitsBelow(dst []uint64, maxWords int) (floor uint64, words []uint64) {
	return t.ackBits(dst, maxWords, t.hole.first)
}

func (t *Tracker) ackBits(dst []uint64, maxWords int, end uint64) (floor uint64, words []uint64) {
	from := min(t.floor, end)
	if most := uint64(max(maxWords, 1)) * 64; end-from > most {
		from = t.nextArrived(end - most)
	}
	words = dst
	for pn := from; pn < end; pn += 64 {
		w, s := pn>>6, pn&63
		v := t.bits[w%windowWords]>>s | t.bits[(w+1)%windowWords]<<(64-s)
		if left := end - pn; left < 64 {
			v &= 1<<left - 1
		}
		words = append(words, v)
	}
	return from, words
}

// nextArrived returns the lowest number at or above pn that arrived. There is one: the largest.
func (t *Tracker) nextArrived(pn uint64) uint64 {
	for {
		if v := t.bits[pn>>6%windowWords] >> (pn & 63); v != 0 {
			return pn + uint64(bits.TrailingZeros64(v))
		}
		pn = (pn | 63) + 1
	}
}

// nextMissing returns the lowest number from pn to next that did not arrive, a word at a time.
func (t *Tracker) nextMissing(pn uint64) uint64 {
	for pn < t.next {
		ones := uint64(bits.TrailingZeros64(^(t.bits[pn>>6%windowWords] >> (pn & 63))))
		word := 64 - pn&63
		pn = min(pn+min(ones, word), t.next)
		if ones < word {
			break
		}
	}
	return pn
}

func (t *Tracker) has(pn uint64) bool { return t.bits[pn>>6%windowWords]>>(pn&63)&1 != 0 }
func (t *Tracker) set(pn uint64)      { t.bits[pn>>6%windowWords] |= 1 << (pn & 63) }

// clear forgets the bits of [lo, hi), at most one lap.
func (t *Tracker) clear(lo, hi uint64) {
	for lo < hi {
		t.bits[lo>>6%windowWords] &^= span(lo, hi)
		lo = (lo | 63) + 1
	}
}

// count returns how many of [lo, hi), at most one lap, arrived.
func (t *Tracker) count(lo, hi uint64) (n int) {
	for lo < hi {
		n += bits.OnesCount64(t.bits[lo>>6%windowWords] & span(lo, hi))
		lo = (lo | 63) + 1
	}
	return n
}

// span returns the mask of those bits of lo's word that belong to [lo, hi); lo < hi.
func span(lo, hi uint64) uint64 {
	m := ^uint64(0) << (lo & 63)
	if end := lo&^63 + 64; hi < end {
		m &= 1<<(hi&63) - 1
	}
	return m
}
