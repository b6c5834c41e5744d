package regmem

import (
	"fmt"
	"math/bits"
)

// ChunkState says whether the bytes of a chunk may be used at once.
type ChunkState uint8

const (
	ChunkAbsent  ChunkState = iota // not resident as far as is known: ask the pinner
	ChunkPinning                   // the pinner was asked
	ChunkPinned                    // locked
	ChunkAhead                     // locked before anybody used it
	ChunkOwed                      // locked for somebody who waited and has not used it yet: no victim
)

var chunkStates = [...]string{"absent", "pinning", "pinned", "ahead", "owed"}

func (s ChunkState) String() string { return chunkStates[s] }

// Chunks is the translation table of a space: which of its chunks are resident, how lately and how often each was used,
// and which to evict next (UTLB §3.3, §3.4). Two levels: a directory that is always there, and leaves that are made
// when the first of their chunks is pinned. Until then every directory entry points to one shared leaf in which all is
// absent, the paper's garbage page, so that a lookup needs no check for it. Pure; one goroutine at a time.
//
// Invariants: resident lists exactly the chunks that are ChunkPinned or later, those that are ChunkOwed first; a chunk
// of the garbage leaf is never changed; a chunk with holds is resident.
type Chunks struct {
	dir      []*chunkLeaf
	busy     []uint16 // of each leaf: chunks that are not absent
	n        uint64
	clock    uint32 // advances with every Touch that hits
	resident []uint64
	owed     int // of resident, from its start
	leaves   int // that are not the garbage leaf; of those that became empty one is kept in spareLeaf
	most     int // of them
	young    uint32
	spare    *chunkLeaf
	policy   Policy
	choose   func(a, b ChunkUse) bool
	sample   int
	best     []ChunkUse // scratch of first
	rng      uint64
}

const (
	leafBits   = 12
	leafChunks = 1 << leafBits
)

// MaxChunks bounds the chunks of one table: the largest space in the smallest chunks.
const MaxChunks = MaxSpace / MinChunk

type chunkLeaf [leafChunks]chunk

type chunk struct {
	stamp uint32 // clock of the latest use
	uses  uint32 // since it became resident, saturated
	slot  uint32 // where it is in resident
	holds uint16 // operations in flight and holds of the program
	state ChunkState
	marks uint8
}

// Marks of a chunk.
const (
	markSeen  = 1 << iota // it was resident before, as far as its leaf remembers
	markEarly             // it was asked for before anybody used it
	markOwed              // it was asked for by somebody who waits
	markOld               // it has been owed since before the latest Forgive
)

var garbage chunkLeaf

// ChunkUse is what a policy knows of a resident chunk.
type ChunkUse struct {
	Chunk uint64
	Age   uint32 // touches of the table since this chunk's latest
	Uses  uint32 // since it became resident
}

// Policy names which chunk is evicted first (UTLB §3.4).
type Policy uint8

const (
	LRU    Policy = iota // the least recently used
	MRU                  // the most recently used: for cyclic patterns larger than the budget
	LFU                  // the least frequently used
	MFU                  // the most frequently used
	Random               // any
)

var policyNames = [...]string{"lru", "mru", "lfu", "mfu", "random"}

// Policies lists the names that PolicyByName takes.
var Policies = policyNames[:]

func (p Policy) String() string { return policyNames[p] }

// PolicyByName finds a policy; the empty name is LRU.
func PolicyByName(name string) (Policy, error) {
	for i, n := range policyNames {
		if n == name || name == "" {
			return Policy(i), nil
		}
	}
	return 0, fmt.Errorf("regmem: unknown policy %q; choose one of %v", name, policyNames)
}

// before reports whether a is evicted before b.
func (p Policy) before(a, b ChunkUse) bool {
	switch p {
	case LRU:
		return a.Age > b.Age
	case MRU:
		return a.Age < b.Age
	case LFU:
		return a.Uses < b.Uses || a.Uses == b.Uses && a.Age > b.Age
	case MFU:
		return a.Uses > b.Uses || a.Uses == b.Uses && a.Age > b.Age
	}
	return false
}

