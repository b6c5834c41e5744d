package regmem

import (
	"fmt"
	"io"

	"multiedge/internal/abi"
)

// MaxGrants bounds the keys of one table, and so what careless or hostile clients can make it hold (some 85 bytes
// each).
const MaxGrants = 1 << 24

// Table holds the grants of one engine by key and judges every remote access. The goroutine that owns the engine owns
// it. All grants lie in a slab that an index finds; those in use lie, ready to be used, in a small cache before it, so
// that they cost as much among a million as among a thousand (DHL §IV.A). A miss waits for nothing but memory.
//
// Invariant: a grant is in the index, on its region's list and on its owner's list, or in none of them.
type Table struct {
	last    *hot // of the latest Resolve, in cache: consecutive frames mostly belong to one transfer
	cache   *Cache[hot]
	slab    slab
	index   index
	regions []*Region // those with grants, by the place that their grants name; nil: free
	places  []uint32  // the free ones
	owners  map[uint64]list
	rand    io.Reader
	buf     [8]byte
	limit   int

	// OnRevoke, if set, is told of every grant that ends, and of the bytes that it reached. It must not use the table.
	OnRevoke func(owner uint64, mem []byte)
}

// The cache's entries: as many as twice the grants, within these bounds. 4 ways and lines of one are best: keys are
// random, so that the neighbour of one in use is not (docs/MEASUREMENTS.md has what was tried).
const (
	minHot  = 64
	maxHot  = 4096 // 320 KiB
	hotWays = 4
)

// hot is a grant as Resolve needs it. Its bytes are sliced beforehand: Resolve hands out parts of mem and cannot reach
// beyond.
type hot struct {
	key    Key
	owner  uint64
	mem    []byte  // the granted range, capacity cut to it
	base   uint64  // where in the region it begins; of a grant to a domain the address that its first byte has
	region *Region // whose Back is asked what is resident
	perm   Perm    // fills, with the padding behind it, a line of the processor's cache
}

// none stands for the latest Resolve before there was one: no key is its.
var none hot

// NewTable returns an empty table whose keys are drawn from rand: crypto/rand.Reader, or a seeded reader in a
// simulation.
func NewTable(rand io.Reader) *Table {
	if rand == nil {
		panic("BUG: regmem.NewTable without a random source")
	}
	t := &Table{rand: rand, owners: make(map[uint64]list), limit: MaxGrants}
	t.index.slab = &t.slab
	t.resize(minHot)
	return t
}

// Len returns the number of keys granted and not revoked.
func (t *Table) Len() int { return t.index.n }

// Grant exports bytes [off, off+n) of a region to one connection. The offsets of later accesses count from off: a peer
// learns nothing about the rest of the region. The key is valid until it, its region or its owner is revoked. Errors
// wrap ErrClosed, ErrPermission (no access or an undefined one was asked for), ErrBounds (the range is not in the
// region), ErrQuota (MaxGrants), or the random source's own.
func (t *Table) Grant(r *Region, owner uint64, perm Perm, off, n uint64) (Key, error) {
	if perm&RemoteAtomic != 0 && off%8 != 0 {
		return 0, fmt.Errorf("%w: memory for atomics begins at a multiple of 8, not at %d", ErrPermission, off)
	}
	if err := t.mayGrant(r, perm, off, n); err != nil {
		return 0, err
	}
	k, err := newKey(t.rand, &t.buf, func(k Key) bool { return t.taken(k) })
	if err != nil {
		return 0, err
	}
	t.add(r, k, owner, perm, off, n)
	return k, nil
}

func (t *Table) taken(k Key) bool {
	r, _ := t.index.find(k)
	return r != 0
}

// add enters a grant that was checked.
func (t *Table) add(r *Region, k Key, owner uint64, perm Perm, off, n uint64) *grant {
	at, g := t.slab.take()
	g.key, g.owner, g.off, g.n, g.region, g.perm = k, owner, off, n, t.enter(r), perm
	t.index.insert(k, at)
	t.slab.push(&r.grants, at, byRegion)
	l := t.owners[owner]
	t.slab.push(&l, at, byOwner)
	t.owners[owner] = l
	if n := len(t.cache.tags); t.index.n > n/2 && n < maxHot {
		t.resize(4 * n)
	}
	return g
}

