package regmem

import (
	"bytes"
	"errors"
	"testing"
)

// A key of a domain is good for its owner alone, by addresses; Resolve answers ErrOwner first, as for every connection.
func TestShared(t *testing.T) {
	tab := NewTable(words(1, 0, 7, 8, 9, 10))
	mem := make([]byte, 4096)
	for i := range mem {
		mem[i] = byte(i) ^ byte(i>>8)
	}
	r := &Region{Mem: Wrap(mem)}
	d := Domain(3, 5)
	if client, number, ok := DomainOf(d); client != 3 || number != 5 || !ok {
		t.Fatalf("Domain(3, 5) is of %d, %d, %v", client, number, ok)
	}
	if _, _, ok := DomainOf(1<<32 - 1); ok {
		t.Fatal("a connection is taken for a domain")
	}
	const base = 1<<40 + 8
	k, err := tab.GrantShared(r, d, RemoteRead|RemoteAtomic, 64, 1000, 0xffff0000, base)
	if err != nil || uint64(k)>>32 != 0xffff0000 {
		t.Fatalf("key %#x, %v", uint64(k), err)
	}
	for _, c := range []struct {
		owner  uint64
		perm   Perm
		at, n  uint64
		err    error
		within uint64
	}{
		{d, RemoteRead, base, 1000, nil, 64},
		{d, RemoteAtomic, base + 992, 8, nil, 1056},
		{d, RemoteRead, base + 1000, 0, nil, 1064},
		{d, RemoteRead, base + 993, 8, ErrBounds, 0},
		{d, RemoteRead, base - 1, 1, ErrBounds, 0},
		{d, RemoteRead, 0, 1, ErrBounds, 0},
		{d, RemoteWrite, base, 1, ErrPermission, 0},
		{Domain(3, 6), RemoteRead, base, 1, ErrOwner, 0},
		{Domain(4, 5), RemoteRead, base, 1, ErrOwner, 0},
	} {
		if _, err := tab.Resolve(k, 17, c.perm, c.at, c.n); err != ErrOwner {
			t.Errorf("a connection: %v, want ErrOwner", err)
		}
		got, err := tab.ResolveShared(k, c.owner, c.perm, c.at, c.n)
		if !errors.Is(err, c.err) || err == nil && !bytes.Equal(got.Bytes, mem[c.within:c.within+c.n]) {
			t.Errorf("%d bytes at base %+d: %v, want %v", c.n, int64(c.at-base), err, c.err)
		}
		// what is added to the place that Found tells is an address
		if in, at := tab.Found(); err == nil && (in != r || at+c.at != c.within) {
			t.Errorf("address %#x is found at %d of its region, want %d", c.at, at+c.at, c.within)
		}
	}
	if owner, ok := tab.OwnerOf(k); owner != d || !ok {
		t.Errorf("the owner is %#x, %v", owner, ok)
	}
	for _, c := range []struct {
		perm         Perm
		off, n, base uint64
		err          error
	}{
		{RemoteAtomic, 4, 8, 0, ErrPermission},
		{RemoteRead, 0, 8, 1<<64 - 4, ErrBounds},
		{RemoteRead, 4000, 97, 0, ErrBounds},
		{0, 0, 8, 0, ErrPermission},
	} {
		if _, err := tab.GrantShared(r, d, c.perm, c.off, c.n, 1, c.base); !errors.Is(err, c.err) {
			t.Errorf("%+v: %v", c, err)
		}
	}
	if !tab.Revoke(k) || tab.Len() != 0 {
		t.Error("the key is not revoked")
	}
	if _, ok := tab.OwnerOf(k); ok {
		t.Error("a key that was revoked has an owner")
	}
}
