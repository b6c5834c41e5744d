package regmem

import (
	"fmt"
	"io"
)

// MaxGrants bounds the keys of one table, and so what careless or hostile clients can make it hold (about 200 bytes each).
const MaxGrants = 1 << 20

// Table holds the grants of one engine by key and judges every remote access. The goroutine that owns the engine owns it.
//
// Invariant: a grant is in the index, on its region's list and on its owner's list, or in none of them.
type Table struct {
	last   *grant // the grant of the latest Check: consecutive frames mostly belong to one transfer
	index  index
	owners map[uint64]*link // heads of the owners' lists; never empty lists; never iterated over
	rand   io.Reader
	buf    [8]byte
	limit  int
}

// grant is one exported range. Its bytes are sliced at grant time: Check hands out parts of mem and cannot reach beyond.
type grant struct {
	key    Key
	owner  uint64
	mem    []byte // the granted range, capacity cut to it
	region *Region
	perm   Perm

	byRegion, byOwner link
}

// NewTable returns an empty table whose keys are drawn from rand: crypto/rand.Reader, or a seeded reader in a simulation.
func NewTable(rand io.Reader) *Table {
	if rand == nil {
		panic("BUG: regmem.NewTable without a random source")
	}
	return &Table{rand: rand, owners: make(map[uint64]*link), limit: MaxGrants}
}

// Len returns the number of keys granted and not revoked.
func (t *Table) Len() int { return t.index.n }

// Grant exports bytes [off, off+n) of a region to one connection. The offsets of later accesses count from off: a peer learns nothing about
// the rest of the region. The key is valid until it, its region or its owner is revoked. Errors wrap ErrClosed, ErrPermission
// (no access or an undefined one was asked for), ErrBounds (the range is not in the region), ErrQuota (MaxGrants), or the
// random source's own.
func (t *Table) Grant(r *Region, owner uint64, perm Perm, off, n uint64) (Key, error) {
	if r == nil || r.Mem == nil || r.Mem.Bytes() == nil {
		return 0, fmt.Errorf("%w: nothing to grant", ErrClosed)
	}
	if perm == 0 || perm&^permAll != 0 {
		return 0, fmt.Errorf("%w: cannot grant %v, only read, write or both", ErrPermission, perm)
	}
	mem := r.Mem.Bytes()
	size := uint64(len(mem))
	if off > size || n > size-off {
		return 0, fmt.Errorf("%w: cannot grant %d bytes at %d of a region of %d", ErrBounds, n, off, size)
	}
	if t.index.n >= t.limit {
		return 0, fmt.Errorf("%w: %d keys granted; revoke those not needed", ErrQuota, t.index.n)
	}
	k, err := newKey(t.rand, &t.buf, func(k Key) bool { return t.index.find(k) != nil })
	if err != nil {
		return 0, err
	}
	g := &grant{key: k, owner: owner, mem: mem[off : off+n : off+n], region: r, perm: perm}
	g.byRegion.g, g.byOwner.g = g, g
	t.index.insert(k, g)
	r.grants.push(&g.byRegion)
	head := t.owners[owner]
	if head == nil {
		head = new(link)
		t.owners[owner] = head
	}
	head.push(&g.byOwner)
	return k, nil
}

// Check judges an access to n bytes at off, counted from the start of the granted range, and returns those bytes. The checks are made in
// this order, each with its own answer: the key exists (ErrKey), was granted to owner (ErrOwner), allows all of perm
// (ErrPermission; also when perm is empty), and covers the range (ErrBounds). An empty range at the very end is covered.
//
// dst is the registered memory itself with its capacity cut to n. It may be used until control returns to whoever could revoke the key;
// to keep it longer, count it in r.InFlight. Check does not allocate.
func (t *Table) Check(k Key, owner uint64, perm Perm, off, n uint64) (dst []byte, r *Region, err error) {
	g := t.last
	if g == nil || g.key != k {
		if g = t.index.find(k); g == nil {
			return nil, nil, ErrKey
		}
		t.last = g
	}
	if g.owner != owner {
		return nil, nil, ErrOwner
	}
	if perm == 0 || g.perm&perm != perm {
		return nil, nil, ErrPermission
	}
	size := uint64(len(g.mem))
	if off > size || n > size-off { // never off+n > size, which wraps around
		return nil, nil, ErrBounds
	}
	return g.mem[off : off+n : off+n], g.region, nil
}

// Revoke ends one grant at once and says whether there was one. Operations already using the bytes are the caller's to count and drain
// (Region.InFlight).
func (t *Table) Revoke(k Key) bool {
	g := t.index.find(k)
	if g == nil {
		return false
	}
	t.drop(g)
	return true
}

// RevokeRegion ends every grant on r, as deregistering does, and returns how many there were.
func (t *Table) RevokeRegion(r *Region) (n int) {
	for g := r.grants.first(); g != nil; g = r.grants.first() {
		t.drop(g)
		n++
	}
	return n
}

// RevokeNext ends the oldest grant on r, if there is one, and says which it was: for those who have to tell its owner.
func (t *Table) RevokeNext(r *Region) (k Key, owner uint64, ok bool) {
	g := r.grants.first()
	if g == nil {
		return 0, 0, false
	}
	t.drop(g)
	return g.key, g.owner, true
}

// RevokeOwner ends every grant to a connection, as its end does, and returns how many there were.
func (t *Table) RevokeOwner(owner uint64) (n int) {
	for head := t.owners[owner]; head != nil && head.first() != nil; n++ {
		t.drop(head.first())
	}
	return n
}

func (t *Table) drop(g *grant) {
	if t.last == g {
		t.last = nil
	}
	t.index.remove(g.key)
	g.byRegion.unlink()
	g.byOwner.unlink()
	if t.owners[g.owner].first() == nil {
		delete(t.owners, g.owner)
	}
}