// mayGrant says why a range of a region cannot be granted; nil: it can.
func (t *Table) mayGrant(r *Region, perm Perm, off, n uint64) error {
	if r == nil || r.Mem == nil || r.Mem.Bytes() == nil {
		return fmt.Errorf("%w: nothing to grant", ErrClosed)
	}
	if perm == 0 || perm&^abi.PermAll != 0 {
		return fmt.Errorf("%w: cannot grant %v, only read, write and atomic", ErrPermission, perm)
	}
	if size := uint64(len(r.Mem.Bytes())); off > size || n > size-off {
		return fmt.Errorf("%w: cannot grant %d bytes at %d of a region of %d", ErrBounds, n, off, size)
	}
	if t.index.n >= t.limit {
		return fmt.Errorf("%w: %d keys granted; revoke those not needed", ErrQuota, t.index.n)
	}
	return nil
}

// enter returns the place of a region in regions.
func (t *Table) enter(r *Region) uint32 {
	if r.grants.n > 0 {
		return t.slab.at(r.grants.first).region
	}
	if k := len(t.places); k > 0 {
		at := t.places[k-1]
		t.places, t.regions[at] = t.places[:k-1], r
		return at
	}
	t.regions = append(t.regions, r)
	return uint32(len(t.regions) - 1)
}

// bytes returns what a grant reaches.
func (t *Table) bytes(g *grant) []byte {
	return t.regions[g.region].Mem.Bytes()[g.off : g.off+g.n : g.off+g.n]
}

// Ranges are the bytes of an access in their order: Bytes, then those of Next. An access to a region that is registered
// whole has one range. They are the registered memory itself, with the capacity cut to the length, and may be used
// until control returns to code that could revoke the key.
type Ranges struct {
	Bytes []byte
	Next  *Ranges // nil: no more
}

// Resolve judges an access to n bytes at off, counted from the start of the granted range, and returns where they are.
// The checks are made in this order, each with its own answer: the key exists (ErrKey), was granted to owner
// (ErrOwner), allows all of perm (ErrPermission; also when perm is empty), and covers the range (ErrBounds). An empty
// range at the very end is covered. Whether the bytes are in memory now, Touch says. Resolve does not allocate.
func (t *Table) Resolve(k Key, owner uint64, perm Perm, off, n uint64) (Ranges, error) {
	h := t.last
	if h.key != k || k == 0 {
		at := t.cache.find(0, uint64(k))
		if at < 0 {
			at = t.fetch(k)
		}
		if at < 0 {
			return Ranges{}, ErrKey
		}
		if h = &t.cache.values[at]; h.key != k { // no key is all ones, the page of tags that are empty
			return Ranges{}, ErrKey
		}
		t.last = h
	}
	if h.owner != owner {
		return Ranges{}, ErrOwner
	}
	if perm == 0 || h.perm&perm != perm {
		return Ranges{}, ErrPermission
	}
	size := uint64(len(h.mem))
	if off > size || n > size-off { // never off+n > size, which wraps around
		return Ranges{}, ErrBounds
	}
	return Ranges{Bytes: h.mem[off : off+n : off+n]}, nil
}

// fetch brings the grant of a key into the cache and returns its place; -1: there is none.
func (t *Table) fetch(k Key) int {
	_, g := t.index.find(k)
	if g == nil {
		return -1
	}
	at, _, _ := t.cache.fill(0, uint64(k))
	h := &t.cache.values[at]
	*h = hot{key: g.key, owner: g.owner, mem: t.bytes(g), base: g.off, region: t.regions[g.region], perm: g.perm}
	if g.owner&domains != 0 {
		h.base = g.address()
	}
	return at
}