// ChunksConfig fixes a table.
type ChunksConfig struct {
	Chunks uint64
	Policy Policy
	Before func(a, b ChunkUse) bool // a policy of the program's: whether a is evicted before b; nil: Policy
	// of how many resident chunks, drawn at random, a victim is the first; 0: all, which is exact and slow
	Sample int
	Seed   uint64
	Leaves int // the most there may be (Crowded); 0: as many as the directory has
	Young  int // chunks that were used within so many touches are victims only if there is no other
}

// NewChunks returns a table in which every chunk is absent.
func NewChunks(cfg ChunksConfig) (*Chunks, error) {
	if cfg.Chunks == 0 || cfg.Chunks > MaxChunks {
		return nil, fmt.Errorf("%w: a space of %d chunks; choose 1 to %d, by larger chunks", ErrBounds, cfg.Chunks,
			uint64(MaxChunks))
	}
	t := &Chunks{n: cfg.Chunks, policy: cfg.Policy, choose: cfg.Before, sample: cfg.Sample, rng: cfg.Seed | 1,
		young: uint32(cfg.Young)}
	if t.choose == nil {
		t.choose = cfg.Policy.before
	} else {
		t.policy = LRU // not Random, whose victims are drawn without comparing them
	}
	t.dir = make([]*chunkLeaf, (cfg.Chunks+leafChunks-1)>>leafBits)
	t.busy = make([]uint16, len(t.dir))
	for i := range t.dir {
		t.dir[i] = &garbage
	}
	if t.most = cfg.Leaves; t.most == 0 || t.most > len(t.dir) {
		t.most = len(t.dir)
	}
	return t, nil
}

// Len returns the number of chunks.
func (t *Chunks) Len() uint64 { return t.n }

// Resident returns how many chunks are resident.
func (t *Chunks) Resident() int { return len(t.resident) }

// Bytes returns what the table holds in memory, for whoever is charged for it.
func (t *Chunks) Bytes() int {
	return len(t.dir)*10 + t.leaves*leafChunks*16 + cap(t.resident)*8
}

// Crowded reports whether chunk i needs a leaf and there are as many as there may be.
func (t *Chunks) Crowded(i uint64) bool { return t.dir[i>>leafBits] == &garbage && t.leaves >= t.most }

// Bare reports whether nothing is known of chunk i, nor of any other of its leaf.
func (t *Chunks) Bare(i uint64) bool { return t.dir[i>>leafBits] == &garbage }

// Seen reports whether chunk i was resident before, as far as that is remembered.
func (t *Chunks) Seen(i uint64) bool { return t.dir[i>>leafBits][i&(leafChunks-1)].marks&markSeen != 0 }

// Early says that nobody waits for chunk i, which was asked for: once pinned it is ChunkAhead.
func (t *Chunks) Early(i uint64) { t.at(i).marks |= markEarly }

// Await says that somebody waits for chunk i, which was asked for: once pinned it is ChunkOwed. It reports
// whether that is said for the first time, and whether it was asked for early.
func (t *Chunks) Await(i uint64) (first, early bool) {
	c := t.at(i)
	first, early = c.marks&markOwed == 0, c.marks&markEarly != 0
	c.marks = c.marks&^markEarly | markOwed
	return first, early
}

// Awaited reports whether somebody waits for chunk i, which was asked for.
func (t *Chunks) Awaited(i uint64) bool { return t.at(i).marks&markOwed != 0 }

// Owed returns how many chunks are ChunkOwed.
func (t *Chunks) Owed() int { return t.owed }

// Owe makes chunk i, which is resident, no victim until Settle.
func (t *Chunks) Owe(i uint64) {
	c := t.at(i)
	t.swap(int(c.slot), t.owed)
	t.owed++
	c.state = ChunkOwed
	c.marks &^= markOld
}

// Settle says that whom chunk i was owed to has used it, or does not come.
func (t *Chunks) Settle(i uint64) {
	c := t.at(i)
	t.owed--
	t.swap(int(c.slot), t.owed)
	c.state = ChunkPinned
}

