package regmem

import (
	"fmt"
	"math/bits"
	"slices"
	"time"
)

// A space is a region that is larger than what may be pinned: the whole of it is mapped, some of its chunks are
// resident and locked, and the others are made so when an operation meets them. Because all of it is mapped,
// translation is base and offset, and a chunk that is wrongly taken for resident costs a page fault, never a wrong
// byte.

// Bounds of a space.
const (
	MaxSpace     = 1 << 44 // bytes
	MinChunk     = 4 << 10 // bytes of a chunk
	MaxChunk     = 2 << 20
	DefaultChunk = 64 << 10
	aheadBytes   = 256 << 10 // how much is asked for ahead of an operation that goes on
	aheadChunks  = 4         // and of misses that follow one another
	victimTries  = 32        // evictions that a part may try to make room by
	victimBatch  = 4         // chunks that are unpinned together, unless more are needed: a miss waits for them
	spareFrom    = 64        // chunks of a budget of which some are kept free
	workMost     = 256       // chunks that one call looks at, at most: its caller goes on with what is left
	workAsk      = 4         // what it costs to ask the pinner for something, in looks
	victimSample = 16
	holdMost     = 128 // chunks that wait to be held together
	swapLook     = 256 // uses between two looks whether there is swap
)

// SpaceConfig fixes a space.
type SpaceConfig struct {
	Size   uint64 // bytes
	Chunk  int    // bytes, a power of two: what is pinned together; 0: DefaultChunk
	Pin    uint64 // bytes that may be pinned at once
	Policy Policy
	Before func(a, b ChunkUse) bool // a policy of the program's; nil: Policy
	Seed   uint64
	// Ask has the pinner do something with a chunk; false: its queue is full.
	Ask func(chunk uint64, what PinWork) bool
	// Starve is called when the first waits for whom there is no room: AskMore is wanted until nobody Starves. It may
	// be nil.
	Starve func()
	// Waits reports whether somebody waits for a chunk still, who was told that it is missing; nil: yes.
	Waits func(chunk uint64) bool
	Ahead Ahead
	// Swaps reports whether memory that is not pinned may go. If it may not, what was evicted is used at once, pinned
	// or not: its pages are there and mapped. nil: it may.
	Swaps func() bool
}

// Ahead says what is pinned before an operation asks.
type Ahead uint8

const (
	AheadExact      Ahead = iota // what operations say will follow, and what AheadSequential does
	AheadSequential              // what follows two neighbours that missed
	AheadOff
)

var aheadNames = [...]string{"exact", "sequential", "off"}

// Aheads lists the names that AheadByName takes.
var Aheads = aheadNames[:]

func (a Ahead) String() string { return aheadNames[a] }

// AheadByName finds an Ahead; unknown names mean AheadExact.
func AheadByName(name string) Ahead { return Ahead(max(slices.Index(Aheads, name), 0)) }

// PinWork is what a pinner does with a chunk.
type PinWork uint8

const (
	PinChunk   PinWork = iota // fill and lock it
	PinAgain                  // lock it: it was before
	UnpinChunk                // unlock it
)

// SpaceCounters count what a space did, in the papers' words. The goroutine that owns it alone writes them.
type SpaceCounters struct {
	Lookups    uint64 // uses of memory by parts of operations
	Hits       uint64 // of those, all was resident
	Soft       uint64 // of those, some was not pinned any more (SpaceConfig.Swaps)
	Cold       uint64 // chunks missed that were not resident before
	Capacity   uint64 // chunks missed that had been evicted
	Pins       uint64
	PinsFailed uint64 // no memory, or no budget to fill
	Unpins     uint64
	Evictions  uint64 // unpinned to make room
	Full       uint64 // misses that found nothing to evict
	Prefetched uint64 // pinned before an operation asked
	Used       uint64 // of those, used before they were evicted
	Wasted     uint64 // of those, evicted unused
}

// Advance adds what another's have become since they were then.
func (c *SpaceCounters) Advance(then, o *SpaceCounters) {
	c.Lookups += o.Lookups - then.Lookups
	c.Hits += o.Hits - then.Hits
	c.Soft += o.Soft - then.Soft
	c.Cold += o.Cold - then.Cold
	c.Capacity += o.Capacity - then.Capacity
	c.Pins += o.Pins - then.Pins
	c.PinsFailed += o.PinsFailed - then.PinsFailed
	c.Unpins += o.Unpins - then.Unpins
	c.Evictions += o.Evictions - then.Evictions
	c.Full += o.Full - then.Full
	c.Prefetched += o.Prefetched - then.Prefetched
	c.Used += o.Used - then.Used
	c.Wasted += o.Wasted - then.Wasted
}

