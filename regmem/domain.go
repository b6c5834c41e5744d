package regmem

import (
	"encoding/binary"
	"fmt"
	"io"
)

// A domain is memory that all connections of a set may reach by the same keys, as the protection domain of the verbs
// specification is: one grant for any number of connections, and one revocation. It is an owner of grants like a
// connection. What its peers name is not an offset but an address, as its owner counts it.

// domains is the bit of an owner that says that it is a domain; the numbers of connections do not have it.
const domains = 1 << 63

// Domain returns the owner that stands for a domain of a client: neither number has a meaning here.
func Domain(client, number uint32) uint64 {
	return domains | uint64(client)<<32&^domains | uint64(number)
}

// DomainOf returns what Domain was given; ok is false where owner is a connection.
func DomainOf(owner uint64) (client, number uint32, ok bool) {
	return uint32(owner &^ domains >> 32), uint32(owner), owner&domains != 0
}

// GrantShared exports bytes [off, off+n) of a region, which is registered whole, to a domain. Peers name them by
// addresses from base on. The upper half of the key is high, which tells this domain's keys from others and is told to
// its peers when they connect; the lower half is drawn, so that a peer knows no key that it was not told. For atomics
// an address must be a multiple of 8 exactly where the memory is. Errors are those of Grant.
func (t *Table) GrantShared(r *Region, domain uint64, perm Perm, off, n uint64, high uint32, base uint64) (Key, error) {
	if domain&domains == 0 {
		panic("BUG: regmem.GrantShared to an owner that is no domain")
	}
	if perm&RemoteAtomic != 0 && (off^base)%8 != 0 {
		return 0, fmt.Errorf("%w: memory for atomics at %d of its region cannot have the address %#x: they differ "+
			"modulo 8", ErrPermission, off, base)
	}
	if base+n < base {
		return 0, fmt.Errorf("%w: %d bytes from address %#x on", ErrBounds, n, base)
	}
	if err := t.mayGrant(r, perm, off, n); err != nil {
		return 0, err
	}
	if r.Back != nil {
		return 0, fmt.Errorf("%w: a space cannot be granted to a domain", ErrPermission)
	}
	k, err := newKey(&lowHalf{t.rand, high}, &t.buf, t.taken)
	if err != nil {
		return 0, err
	}
	g := t.add(r, k, domain, perm, off, n)
	g.high, g.number = uint32(base>>32), uint32(base)
	return k, nil
}

// lowHalf draws keys whose upper half is given.
type lowHalf struct {
	rand io.Reader
	high uint32
}

func (l *lowHalf) Read(p []byte) (int, error) {
	n, err := io.ReadFull(l.rand, p[:4])
	if err != nil {
		return n, err
	}
	binary.LittleEndian.PutUint32(p[4:], l.high)
	return 8, nil
}

// address is where a grant to a domain begins.
func (g *grant) address() uint64 { return uint64(g.high)<<32 | uint64(g.number) }

// ResolveShared judges an access by a connection of a domain to n bytes at an address, by a key for which Resolve has
// just answered ErrOwner. Its own answers are those of Resolve.
func (t *Table) ResolveShared(k Key, domain uint64, perm Perm, address, n uint64) (Ranges, error) {
	h := t.last
	if h.key != k {
		return Ranges{}, ErrOwner
	}
	return t.Resolve(k, domain, perm, address-h.base, n) // below the base it wraps, beyond every size
}

// OwnerOf returns to whom a key was granted; false: to nobody.
func (t *Table) OwnerOf(k Key) (owner uint64, ok bool) {
	if _, g := t.index.find(k); g != nil {
		return g.owner, true
	}
	return 0, false
}