// SettleTo settles those that were owed last, until n are left.
func (t *Chunks) SettleTo(n int) {
	for t.owed > n {
		t.Settle(t.resident[t.owed-1])
	}
}

// Forgive settles the chunks that have been owed since before the call before this one.
func (t *Chunks) Forgive() {
	for k := t.owed - 1; k >= 0; k-- {
		if c := t.at(t.resident[k]); c.marks&markOld != 0 {
			t.Settle(t.resident[k])
		} else {
			c.marks |= markOld
		}
	}
}

// swap changes two places of resident.
func (t *Chunks) swap(a, b int) {
	r := t.resident
	r[a], r[b] = r[b], r[a]
	t.at(r[a]).slot, t.at(r[b]).slot = uint32(a), uint32(b)
}

// Used says that a chunk that is ChunkAhead is used now.
func (t *Chunks) Used(i uint64) { t.at(i).state = ChunkPinned }

// Touch looks chunk i up and counts the use if it is resident. A number outside the space is absent. It does not
// allocate.
func (t *Chunks) Touch(i uint64) ChunkState {
	if i >= t.n {
		return ChunkAbsent
	}
	c := &t.dir[i>>leafBits][i&(leafChunks-1)]
	if c.state >= ChunkPinned {
		t.clock++
		c.stamp = t.clock
		if c.uses != 1<<32-1 {
			c.uses++
		}
	}
	return c.state
}

// State looks chunk i up without counting a use.
func (t *Chunks) State(i uint64) ChunkState {
	if i >= t.n {
		return ChunkAbsent
	}
	return t.dir[i>>leafBits][i&(leafChunks-1)].state
}

// at returns a chunk that may be changed.
func (t *Chunks) at(i uint64) *chunk {
	if i >= t.n {
		panic("BUG: regmem.Chunks: a chunk outside the space")
	}
	d := &t.dir[i>>leafBits]
	if *d == &garbage {
		if *d, t.spare = t.spare, nil; *d == nil {
			*d = new(chunkLeaf)
		}
		t.leaves++
	}
	return &(*d)[i&(leafChunks-1)]
}

// left says that a chunk became absent: a leaf without any other goes.
func (t *Chunks) left(i uint64) {
	d := &t.dir[i>>leafBits]
	if t.busy[i>>leafBits]--; t.busy[i>>leafBits] == 0 && t.most < len(t.dir) {
		clear((*d)[:])
		t.spare, *d = *d, &garbage
		t.leaves--
	}
}

// Ask marks an absent chunk as asked for. It reports false if it was asked for, or is resident, already.
func (t *Chunks) Ask(i uint64) bool {
	c := t.at(i)
	if c.state != ChunkAbsent {
		return false
	}
	c.state = ChunkPinning
	t.busy[i>>leafBits]++
	return true
}

// Pin says that chunk i is locked now; it counts as used now.
func (t *Chunks) Pin(i uint64) {
	c := t.at(i)
	if c.state == ChunkAbsent {
		t.busy[i>>leafBits]++
	}
	if c.state < ChunkPinned {
		c.slot, c.uses = uint32(len(t.resident)), 0
		t.resident = append(t.resident, i)
	}
	if c.state == ChunkOwed {
		t.Settle(i)
	}
	early, owed := c.marks&markEarly != 0, c.marks&markOwed != 0
	c.state, c.marks = ChunkPinned, markSeen
	t.clock++
	c.stamp = t.clock
	switch {
	case owed:
		t.Owe(i)
	case early:
		c.state = ChunkAhead
	}
}

// Drop says that chunk i is not resident any more, or that it could not be made so. Chunks that are held stay.
func (t *Chunks) Drop(i uint64) bool {
	c := t.at(i)
	switch {
	case c.holds > 0:
		return false
	case c.state == ChunkOwed:
		t.Settle(i)
		fallthrough
	case c.state >= ChunkPinned:
		last := len(t.resident) - 1
		moved := t.resident[last]
		t.resident[c.slot] = moved
		t.at(moved).slot = c.slot
		t.resident = t.resident[:last]
	}
	was := c.state
	if *c = (chunk{marks: c.marks & markSeen}); was != ChunkAbsent {
		t.left(i)
	}
	return true
}