// Space is the table of a space: it decides what is pinned and has a pinner do it. It implements Backing. Pure; the
// goroutine that owns its region calls it.
type Space struct {
	cfg     SpaceConfig
	table   *Chunks
	shift   uint
	budget  int // chunks
	asked   int // being pinned
	awaited int // of those, somebody waits for
	ahead   uint64
	missed  uint64 // the chunk that missed last, plus one
	work    int    // what is left of workMost to the call that goes through a range
	victims []uint64
	holds   []*Hold
	wants   wants         // what there was no room for
	freed   bool          // there may be room since
	refused bool          // the latest chunk that was asked for could not be pinned
	judged  time.Duration // when AskMore last forgave
	swaps   bool          // what SpaceConfig.Swaps said last
	Count   SpaceCounters
}

// check fills in defaults, and says what cannot be.
func (cfg *SpaceConfig) check() error {
	if cfg.Chunk == 0 {
		cfg.Chunk = DefaultChunk
	}
	switch {
	case cfg.Size == 0 || cfg.Size > MaxSpace:
		return fmt.Errorf("%w: a space of %d bytes; choose 1 to 2^44", ErrSize, cfg.Size)
	case cfg.Chunk < MinChunk || cfg.Chunk > MaxChunk || cfg.Chunk&(cfg.Chunk-1) != 0:
		return fmt.Errorf("%w: chunks of %d bytes; choose a power of two from %d to %d", ErrSize, cfg.Chunk,
			MinChunk, MaxChunk)
	case cfg.Pin < 4*uint64(cfg.Chunk):
		return fmt.Errorf("%w: a space that may pin %d bytes; allow four chunks at least, %d", ErrSize, cfg.Pin,
			4*cfg.Chunk)
	}
	return nil
}

// budget is how many chunks may be pinned at once.
func (cfg *SpaceConfig) budget() int {
	return int(min(cfg.Pin, cfg.Size+uint64(cfg.Chunk)) / uint64(cfg.Chunk))
}

// leaves is how many leaves the table may have: uses that are scattered farther are evicted earlier.
func (cfg *SpaceConfig) leaves() int { return cfg.budget()/8 + 8 }

// NewSpace returns a space nothing of which is resident. Errors wrap ErrSize and say what to choose.
func NewSpace(cfg SpaceConfig) (*Space, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	s := &Space{cfg: cfg, shift: uint(bits.TrailingZeros(uint(cfg.Chunk)))}
	s.budget = cfg.budget()
	s.swaps = cfg.Swaps == nil || cfg.Swaps()
	var err error
	s.table, err = NewChunks(ChunksConfig{Chunks: (cfg.Size-1)>>s.shift + 1, Policy: cfg.Policy, Before: cfg.Before,
		Sample: victimSample, Seed: cfg.Seed, Leaves: cfg.leaves(), Young: min(64, s.budget/4)})
	return s, err
}

// Chunk is how many bytes are pinned together.
func (s *Space) Chunk() int { return s.cfg.Chunk }

// Budget is how many bytes may be pinned at once.
func (s *Space) Budget() uint64 { return uint64(s.budget) << s.shift }

// Pinned is how many bytes are pinned, or are about to be.
func (s *Space) Pinned() uint64 { return uint64(s.table.Resident()+s.asked) << s.shift }

// SpaceCosts is what a space of a certain shape takes at most, for whoever is charged for it.
type SpaceCosts struct {
	Chunks uint64 // that it has
	Pin    uint64 // bytes that it may pin
	Table  int    // bytes of its tables
}

// SpaceCost returns what a space takes, without making anything of that size. Errors are those of NewSpace.
func SpaceCost(cfg SpaceConfig) (c SpaceCosts, err error) {
	if err := cfg.check(); err != nil {
		return c, err
	}
	c.Chunks = (cfg.Size-1)/uint64(cfg.Chunk) + 1
	chunks := cfg.budget()
	c.Pin = uint64(chunks) * uint64(cfg.Chunk)
	leaves := min(uint64(cfg.leaves()), c.Chunks>>leafBits+1)
	c.Table = int(c.Chunks>>leafBits+1)*10 + int(leaves+1)*leafChunks*16 + chunks*8 + mostWanted*wantCost
	return c, nil
}