// resize gives the cache so many entries, of which none is filled.
func (t *Table) resize(entries int) {
	c, err := NewCache[hot](CacheConfig{Entries: entries, Ways: hotWays, Line: 1})
	if err != nil {
		panic("BUG: " + err.Error())
	}
	if old := t.cache; old != nil {
		c.Hits, c.Misses, c.Evicted = old.Hits, old.Misses, old.Evicted
	}
	t.cache, t.last = c, &none
}

// Stats is what a table has done: lookups of keys that were not the latest one's, by how they went.
type Stats struct {
	Hits, Misses, Evicted uint64 // of the cache of grants in use
}

// Stats returns what the table has done.
func (t *Table) Stats() Stats { return Stats{t.cache.Hits, t.cache.Misses, t.cache.Evicted} }

// Holds says whether the grant of a key is there and was made to owner.
func (t *Table) Holds(k Key, owner uint64) bool {
	_, g := t.index.find(k)
	return g != nil && g.owner == owner
}

// Owned returns how many grants an owner has.
func (t *Table) Owned(owner uint64) int { return int(t.owners[owner].n) }

// Oldest returns what the oldest grant of an owner allows, and to how many bytes; 0: it has none.
func (t *Table) Oldest(owner uint64) (perm Perm, n uint64) {
	l := t.owners[owner]
	if l.n == 0 {
		return 0, 0
	}
	g := t.slab.at(l.first)
	return g.perm, g.n
}

// Number returns what SetNumber gave; 0: nothing.
func (t *Table) Number(k Key) uint32 {
	if _, g := t.index.find(k); g != nil {
		return g.number
	}
	return 0
}

// SetNumber keeps a number of the caller's with a grant.
func (t *Table) SetNumber(k Key, number uint32) {
	if _, g := t.index.find(k); g != nil {
		g.number = number
	}
}

// Revoke ends one grant at once and says whether there was one. Operations already using the bytes are the caller's to
// count and drain (Region.InFlight).
func (t *Table) Revoke(k Key) bool {
	at, _ := t.index.find(k)
	if at == 0 {
		return false
	}
	t.drop(at)
	return true
}

// RevokeRegion ends the oldest grants on r, so many at most, and returns how many it did.
func (t *Table) RevokeRegion(r *Region, most int) (n int) {
	for ; n < most && r.grants.n > 0; n++ {
		t.drop(r.grants.first)
	}
	return n
}

// RevokeNext ends the oldest grant on r, if there is one, and says which it was, so that its owner can be told.
func (t *Table) RevokeNext(r *Region) (g Revoked, ok bool) {
	if r.grants.n == 0 {
		return g, false
	}
	was := t.drop(r.grants.first)
	return Revoked{was.key, was.owner, was.number}, true
}

// Revoked is a grant that ended.
type Revoked struct {
	Key    Key
	Owner  uint64
	Number uint32 // SetNumber's
}

// RevokeOwner ends the oldest grants to a connection that has ended, so many at most, and returns how many it did.
func (t *Table) RevokeOwner(owner uint64, most int) (n int) {
	for n < most && t.owners[owner].n > 0 {
		t.drop(t.owners[owner].first)
		n++
	}
	return n
}

// drop ends a grant and returns what it was.
func (t *Table) drop(at ref) grant {
	g := *t.slab.at(at)
	t.cache.Invalidate(0, uint64(g.key)) // what last points to, too
	if t.OnRevoke != nil {
		t.OnRevoke(g.owner, t.bytes(&g))
	}
	t.index.remove(g.key)
	r := t.regions[g.region]
	t.slab.unlink(&r.grants, at, byRegion)
	if r.grants.n == 0 {
		t.regions[g.region] = nil
		t.places = append(t.places, g.region)
	}
	l := t.owners[g.owner]
	if t.slab.unlink(&l, at, byOwner); l.n == 0 {
		delete(t.owners, g.owner)
	} else {
		t.owners[g.owner] = l
	}
	t.slab.give(at)
	return g
}

// HotBytes returns what the cache of grants in use takes.
func (t *Table) HotBytes() int {
	const entry = 16 + 64 // a cacheTag and a hot
	return len(t.cache.tags) * entry
}
