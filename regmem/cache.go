package regmem

import (
	"fmt"
	"math/bits"
)

// CacheConfig is the shape of a translation cache (UTLB §3.2, DHL §IV.B.2).
type CacheConfig struct {
	Entries int // translations in all, a power of two
	Ways    int // lines of a set, a power of two; 1: direct-mapped
	Line    int // consecutive translations of a line, a power of two: the unit of a fetch and of eviction. UTLB's is 1
	// add a constant of the process to the index, so that the same pages of two processes do not meet (UTLB §3.2)
	Offset bool
}

// Cache holds translations of all processes: tagged by process and page, set-associative, least recently used line of
// the set first. What is evicted from it stays pinned: the table behind it knows it still. It serves handles of any
// kind as well: a page is then a handle's number. Pure; one goroutine at a time.
type Cache[V any] struct {
	sets
	values []V // Line of them for each tag
}

// sets are the tags of a cache: they say where the translation of a page is.
type sets struct {
	cfg      CacheConfig
	tags     []cacheTag // by set and way
	setMask  uint64
	lineBits uint8
	clock    uint32

	Hits, Misses, Evicted uint64
}

type cacheTag struct {
	line  uint64 // page >> lineBits, plus one; 0: empty
	proc  uint32
	stamp uint32
}

// NewCache returns an empty cache.
func NewCache[V any](cfg CacheConfig) (*Cache[V], error) {
	s, err := newSets(cfg)
	if err != nil {
		return nil, err
	}
	return &Cache[V]{sets: s, values: make([]V, cfg.Entries)}, nil
}

func newSets(cfg CacheConfig) (c sets, err error) {
	for _, n := range []struct {
		name string
		n    int
	}{{"entries", cfg.Entries}, {"ways", cfg.Ways}, {"line", cfg.Line}} {
		if n.n < 1 || n.n&(n.n-1) != 0 {
			return c, fmt.Errorf("regmem: cache of %d %s: choose a power of two", n.n, n.name)
		}
	}
	n := cfg.Entries / cfg.Ways / cfg.Line
	if n < 1 {
		return c, fmt.Errorf("regmem: a cache of %d entries has no room for %d ways of lines of %d", cfg.Entries,
			cfg.Ways, cfg.Line)
	}
	c = sets{cfg: cfg, setMask: uint64(n - 1), tags: make([]cacheTag, n*cfg.Ways)}
	c.lineBits = uint8(bits.TrailingZeros(uint(cfg.Line)))
	return c, nil
}

// set returns the tags of the set of a line, and the first one's place.
func (c *sets) set(proc uint32, line uint64) (first int, tags []cacheTag) {
	if c.cfg.Offset {
		line += uint64(proc) * 0x9e3779b97f4a7c15 >> 32 // a constant of the process
	}
	first = int(line&c.setMask) * c.cfg.Ways
	return first, c.tags[first : first+c.cfg.Ways]
}

// find counts a lookup, and returns where in values the translation of a page is, -1 if it is not there.
func (c *sets) find(proc uint32, page uint64) int {
	line := page >> c.lineBits
	first, tags := c.set(proc, line)
	for i := range tags {
		if t := &tags[i]; t.line == line+1 && t.proc == proc {
			c.clock++
			t.stamp = c.clock
			c.Hits++
			return (first+i)<<c.lineBits | int(page)&(c.cfg.Line-1)
		}
	}
	c.Misses++
	return -1
}

// fill gives the line of a page a place, that of the least recently used one of its set, and returns the first of its
// values.
func (c *sets) fill(proc uint32, page uint64) (at int, old Evicted, left bool) {
	line := page >> c.lineBits
	first, tags := c.set(proc, line)
	for i := range tags {
		t := &tags[i]
		if t.line == line+1 && t.proc == proc {
			at = i
			break
		}
		if best := &tags[at]; best.line != 0 && (t.line == 0 || c.clock-t.stamp > c.clock-best.stamp) {
			at = i
		}
	}
	t := &tags[at]
	if t.line != 0 && (t.line != line+1 || t.proc != proc) {
		old, left = Evicted{t.proc, (t.line - 1) << c.lineBits}, true
		c.Evicted++
	}
	c.clock++
	*t = cacheTag{line + 1, proc, c.clock}
	return (first + at) << c.lineBits, old, left
}

// Lookup returns the translation of a page of a process, if it is there.
func (c *Cache[V]) Lookup(proc uint32, page uint64) (v V, ok bool) {
	if at := c.find(proc, page); at >= 0 {
		return c.values[at], true
	}
	return v, false
}

// Fill puts the line of a page in, in place of the least recently used one of its set. It returns the Line values of
// the line, for the caller to write; old says which line left, if one did.
func (c *Cache[V]) Fill(proc uint32, page uint64) (values []V, old Evicted, left bool) {
	at, old, left := c.fill(proc, page)
	return c.values[at : at+c.cfg.Line], old, left
}

// Evicted names a line that left a cache, by its first page.
type Evicted struct {
	Proc uint32
	Page uint64
}

// Contains reports whether a page's translation is there, without counting a lookup.
func (c *Cache[V]) Contains(proc uint32, page uint64) bool {
	line := page >> c.lineBits
	_, tags := c.set(proc, line)
	for _, t := range tags {
		if t.line == line+1 && t.proc == proc {
			return true
		}
	}
	return false
}

// Invalidate forgets the line of a page, as unpinning must. It reports whether it was there.
func (c *Cache[V]) Invalidate(proc uint32, page uint64) bool {
	line := page >> c.lineBits
	first, tags := c.set(proc, line)
	for i := range tags {
		if t := &tags[i]; t.line == line+1 && t.proc == proc {
			c.forget(first + i)
			return true
		}
	}
	return false
}

func (c *Cache[V]) forget(tag int) {
	c.tags[tag] = cacheTag{}
	clear(c.values[tag<<c.lineBits : (tag+1)<<c.lineBits])
}