// Touch implements Backing.
func (s *Space) Touch(off, n, follows uint64, _ Site) (page uint64, ok bool) {
	ok = true
	end := off + n
	if n > 0 {
		s.Count.Lookups++
		first, last, settled, soft := off>>s.shift, (end-1)>>s.shift, true, false
		for i := first; i <= last; i++ {
			switch s.table.Touch(i) {
			case ChunkPinned:
			case ChunkAhead, ChunkOwed:
				settled = false
			default:
				if s.cfg.Swaps != nil && s.stays(i) {
					soft = true
				} else if ok {
					page, ok = i, false
				}
			}
		}
		switch {
		case !ok:
			s.miss(first, last, page)
		case !settled:
			s.used(first, last)
			fallthrough
		default:
			s.Count.Hits++
			if soft {
				s.soft()
			}
		}
	}
	if follows > 0 && s.cfg.Ahead == AheadExact {
		if last := (end + min(follows, aheadBytes) - 1) >> s.shift; last != s.ahead {
			s.ahead = last
			for i := end >> s.shift; i <= last && (s.stays(i) || s.early(i)); i++ {
			}
		}
	}
	return page, ok
}

// stays reports whether chunk i, which is not pinned, was, and is resident still: without swap pages stay.
func (s *Space) stays(i uint64) bool { return i < s.table.Len() && s.table.Seen(i) && !s.swaps }

// soft counts a use of what is not pinned, and looks now and then whether such memory stays.
func (s *Space) soft() {
	if s.Count.Soft%swapLook == 0 {
		s.swaps = s.cfg.Swaps()
	}
	s.Count.Soft++
}

// Ask implements Backing.
func (s *Space) Ask(page uint64) (resident, busy bool) {
	busy = !s.refused && (s.asked > 0 || s.table.Owed() > 0)
	if s.table.State(page) >= ChunkPinned {
		return true, busy
	}
	s.miss(page, page, page)
	return false, busy
}

// early has a chunk pinned that nobody waits for, if it is absent and there is room that nobody else waits for. It
// reports false if there was none.
func (s *Space) early(i uint64) bool {
	if i >= s.table.Len() || s.table.State(i) != ChunkAbsent {
		return i < s.table.Len()
	}
	if s.Starves() {
		return false
	}
	if s.full(1) || s.table.Crowded(i) {
		if s.table.Resident() < s.budget/2 || !s.evict(1) {
			return false // what is under way is enough
		}
	}
	if s.full(1) || s.table.Crowded(i) || !s.pin(i) {
		return false
	}
	s.Count.Prefetched++
	s.table.Early(i)
	return true
}

// full reports whether n more chunks are too many.
func (s *Space) full(n int) bool { return s.table.Resident()+s.asked+n > s.budget }

// pin has the pinner pin an absent chunk. It reports false if its queue is full.
func (s *Space) pin(i uint64) bool {
	what := PinChunk
	if s.table.Seen(i) {
		what = PinAgain
	}
	if !s.cfg.Ask(i, what) {
		return false
	}
	if what == PinAgain {
		s.Count.Capacity++
	} else {
		s.Count.Cold++
	}
	s.table.Ask(i)
	s.asked++
	return true
}

// evict makes room for a batch of need chunks at least, by the policy. Nothing that is held or owed is evicted. It
// reports whether something was.
func (s *Space) evict(need int) bool {
	n := max(need, min(victimBatch, s.table.Resident()/16))
	s.victims = s.table.Victims(s.victims[:0], n)
	for k, v := range s.victims {
		if !s.unpin(v) {
			return k > 0
		}
		s.Count.Evictions++
	}
	return len(s.victims) > 0
}

// kept reports whether chunk i may not be unpinned now.
func (s *Space) kept(i uint64) bool { return s.table.Held(i) || s.table.State(i) == ChunkOwed }

func (s *Space) unpin(i uint64) bool {
	if s.kept(i) || !s.cfg.Ask(i, UnpinChunk) {
		return false
	}
	s.work -= workAsk - 1
	if s.table.State(i) == ChunkAhead {
		s.Count.Wasted++
	}
	s.Count.Unpins++
	s.freed = true
	return s.table.Drop(i)
}

// Done says what became of a chunk that the pinner was asked for.
func (s *Space) Done(i uint64, pinned bool) {
	s.asked--
	s.freed, s.refused = true, !pinned
	if s.table.Awaited(i) {
		s.awaited--
	}
	if !pinned {
		s.Count.PinsFailed++
		s.table.Drop(i)
		return
	}
	s.Count.Pins++
	s.table.Pin(i)
	s.tryHolds()
}