// MaxHolds is how many holds one chunk can have.
const MaxHolds = 1<<16 - 1

// Hold keeps a resident chunk from being evicted until Release. It reports false if the chunk is not resident, or has
// MaxHolds.
func (t *Chunks) Hold(i uint64) bool {
	if t.State(i) < ChunkPinned {
		return false
	}
	c := t.at(i)
	if c.holds == MaxHolds {
		return false
	}
	c.holds++
	return true
}

// Release ends one Hold.
func (t *Chunks) Release(i uint64) {
	c := t.at(i)
	if c.holds == 0 {
		panic("BUG: regmem.Chunks: released a chunk that is not held")
	}
	c.holds--
}

// Held reports whether chunk i is held.
func (t *Chunks) Held(i uint64) bool {
	return i < t.n && t.dir[i>>leafBits][i&(leafChunks-1)].holds > 0
}

// Victims appends to dst up to n resident chunks in the order in which the policy evicts them, none of them held or
// owed, and returns it. It changes nothing: the caller unlocks them in a batch, and says Drop of each. Fewer come back
// if the others are held.
func (t *Chunks) Victims(dst []uint64, n int) []uint64 {
	had := len(dst)
	dst = t.victims(dst, n, t.young)
	if len(dst) == had && t.young > 0 {
		dst = t.victims(dst, n, 0)
	}
	return dst
}

func (t *Chunks) victims(dst []uint64, n int, young uint32) []uint64 {
	from := t.resident[t.owed:]
	if (t.policy != Random || young > 0) && (t.sample == 0 || t.sample >= len(from)) {
		return t.first(dst, n, young)
	}
	free := len(dst) + n
	for tries := 4*n + 16; len(dst) < free && tries > 0 && len(from) > 0; tries-- {
		if v, ok := t.victim(from, dst[free-n:], young); ok {
			dst = append(dst, v)
		}
	}
	return dst
}

// first appends the n chunks that the policy evicts first of all that are resident: one pass, whatever n.
func (t *Chunks) first(dst []uint64, n int, young uint32) []uint64 {
	t.best = t.best[:0]
	for _, i := range t.resident[t.owed:] {
		c := t.at(i)
		if c.holds > 0 || n == 0 || t.clock-c.stamp < young {
			continue
		}
		use := ChunkUse{Chunk: i, Age: t.clock - c.stamp, Uses: c.uses}
		k := len(t.best)
		if k < n {
			t.best = append(t.best, use)
		} else if k--; !t.choose(use, t.best[k]) {
			continue
		}
		for ; k > 0 && t.choose(use, t.best[k-1]); k-- {
			t.best[k] = t.best[k-1]
		}
		t.best[k] = use
	}
	for _, use := range t.best {
		dst = append(dst, use.Chunk)
	}
	return dst
}

// victim picks one of from that is not among taken.
func (t *Chunks) victim(from, taken []uint64, young uint32) (best uint64, ok bool) {
	var first ChunkUse
	consider := func(i uint64) {
		c := t.at(i)
		if c.holds > 0 || t.clock-c.stamp < young || contains(taken, i) {
			return
		}
		use := ChunkUse{Chunk: i, Age: t.clock - c.stamp, Uses: c.uses}
		if !ok || t.choose(use, first) {
			first, ok = use, true
		}
	}
	for range max(t.sample, 1) {
		consider(from[t.draw(len(from))])
	}
	return first.Chunk, ok
}

func contains(list []uint64, i uint64) bool {
	for _, v := range list {
		if v == i {
			return true
		}
	}
	return false
}

// draw returns a number below n, from a generator of its own (xorshift64*), so that a seed replays.
func (t *Chunks) draw(n int) int {
	t.rng ^= t.rng >> 12
	t.rng ^= t.rng << 25
	t.rng ^= t.rng >> 27
	hi, _ := bits.Mul64(t.rng*2685821657736338717, uint64(n))
	return int(hi)
}