// Prefetch has the first of n bytes from off pinned, as far as there is room without delay, and returns how many of
// them it went through: all where there is no more room. It is advice.
func (s *Space) Prefetch(off, n uint64) (went uint64) {
	i, last := off>>s.shift, (off+n-1)>>s.shift
	for end := i + workMost/workAsk; n > 0 && i <= last && s.early(i); i++ {
		if i+1 == end {
			return min(n, end<<s.shift-off)
		}
	}
	return n
}

// known calls f for the first chunks of n bytes from off of which the table may know anything, as long as it returns
// true, and returns how many bytes it went through: all where f returned false.
func (s *Space) known(off, n uint64, f func(i uint64) bool) (went uint64) {
	if n == 0 {
		return 0
	}
	i, last := off>>s.shift, (off+n-1)>>s.shift
	for s.work = workMost; s.work > 0; s.work-- {
		if s.table.Bare(i) {
			i |= leafChunks - 1
		} else if !f(i) {
			return n
		}
		if i++; i > last {
			return n
		}
	}
	return i<<s.shift - off
}

// Evict unpins what is resident of the first of n bytes from off, not held and not waited for, and returns how many of
// them it went through. It is advice.
func (s *Space) Evict(off, n uint64) (went uint64) {
	return s.known(off, n, func(i uint64) bool {
		return s.table.State(i) < ChunkPinned || s.kept(i) || s.unpin(i)
	})
}

// Resident returns how many of the first of n bytes from off are resident, in whole chunks, and how many it went
// through.
func (s *Space) Resident(off, n uint64) (bytes, went uint64) {
	went = s.known(off, n, func(i uint64) bool {
		if s.table.State(i) >= ChunkPinned {
			bytes += uint64(s.cfg.Chunk)
		}
		return true
	})
	return bytes, went
}

// Hold is memory that shall stay pinned, on its way there.
type Hold struct {
	next, first, last uint64 // chunks; those before next are held
	done              chan<- struct{}
}

// CheckHold says why n bytes from off cannot be held together: they are more than half of the budget.
func (s *Space) CheckHold(off, n uint64) error {
	if (off+n-1)>>s.shift-off>>s.shift < uint64(s.budget/2) {
		return nil
	}
	return fmt.Errorf("%w: %d bytes cannot be held of a space that may pin %d; hold half of that at most", ErrQuota, n,
		s.Budget())
}

// HoldRange has the first of n bytes from off, which are not 0, pinned until Release. It returns how many those are;
// done is sent to once they are.
func (s *Space) HoldRange(off, n uint64, done chan<- struct{}) (h *Hold, went uint64) {
	h = &Hold{first: off >> s.shift, next: off >> s.shift, last: (off + n - 1) >> s.shift, done: done}
	if most := h.first + holdMost - 1; h.last > most {
		h.last, n = most, (most+1)<<s.shift-off
	}
	s.holds = append(s.holds, h)
	s.tryHolds()
	return h, n
}

// tryHolds goes on with those that wait.
func (s *Space) tryHolds() {
	waiting := s.holds[:0]
	for _, h := range s.holds {
		for h.next <= h.last && s.table.Hold(h.next) {
			if s.table.State(h.next) == ChunkOwed {
				s.table.Settle(h.next) // the hold keeps it
			}
			h.next++
		}
		if h.next > h.last {
			h.done <- struct{}{}
			continue
		}
		for i := h.next; i <= h.last && s.early(i); i++ {
		}
		s.miss(h.next, h.next, h.next)
		waiting = append(waiting, h)
	}
	clear(s.holds[len(waiting):])
	s.holds = waiting
}

// Drop gives a Hold up that did not come about, and reports whether it still waited.
func (s *Space) Drop(h *Hold) bool {
	for i, o := range s.holds {
		if o == h {
			s.holds = append(s.holds[:i], s.holds[i+1:]...)
			s.release(h.first, h.next)
			return true
		}
	}
	return false
}

// Release ends a hold of the first of n bytes from off, and returns how many of them it went through.
func (s *Space) Release(off, n uint64) (went uint64) {
	return s.known(off, n, func(i uint64) bool {
		s.release(i, i+1)
		return true
	})
}

func (s *Space) release(first, end uint64) {
	for i := first; i < end; i++ {
		if s.table.Held(i) {
			s.table.Release(i)
			s.freed = true
		}
	}
}
